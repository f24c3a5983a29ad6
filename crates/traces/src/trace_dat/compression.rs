//! Compressed parts of a `trace.dat` of version 7 (`lib/trace-cmd/trace-compress.c` of trace-cmd).

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::file::{Fields, Flaw};
use crate::bytes::MOST_SECTION;

/// The compression algorithm of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Zlib,
    Zstd,
}

impl Compression {
    /// The algorithm with this name in the header.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "zlib" => Some(Self::Zlib),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Decompresses parts one by one.
pub(super) struct Unpacker {
    compression: Compression,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    packed: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new(compression: Compression) -> Self {
        Self { compression, zstd: None, packed: Vec::new() }
    }

    /// Decompresses the part that begins here with its two sizes. The parts after it can be read even if it is
    /// invalid. If it is truncated, `out` gets the beginning.
    pub(super) fn unpack(&mut self, fields: &mut Fields<impl Read>, out: &mut Vec<u8>) -> Result<Part, Flaw> {
        out.clear();
        let start = fields.at;
        let (packed, size) = (fields.u32()?, fields.u32()? as usize);
        self.packed = fields.up_to(u64::from(packed))?;
        if self.packed.len() < packed as usize {
            self.beginning(size, out);
            return Err(Flaw::new("the file ends", fields.at));
        }
        if size > MOST_SECTION {
            return Ok(Part::Bad(Flaw::new(
                format!("a packed part of {size} bytes, more than is ever written"),
                start,
            )));
        }
        Ok(match self.content(size, out) {
            Ok(()) if out.len() == size => Part::Whole,
            Ok(()) => Part::Bad(Flaw::new(
                format!("a packed part holds {} bytes instead of {size}", out.len()),
                start,
            )),
            Err(error) => Part::Bad(Flaw::new(format!("a packed part cannot be unpacked ({error})"), start)),
        })
    }

    /// Decompresses up to the first error.
    fn beginning(&self, size: usize, out: &mut Vec<u8>) {
        let packed = &self.packed[..];
        let reader: Box<dyn Read + '_> = match self.compression {
            Compression::None => Box::new(packed),
            Compression::Zlib => Box::new(ZlibDecoder::new(packed)),
            Compression::Zstd => match zstd::Decoder::with_buffer(packed) {
                Ok(reader) => Box::new(reader),
                Err(_) => return,
            },
        };
        // The bytes before an error are in `out`, and nothing else is needed.
        let _ = reader.take(size.min(MOST_SECTION) as u64).read_to_end(out);
    }

    fn content(&mut self, size: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
        match self.compression {
            Compression::None => out.extend_from_slice(&self.packed),
            Compression::Zlib => {
                // One byte more reveals data beyond the size.
                ZlibDecoder::new(&self.packed[..]).take(size as u64 + 1).read_to_end(out)?;
            }
            Compression::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Decompressor::new()?),
                };
                out.reserve(size);
                zstd.decompress_to_buffer(&self.packed, out)?;
            }
        }
        Ok(())
    }
}

/// The result of decompressing a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Bad(Flaw),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn part(packed: &[u8], size: usize) -> Vec<u8> {
        let mut part = (packed.len() as u32).to_le_bytes().to_vec();
        part.extend((size as u32).to_le_bytes());
        part.extend(packed);
        part
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn parts_in_a_row() {
        let plain: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
        let ways = [
            (Compression::Zstd, zstd::encode_all(&plain[..], 3).unwrap()),
            (Compression::Zlib, zlib(&plain)),
            (Compression::None, plain.clone()),
        ];
        for (compression, packed) in ways {
            let file =
                [part(&packed, plain.len()), part(&packed, plain.len() - 1), part(&[1; 9], 10)].concat();
            let mut fields = Fields::new(&file[..], 0);
            let (mut unpacker, mut out) = (Unpacker::new(compression), Vec::new());
            assert_eq!(unpacker.unpack(&mut fields, &mut out), Ok(Part::Whole));
            assert!(out == plain);
            for at in [packed.len() + 8, 2 * packed.len() + 16] {
                let bad = unpacker.unpack(&mut fields, &mut out);
                assert!(matches!(bad, Ok(Part::Bad(Flaw { offset, .. })) if offset == at as u64), "{bad:?}");
            }
            assert!(unpacker.unpack(&mut fields, &mut out).is_err());
            // zstd compresses all of it as one block.
            let cut = part(&packed, plain.len());
            assert!(unpacker.unpack(&mut Fields::new(&cut[..cut.len() * 3 / 4], 0), &mut out).is_err());
            assert!(
                plain.starts_with(&out) && (compression == Compression::Zstd || out.len() > plain.len() / 2)
            );
        }
    }

    #[test]
    fn sizes_that_nobody_writes_take_no_memory() {
        let file = part(&[0; 4], u32::MAX as usize);
        let mut out = Vec::new();
        let bad = Unpacker::new(Compression::Zstd).unpack(&mut Fields::new(&file[..], 0), &mut out);
        assert!(matches!(bad, Ok(Part::Bad(_))));
        assert_eq!(out.capacity(), 0);
    }
}
