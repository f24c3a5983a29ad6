//! Decompresses the records in `PERF_RECORD_COMPRESSED`: one zstd stream, cut into pieces.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::attribute::HEADER;
use super::kind;
use crate::bytes::{u32_at, u64_at};

/// The largest decompressed piece. A piece is the contents of a ring buffer in less than 64 KiB, so no recording has
/// a larger one.
const MOST_OF_A_PIECE: usize = 256 << 20;

/// The state of the stream between pieces.
#[derive(Default)]
pub(super) struct Inflater {
    stream: Option<Decoder<'static>>,
    /// The number of bytes of the current piece that were decompressed.
    done: usize,
    /// The number of bytes that it has produced.
    given: usize,
    /// The start of a record whose end is in the next piece.
    rest: Vec<u8>,
}

impl Inflater {
    /// Appends the decompressed piece of a record to `out`, until it is complete (`true`) or `out` has `most` bytes.
    /// In that case, the next call continues with the same record.
    pub(super) fn inflate(&mut self, record: &[u8], out: &mut Vec<u8>, most: usize) -> Result<bool, String> {
        let bad = |error| format!("the packed records cannot be unpacked ({error})");
        let piece = piece(record).ok_or("a packed record is too short")?;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(Decoder::new().map_err(bad)?),
        };
        let filled = out.len();
        out.resize(most, 0);
        let mut input = InBuffer::around(piece.get(self.done..).unwrap_or_default());
        let mut output = OutBuffer::around_pos(&mut out[..], filled);
        let mut done = false;
        while output.pos() < most {
            let before = (input.pos(), output.pos());
            if let Err(error) = stream.run(&mut input, &mut output) {
                let filled = output.pos();
                out.truncate(filled);
                return Err(bad(error));
            }
            // No input was used and no output produced: the stream needs the next piece.
            if (input.pos(), output.pos()) == before {
                done = true;
                break;
            }
        }
        self.given = if done { 0 } else { self.given + output.pos() - filled };
        if self.given > MOST_OF_A_PIECE {
            return Err("a packed record unpacks to more than any ring buffer holds".into());
        }
        let filled = output.pos();
        self.done = if done { 0 } else { self.done + input.pos() };
        out.truncate(filled);
        Ok(done)
    }

    /// Keeps the bytes of an incomplete record.
    pub(super) fn keep_rest(&mut self, rest: &[u8]) {
        self.rest.clear();
        self.rest.extend_from_slice(rest);
    }

    /// Moves the kept bytes to `out`.
    pub(super) fn give_rest(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.rest);
    }

    /// Tests whether there are bytes of an incomplete record.
    pub(super) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }
}

fn piece(record: &[u8]) -> Option<&[u8]> {
    match u32_at(record, 0)? {
        kind::COMPRESSED2 => {
            let length = usize::try_from(u64_at(record, HEADER)?).ok()?;
            record.get(HEADER + 8..)?.get(..length)
        }
        _ => record.get(HEADER..),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(kind: u32, piece: &[u8]) -> Vec<u8> {
        let mut record = kind.to_le_bytes().to_vec();
        record.extend([0; 4]);
        if kind == kind::COMPRESSED2 {
            record.extend((piece.len() as u64).to_le_bytes());
        }
        record.extend(piece);
        if kind == kind::COMPRESSED2 {
            record.extend([0xff; 5]);
        }
        record
    }

    #[test]
    fn pieces_of_one_stream_unpack_in_any_steps() {
        let plain: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
        let stream = zstd::encode_all(&plain[..], 1).unwrap();
        for kind in [kind::COMPRESSED, kind::COMPRESSED2] {
            let (mut inflater, mut whole, mut out) = (Inflater::default(), Vec::new(), Vec::new());
            for piece in stream.chunks(1000) {
                while !inflater.inflate(&packed(kind, piece), &mut out, 4096).unwrap() {
                    whole.append(&mut out);
                }
            }
            whole.append(&mut out);
            assert!(whole == plain);
        }
    }

    #[test]
    fn what_is_no_stream_is_an_error() {
        let mut inflater = Inflater::default();
        let error = inflater.inflate(&packed(kind::COMPRESSED, &[7; 40]), &mut Vec::new(), 4096).unwrap_err();
        assert!(error.starts_with("the packed records cannot be unpacked"));
        assert!(inflater.inflate(&packed(kind::COMPRESSED2, &[])[..12], &mut Vec::new(), 9).is_err());
    }
}
