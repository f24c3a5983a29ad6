//! The kernel's descriptions of its tracepoints, as recordings contain them.
//!
//! perf.data has this block as a feature section or a record, and `trace.dat` up to version 6 begins with it:
//! `tools/perf/util/trace-event-info.c`, trace-cmd.dat.v6(5).

use std::io::Read;

use tracepoints::EventFormat;

use crate::decoder::IDS;
use crate::fields::{Fields, Flaw};
use crate::misunderstood::Misunderstood;

/// The first bytes of the block, and of a `trace.dat`.
pub(crate) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";
/// The longest description, in bytes; they have a few kilobytes.
const LONGEST: u64 = 1 << 20;

/// The reason why the block cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTracingData {
    /// It does not begin as expected, or was made on a different kind of machine.
    Foreign,
    /// It is truncated, or has a text that is too long, a part with another name, or more events than there are IDs.
    Cut,
}

/// Parses a block into every event with its subsystem. Everything before an error is returned too.
pub(crate) fn parse(
    bytes: &[u8],
    misunderstood: &mut Misunderstood,
) -> (Vec<(String, EventFormat)>, Result<(), BadTracingData>) {
    let mut formats = Vec::new();
    let mut fields = Fields::new(bytes, 0);
    let outcome = head(&mut fields)
        .and_then(|()| events(&mut fields, &mut formats, misunderstood).map_err(|_| BadTracingData::Cut));
    (formats, outcome)
}

/// Reads magic number, version, byte order, sizes of `long` and of a page.
fn head(fields: &mut Fields<&[u8]>) -> Result<(), BadTracingData> {
    if fields.array().ok() != Some(*MAGIC) {
        return Err(BadTracingData::Foreign);
    }
    fields.text().map_err(|_| BadTracingData::Cut)?;
    if fields.array().ok() != Some([0, 8]) {
        return Err(BadTracingData::Foreign);
    }
    fields.u32().map(|_| ()).map_err(|_| BadTracingData::Cut)
}

fn events(
    fields: &mut Fields<&[u8]>,
    formats: &mut Vec<(String, EventFormat)>,
    misunderstood: &mut Misunderstood,
) -> Result<(), Flaw> {
    named_description(fields, "header_page")?;
    named_description(fields, "header_event")?;
    // The events of ftrace itself.
    each_description(fields, |_| Ok(()))?;
    for _ in 0..fields.u32()? {
        let system = fields.text()?;
        each_description(fields, |text| {
            let format = misunderstood.parse(&system, text);
            if formats.len() == IDS {
                return Err(Flaw::new("more events than there are IDs", 0));
            }
            formats.extend(format.map(|format| (system.clone(), format)));
            Ok(())
        })?;
    }
    Ok(())
}

/// Reads a description with its name before it.
pub(crate) fn named_description(fields: &mut Fields<impl Read>, name: &str) -> Result<String, Flaw> {
    let at = fields.at;
    if fields.text()? != name {
        return Err(Flaw::new(format!("`{name}` is not where it must be"), at));
    }
    description(fields)
}

/// Reads descriptions with their number before them.
pub(crate) fn each_description(
    fields: &mut Fields<impl Read>,
    mut use_it: impl FnMut(&str) -> Result<(), Flaw>,
) -> Result<(), Flaw> {
    for _ in 0..fields.u32()? {
        use_it(&description(fields)?)?;
    }
    Ok(())
}

fn description(fields: &mut Fields<impl Read>) -> Result<String, Flaw> {
    let (at, length) = (fields.at, fields.u64()?);
    if length > LONGEST {
        return Err(Flaw::new(format!("a description of {length} bytes"), at));
    }
    Ok(String::from_utf8_lossy(&fields.block(length)?).into_owned())
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
    use crate::bytes::LONGEST_NAME;
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
    fn descriptions_longer_than_any_kernels_are_refused() {
        let of = |length: u64| written::tracing_data("kvm", &[EXIT, &"x".repeat(length as usize)]);
        assert_eq!(parsed(&of(LONGEST)), (1, Ok(())));
        assert_eq!(parsed(&of(LONGEST + 1)), (1, Err(BadTracingData::Cut)));
        let long = [u64::MAX.to_le_bytes(); 2].concat();
        assert!(description(&mut Fields::new(&long[..], 0)).is_err());
    }

    #[test]
    fn a_part_under_another_name_is_refused() {
        let mut bytes = written::tracing_data("kvm", &[EXIT]);
        let at = bytes.windows(12).position(|part| part == b"header_event").unwrap();
        bytes[at] = b'H';
        assert_eq!(parsed(&bytes), (0, Err(BadTracingData::Cut)));
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
