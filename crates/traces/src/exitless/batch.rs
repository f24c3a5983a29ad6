//! The buffers of one batch, decompressed, with no more bytes than its rows need.

use arrow_ipc::{CompressionType, RecordBatch};
use zstd::bulk::Decompressor;

use super::layout::{Numbers, Strings};

/// The most rows of a batch that are read; the writer's batches have 65,536.
pub(super) const MOST_ROWS: usize = 1 << 20;
/// The most bytes of a text column in a batch, or of a dictionary.
const MOST_TEXT: u64 = 16 << 20;
/// Writers may pad lengths to a cache line.
const PADDING: usize = 64;

/// The reason why a batch is invalid.
pub(super) type Wrong = String;

/// A batch of exits, or of a dictionary.
pub(super) struct Batch<'m, 'z> {
    message: RecordBatch<'m>,
    body: &'m [u8],
    packed: bool,
    decompressor: &'z mut Decompressor<'static>,
    pub(super) rows: usize,
}

/// A column of numbers. If it is empty, all values are null.
#[derive(Debug, Default)]
pub(super) struct Column {
    bytes: Vec<u8>,
    width: usize,
    validity: Validity,
}

/// The validity bitmap; if it is empty, no value is null.
#[derive(Debug, Default)]
pub(super) struct Validity(Vec<u8>);

impl Validity {
    fn has(&self, row: usize) -> bool {
        self.0.is_empty() || self.0.get(row / 8).is_some_and(|bits| bits >> (row % 8) & 1 == 1)
    }
}

impl Column {
    /// The number in a row, zero-extended; `None` if it is null.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<u64> {
        let bytes = self.bytes.get(row * self.width..)?;
        let number = match self.width {
            8 => u64::from_le_bytes(*bytes.first_chunk()?),
            4 => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
            2 => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            1 => u64::from(*bytes.first()?),
            _ => return None,
        };
        self.validity.has(row).then_some(number)
    }

    /// Makes all values null.
    pub(super) fn clear(&mut self) {
        self.width = 0;
    }
}

/// A column of texts.
#[derive(Debug, Default)]
pub(super) struct StringColumn {
    offsets: Column,
    text: Vec<u8>,
}

impl StringColumn {
    /// The text in a row; `None` if it is null or not UTF-8.
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        let start = usize::try_from(self.offsets.get(row)?).ok()?;
        // The bitmap has a bit for each row, but there is one more offset than rows.
        let end = usize::try_from(self.offsets.get_valid(row + 1)?).ok()?;
        std::str::from_utf8(self.text.get(start..end)?).ok()
    }
}

impl Column {
    fn get_valid(&self, row: usize) -> Option<u64> {
        let bytes = self.bytes.get(row * self.width..)?;
        match self.width {
            8 => Some(u64::from_le_bytes(*bytes.first_chunk()?)),
            _ => Some(u64::from(u32::from_le_bytes(*bytes.first_chunk()?))),
        }
    }

    /// The offset with this index.
    pub(super) fn offset(&self, row: usize) -> Option<usize> {
        usize::try_from(self.get_valid(row)?).ok()
    }

    /// Tests whether the value in a row is not null.
    pub(super) fn has(&self, row: usize) -> bool {
        self.validity.has(row)
    }
}

impl<'m, 'z> Batch<'m, 'z> {
    pub(super) fn new(
        message: RecordBatch<'m>,
        body: &'m [u8],
        decompressor: &'z mut Decompressor<'static>,
    ) -> Result<Self, Wrong> {
        let packed = match message.compression().map(|compression| compression.codec()) {
            None => false,
            Some(CompressionType::ZSTD) => true,
            Some(_) => return Err("a batch is packed with LZ4; only zstd is read".to_owned()),
        };
        let rows = usize::try_from(message.length()).ok().filter(|&rows| rows <= MOST_ROWS);
        let rows = rows.ok_or_else(|| {
            format!("a batch claims to have {} rows; at most {MOST_ROWS} are read", message.length())
        })?;
        Ok(Self { message, body, packed, decompressor, rows })
    }

    /// Reads a column with this number of rows.
    pub(super) fn numbers(&mut self, place: Numbers, rows: usize, into: &mut Column) -> Result<(), Wrong> {
        self.check_rows(place.node, rows)?;
        into.width = place.width;
        self.validity(place.node, place.buffer, rows, &mut into.validity)?;
        self.buffer(place.buffer + 1, rows * place.width, &mut into.bytes)
    }

