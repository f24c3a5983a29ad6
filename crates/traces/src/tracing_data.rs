//! The kernel's descriptions of its tracepoints, as recordings contain them.
//!
//! perf.data has this block as a feature section or a record, and `trace.dat` up to version 6 begins with it:
//! `tools/perf/util/trace-event-info.c`, trace-cmd.dat.v6(5).

use tracepoints::EventFormat;

use crate::bytes::{text, u32_at, u64_at};

/// The first bytes of the block.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The contents of the block.
#[derive(Debug, Default)]
pub(crate) struct TracingData {
    /// Every event with its subsystem.
    pub(crate) formats: Vec<(String, EventFormat)>,
    /// The events whose description is invalid.
    pub(crate) misunderstood: Vec<String>,
}

/// The reason why the block cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTracingData {
    /// It does not begin as expected, or was made on a different kind of machine.
    Foreign,
    /// It is truncated; everything before is in [`TracingData`].
    Cut,
}

/// Parses a block. Everything before an error is returned too.
pub(crate) fn parse(bytes: &[u8]) -> (TracingData, Result<(), BadTracingData>) {
    let mut data = TracingData::default();
    let mut rest = Rest(bytes);
    let outcome = rest.head().and_then(|()| rest.events(&mut data).ok_or(BadTracingData::Cut));
    (data, outcome)
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A zero-terminated text.
    fn word(&mut self) -> Option<&'a [u8]> {
        let length = self.0.iter().position(|&byte| byte == 0)?;
        let word = self.take(length)?;
        self.take(1)?;
        Some(word)
    }

    /// Bytes with their 64-bit length before them.
    fn block(&mut self) -> Option<&'a [u8]> {
        let length = u64_at(self.take(8)?, 0)?;
        self.take(usize::try_from(length).ok()?)
    }

    fn count(&mut self) -> Option<u32> {
        u32_at(self.take(4)?, 0)
    }

    /// Magic number, version, byte order, sizes of `long` and of a page.
    fn head(&mut self) -> Result<(), BadTracingData> {
        if self.take(MAGIC.len()) != Some(MAGIC) {
            return Err(BadTracingData::Foreign);
        }
        self.word().ok_or(BadTracingData::Cut)?;
        if self.take(2) != Some(&[0, 8]) {
            return Err(BadTracingData::Foreign);
        }
        self.take(4).ok_or(BadTracingData::Cut).map(|_| ())
    }

    fn events(&mut self, data: &mut TracingData) -> Option<()> {
        for _ in ["header_page", "header_event"] {
            self.word()?;
            self.block()?;
        }
        for _ in 0..self.count()? {
            self.block()?;
        }
        for _ in 0..self.count()? {
            let system = text(self.word()?);
            for _ in 0..self.count()? {
                let description = String::from_utf8_lossy(self.block()?);
                match EventFormat::parse(&description) {
                    Ok(format) => data.formats.push((system.clone(), format)),
                    Err(error) => data.misunderstood.push(format!("an event of {system}: {error}")),
                }
            }
        }
        Some(())
    }
}

/// Builds blocks for tests.
#[cfg(test)]
pub(crate) mod written {
    pub(crate) fn tracing_data(system: &str, formats: &[&str]) -> Vec<u8> {
        let mut bytes = super::MAGIC.to_vec();
        bytes.extend(b"0.6\0\0\x08");
        bytes.extend(4096u32.to_le_bytes());
        for name in ["header_page\0", "header_event\0"] {
            bytes.extend(name.as_bytes());
            bytes.extend(3u64.to_le_bytes());
            bytes.extend(b"abc");
        }
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(system.as_bytes());
        bytes.push(0);
        bytes.extend((formats.len() as u32).to_le_bytes());
        for format in formats {
            bytes.extend((format.len() as u64).to_le_bytes());
            bytes.extend(format.as_bytes());
        }
        // No symbols, printk formats or thread names.
        bytes.extend([0; 16]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXIT: &str = include_str!("../../tracepoints/tests/fixtures/kvm_exit.format");

    #[test]
    fn events_with_their_system() {
        let (data, outcome) = parse(&written::tracing_data("kvm", &[EXIT, "nonsense"]));
        assert_eq!(outcome, Ok(()));
        assert_eq!(data.formats.len(), 1);
        assert_eq!((data.formats[0].0.as_str(), data.formats[0].1.name.as_str()), ("kvm", "kvm_exit"));
        assert_eq!(data.misunderstood.len(), 1);
    }

    #[test]
    fn what_comes_before_a_cut_is_kept() {
        let bytes = written::tracing_data("kvm", &[EXIT, EXIT]);
        let (data, outcome) = parse(&bytes[..bytes.len() - 40]);
        assert_eq!((data.formats.len(), outcome), (1, Err(BadTracingData::Cut)));
        assert_eq!(parse(b"\x17\x08\x44tracing0.6\0\x01\x08").1, Err(BadTracingData::Foreign));
        assert_eq!(parse(b"").1, Err(BadTracingData::Foreign));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..200usize, value: u8, length in 0..400usize) {
            let mut bytes = written::tracing_data("kvm", &["name: a\nID: 1\n"]);
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(length);
            let _ = parse(&bytes);
        }
    }
}
