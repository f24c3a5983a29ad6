//! The kernel's descriptions of its tracepoints, as recordings contain them.
//!
//! perf.data has this block as a feature section or a record, and `trace.dat` up to version 6 begins with it:
//! `tools/perf/util/trace-event-info.c`, trace-cmd.dat.v6(5).

use tracepoints::EventFormat;

use crate::bytes::{LONGEST_NAME, text, u32_at, u64_at};
use crate::decoder::IDS;
use crate::misunderstood::Misunderstood;

/// The first bytes of the block.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The reason why the block cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTracingData {
    /// It does not begin as expected, or was made on a different kind of machine.
    Foreign,
    /// It is truncated, or has a text that is too long or more events than there are IDs.
    Cut,
}

/// Parses a block into every event with its subsystem. Everything before an error is returned too.
pub(crate) fn parse(
    bytes: &[u8],
    misunderstood: &mut Misunderstood,
) -> (Vec<(String, EventFormat)>, Result<(), BadTracingData>) {
    let mut formats = Vec::new();
    let mut rest = Rest(bytes);
    let outcome =
        rest.head().and_then(|()| rest.events(&mut formats, misunderstood).ok_or(BadTracingData::Cut));
    (formats, outcome)
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A zero-terminated text: a name or a version.
    fn word(&mut self) -> Option<&'a [u8]> {
        let length = self.0.iter().take(LONGEST_NAME + 1).position(|&byte| byte == 0)?;
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

    fn events(
        &mut self,
        formats: &mut Vec<(String, EventFormat)>,
        misunderstood: &mut Misunderstood,
    ) -> Option<()> {
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
                let format = misunderstood.parse(&system, &description);
                if formats.len() == IDS {
                    return None;
                }
                formats.extend(format.map(|format| (system.clone(), format)));
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

    /// The number of events, and the outcome.
    fn parsed(bytes: &[u8]) -> (usize, Result<(), BadTracingData>) {
        let (formats, outcome) = parse(bytes, &mut Misunderstood::default());
        (formats.len(), outcome)
    }

    #[test]
    fn events_with_their_system() {
        let mut misunderstood = Misunderstood::default();
        let (formats, outcome) =
            parse(&written::tracing_data("kvm", &[EXIT, "nonsense"]), &mut misunderstood);
        assert_eq!(outcome, Ok(()));
        assert_eq!(formats.len(), 1);
        assert_eq!((formats[0].0.as_str(), formats[0].1.name.as_str()), ("kvm", "kvm_exit"));
        assert!(misunderstood.told().unwrap().contains("an event of kvm ("));
    }

    #[test]
    fn names_and_numbers_that_no_kernel_has_are_refused() {
        let system = |length| written::tracing_data(&"x".repeat(length), &["name: a\nID: 1\n"]);
        assert_eq!(parsed(&system(LONGEST_NAME)), (1, Ok(())));
        assert_eq!(parsed(&system(LONGEST_NAME + 1)), (0, Err(BadTracingData::Cut)));
        let many = vec!["name: a\nID: 1\n"; IDS + 1];
        assert_eq!(parsed(&written::tracing_data("kvm", &many[1..])), (IDS, Ok(())));
        assert_eq!(parsed(&written::tracing_data("kvm", &many)), (IDS, Err(BadTracingData::Cut)));
    }

    #[test]
    fn what_comes_before_a_cut_is_kept() {
        let bytes = written::tracing_data("kvm", &[EXIT, EXIT]);
        assert_eq!(parsed(&bytes[..bytes.len() - 40]), (1, Err(BadTracingData::Cut)));
        assert_eq!(parsed(b"\x17\x08\x44tracing0.6\0\x01\x08").1, Err(BadTracingData::Foreign));
        assert_eq!(parsed(b"").1, Err(BadTracingData::Foreign));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..200usize, value: u8, length in 0..400usize) {
            let mut bytes = written::tracing_data("kvm", &["name: a\nID: 1\n"]);
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(length);
            let _ = parsed(&bytes);
        }
    }
}