    /// Reads the offsets of this number of rows, which are one more, and returns the last one: the length of the
    /// data.
    pub(super) fn offsets(&mut self, place: Numbers, rows: usize, into: &mut Column) -> Result<usize, Wrong> {
        self.check_rows(place.node, rows)?;
        into.width = place.width;
        self.validity(place.node, place.buffer, rows, &mut into.validity)?;
        if rows == 0 {
            // Some writers omit the single offset if there are no rows.
            into.bytes.clear();
            return Ok(0);
        }
        self.buffer(place.buffer + 1, (rows + 1) * place.width, &mut into.bytes)?;
        // Overlapping elements would exceed the memory that was allocated.
        if (0..rows).any(|row| into.offset(row) > into.offset(row + 1)) {
            return Err("offsets do not rise".to_owned());
        }
        into.offset(rows).ok_or_else(|| "an offset is beyond all memory".to_owned())
    }

    /// Reads a text column with this number of rows.
    pub(super) fn strings(
        &mut self,
        place: Strings,
        rows: usize,
        into: &mut StringColumn,
    ) -> Result<(), Wrong> {
        let Strings { node, buffer, width } = place;
        let length = self.offsets(Numbers { node, buffer, width }, rows, &mut into.offsets)?;
        if length as u64 > MOST_TEXT {
            return Err(format!("{length} bytes of texts in one batch; at most {MOST_TEXT} are read"));
        }
        self.buffer(buffer + 2, length, &mut into.text)
    }

    /// The number of rows of a node.
    pub(super) fn length(&self, node: usize) -> Result<usize, Wrong> {
        let node = self.message.nodes().filter(|nodes| node < nodes.len()).map(|nodes| *nodes.get(node));
        let length = node.and_then(|node| usize::try_from(node.length()).ok());
        length
            .filter(|&length| length <= MOST_ROWS)
            .ok_or_else(|| "a column has no credible number of rows".to_owned())
    }

    fn check_rows(&self, node: usize, rows: usize) -> Result<(), Wrong> {
        match self.length(node)? {
            length if length == rows => Ok(()),
            length => Err(format!("a column has {length} rows instead of {rows}")),
        }
    }

    fn validity(
        &mut self,
        node: usize,
        buffer: usize,
        rows: usize,
        into: &mut Validity,
    ) -> Result<(), Wrong> {
        let nulls = self.message.nodes().filter(|nodes| node < nodes.len());
        let nulls = nulls.map_or(0, |nodes| nodes.get(node).null_count());
        into.0.clear();
        match nulls {
            0 => Ok(()),
            _ => self.buffer(buffer, rows.div_ceil(8), &mut into.0),
        }
    }

    /// Reads the first `length` bytes of a buffer.
    fn buffer(&mut self, number: usize, length: usize, into: &mut Vec<u8>) -> Result<(), Wrong> {
        into.clear();
        if length == 0 {
            return Ok(());
        }
        let buffers = self.message.buffers().filter(|buffers| number < buffers.len());
        let stored = buffers.map(|buffers| *buffers.get(number)).and_then(|buffer| {
            let start = usize::try_from(buffer.offset()).ok()?;
            let length = usize::try_from(buffer.length()).ok()?;
            self.body.get(start..start.checked_add(length)?)
        });
        let stored = stored.ok_or("a buffer lies outside of its batch")?;
        let too_short = || format!("a buffer has less than the {length} bytes that its rows need");
        if !self.packed {
            into.extend_from_slice(stored.get(..length).ok_or_else(too_short)?);
            return Ok(());
        }
        // The uncompressed length comes first; -1 means that the buffer is not compressed.
        let (prefix, data) = stored.split_first_chunk().ok_or_else(too_short)?;
        match usize::try_from(i64::from_le_bytes(*prefix)) {
            Err(_) => into.extend_from_slice(data.get(..length).ok_or_else(too_short)?),
            Ok(unpacked) if unpacked < length => return Err(too_short()),
            Ok(unpacked) if unpacked > length + PADDING => {
                return Err(format!("a buffer claims {unpacked} bytes where its rows need {length}"));
            }
            Ok(unpacked) => {
                into.reserve(unpacked);
                self.decompressor
                    .decompress_to_buffer(data, into)
                    .map_err(|error| format!("a buffer cannot be unpacked: {error}"))?;
                if into.len() < length {
                    return Err(too_short());
                }
                into.truncate(length);
            }
        }
        Ok(())
    }
}
