//! The bytes of a recording, from a file or standard input, compressed or not.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;

/// The number of bytes that are copied at a time.
const PIECE: u64 = 1 << 20;
/// Enough bytes to recognise every format.
const START: usize = 64 << 10;
/// The limit of copied bytes: this number, or [`COPIED_TIMES`] times the compressed size if that is more. Recordings
/// compress ten to twenty times.
const COPIED: u64 = 1 << 30;
const COPIED_TIMES: u64 = 100;
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const GZIP: &[u8] = &[0x1f, 0x8b];

/// The source of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file, or anything else with a path.
    Path(PathBuf),
    /// Standard input, written `-`.
    StandardInput,
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        Self::from(Path::new(text))
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        if path == Path::new("-") { Self::StandardInput } else { Self::Path(path.to_owned()) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.pad(&path.to_string_lossy()),
            Self::StandardInput => f.pad("standard input"),
        }
    }
}

/// An open recording, which is decompressed while it is read.
pub(crate) struct Input {
    pub(crate) name: String,
    start: Vec<u8>,
    body: Body,
    failure: Failure,
    /// The number of compressed bytes that were read; `None` if the recording is not compressed.
    packed: Option<Arc<AtomicU64>>,
}

/// Counts the bytes that are read.
struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.bytes.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

enum Body {
    File(File),
    /// The bytes after `start`.
    Stream(Box<dyn Read + Send>),
}

/// The error that ended a stream early, for whoever reads last.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<io::Error>>>);

impl Failure {
    /// Takes the error.
    pub(crate) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Turns an error into the end of the stream and keeps it, because the bytes before it are useful.
struct Lenient<R> {
    inner: R,
    failure: Failure,
}

impl<R: Read> Read for Lenient<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                *self.failure.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Ok(0)
            }
            Ok(length) => Ok(length),
        }
    }
}

impl Input {
    /// Opens a recording and reads its first bytes.
    pub(crate) fn open(source: &Source) -> Result<Self, Error> {
        let name = source.to_string();
        let failed = |source| Error::Read { name: name.clone(), source };
        let reader: Box<dyn Read + Send> = match source {
            Source::Path(path) => {
                let file = File::open(path).map_err(failed)?;
                if file.metadata().map_err(failed)?.is_file() {
                    return Self::of_file(name, file);
                }
                Box::new(file)
            }
            Source::StandardInput => Box::new(io::stdin()),
        };
        Self::of_stream(name, reader)
    }

    /// Reads the first bytes of a regular file.
    pub(crate) fn of_file(name: String, mut file: File) -> Result<Self, Error> {
        let failed = |source| Error::Read { name: name.clone(), source };
        let start = beginning(&mut file).map_err(failed)?;
        file.rewind().map_err(failed)?;
        if packed(&start) {
            return Self::of_stream(name, Box::new(file));
        }
        Ok(Self { name, start, body: Body::File(file), failure: Failure::default(), packed: None })
    }

    /// Reads the first bytes of a stream, which can be read only once.
    pub(crate) fn of_stream(name: String, mut reader: Box<dyn Read + Send>) -> Result<Self, Error> {
        let failed = |source| Error::Read { name: name.clone(), source };
        let (failure, mut bytes) = (Failure::default(), None);
        let mut start = beginning(&mut reader).map_err(failed)?;
        if packed(&start) {
            let zstd = start.starts_with(ZSTD);
            let read = Arc::clone(bytes.get_or_insert_default());
            let whole = Counted { inner: io::Cursor::new(start).chain(reader), bytes: read };
            reader = if zstd {
                Box::new(zstd::Decoder::new(whole).map_err(failed)?)
            } else {
                Box::new(flate2::read::MultiGzDecoder::new(whole))
            };
            reader = Box::new(Lenient { inner: reader, failure: failure.clone() });
            start = beginning(&mut reader).map_err(failed)?;
        } else {
            reader = Box::new(Lenient { inner: reader, failure: failure.clone() });
        }
        Ok(Self { name, start, body: Body::Stream(reader), failure, packed: bytes })
    }

    /// The first bytes, up to 64 KiB.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The whole recording from its first byte on. Read errors look like its end; see [`Self::failure`].
    pub(crate) fn into_stream(self) -> Box<dyn Read + Send> {
        match self.body {
            Body::File(file) => Box::new(Lenient { inner: file, failure: self.failure }),
            Body::Stream(rest) => Box::new(io::Cursor::new(self.start).chain(rest)),
        }
    }

    /// The place where the error of a stream that ended early is kept.
    pub(crate) fn failure(&self) -> Failure {
        self.failure.clone()
    }

    /// The whole recording as a seekable file, with its length in bytes. A stream is copied to an unnamed file in the
    /// directory for temporary files, unless it decompresses to so much more than its size that it may never end.
    pub(crate) fn into_file(self) -> Result<(File, u64), Error> {
        self.into_file_within(COPIED)
    }

    fn into_file_within(self, limit: u64) -> Result<(File, u64), Error> {
        let name = self.name.clone();
        let failed = |source| Error::Spool { name: name.clone(), source };
        let file = match self.body {
            Body::File(file) => file,
            Body::Stream(_) => {
                let mut copy = tempfile::tempfile().map_err(failed)?;
                let (packed, mut stream) = (self.packed.clone(), self.into_stream());
                let mut length = 0;
                loop {
                    let copied = io::copy(&mut stream.by_ref().take(PIECE), &mut copy).map_err(failed)?;
                    length += copied;
                    if copied == 0 {
                        break;
                    }
                    let packed = packed.as_ref().map_or(length, |packed| packed.load(Ordering::Relaxed));
                    if length > limit.max(packed.saturating_mul(COPIED_TIMES)) {
                        return Err(Error::Unsupported {
                            name,
                            what: format!("packed more than {COPIED_TIMES}-fold, as no recording is"),
                            next: "unpack it into a file",
                        });
                    }
                }
                copy
            }
        };
        let length = file.metadata().map_err(failed)?.len();
        Ok((file, length))
    }
}

fn packed(start: &[u8]) -> bool {
    start.starts_with(ZSTD) || start.starts_with(GZIP)
}

/// Up to [`START`] bytes.
fn beginning(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    reader.take(START as u64).read_to_end(&mut start)?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn stored(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read_both_ways(bytes: &[u8]) -> [Vec<u8>; 2] {
        let file = stored(bytes);
        let mut stream = Vec::new();
        Input::open(&file.path().into()).unwrap().into_stream().read_to_end(&mut stream).unwrap();
        let (mut copy, length) = Input::open(&file.path().into()).unwrap().into_file().unwrap();
        let mut whole = Vec::new();
        copy.rewind().unwrap();
        copy.read_to_end(&mut whole).unwrap();
        assert_eq!(length, whole.len() as u64);
        [stream, whole]
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn packed_or_not_the_bytes_are_the_same() {
        let bytes: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        for stored in [bytes.clone(), zstd::encode_all(&bytes[..], 1).unwrap(), gzip(&bytes)] {
            for read in read_both_ways(&stored) {
                assert!(read == bytes);
            }
        }
    }

    #[test]
    fn a_cut_archive_gives_what_is_whole() {
        let bytes: Vec<u8> =
            (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut packed = zstd::encode_all(&bytes[..], 1).unwrap();
        packed.truncate(packed.len() / 2);
        let file = stored(&packed);
        let input = Input::open(&file.path().into()).unwrap();
        let failure = input.failure();
        let mut read = Vec::new();
        input.into_stream().read_to_end(&mut read).unwrap();
        assert!(read.len() > bytes.len() / 4 && bytes.starts_with(&read));
        assert!(failure.take().is_some());
    }

    #[test]
    fn an_archive_that_holds_far_more_than_recordings_do_is_not_unpacked() {
        let file = stored(&zstd::encode_all(io::repeat(0).take(3 * PIECE), 1).unwrap());
        let open = || Input::open(&file.path().into()).unwrap();
        assert_eq!(open().into_file_within(3 * PIECE).unwrap().1, 3 * PIECE);
        let error = open().into_file_within(PIECE).unwrap_err().to_string();
        assert!(error.contains("unpack it into a file"), "{error}");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = Input::open(&Source::from("/no/such/recording")).err().unwrap();
        assert_eq!(error.to_string(), "Cannot read /no/such/recording");
        assert_eq!(Source::from("-").to_string(), "standard input");
    }
}
