//! Sections of perf's header with facts about the recording and its host.
//!
//! `tools/perf/Documentation/perf.data-file-format.txt`, "Feature bits".

use super::attribute::HEADER;
use crate::bytes::{text, u32_at, u64_at};

/// The tracepoints' formats.
pub(super) const TRACING_DATA: u32 = 1;
const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const VERSION: u32 = 5;
const ARCH: u32 = 6;
const CPUDESC: u32 = 8;
const CMDLINE: u32 = 11;
/// The records are in several files in a directory.
pub(super) const DIR_FORMAT: u32 = 24;

/// The longest command that is kept, in bytes; real ones have some hundred.
const LONGEST_COMMAND: usize = 64 << 10;
/// The longest name of a host, a kernel or a processor that is kept, in characters.
const LONGEST_FACT: usize = 1024;

/// The contents of the feature sections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) host: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) version: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) processor: Option<String>,
    pub(super) command: Option<String>,
}

impl Features {
    /// Tests whether the section is read.
    pub(super) fn wants(feature: u32) -> bool {
        matches!(feature, TRACING_DATA | HOSTNAME | OSRELEASE | VERSION | ARCH | CPUDESC | CMDLINE)
    }

    /// Reads a section; an invalid one is ignored.
    pub(super) fn read(&mut self, feature: u32, section: &[u8]) {
        let one = || {
            let text: String = word(section)?.0.chars().take(LONGEST_FACT).collect();
            Some(text).filter(|text| !text.is_empty())
        };
        match feature {
            HOSTNAME => self.host = one(),
            OSRELEASE => self.kernel = one(),
            VERSION => self.version = one(),
            ARCH => self.architecture = one(),
            CPUDESC => self.processor = one(),
            CMDLINE => self.command = command(section),
            _ => {}
        }
    }

    /// Reads a `PERF_RECORD_HEADER_FEATURE`.
    pub(super) fn read_record(&mut self, record: &[u8]) {
        let feature = u64_at(record, HEADER).and_then(|feature| u32::try_from(feature).ok());
        if let (Some(feature), Some(section)) = (feature, record.get(HEADER + 8..)) {
            self.read(feature, section);
        }
    }
}

/// A text with its length before it, and the bytes after it.
fn word(bytes: &[u8]) -> Option<(String, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let (word, rest) = bytes.get(4..)?.split_at_checked(length)?;
    Some((text(word), rest))
}

/// A list of words, quoted for a shell; of a long one, the beginning and an ellipsis.
fn command(section: &[u8]) -> Option<String> {
    let mut rest = section.get(4..)?;
    let mut words = Vec::new();
    let mut length = 0;
    for _ in 0..u32_at(section, 0)? {
        let (word, behind) = word(rest)?;
        let plain =
            !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"\\$&|;<>*".contains(c));
        // An empty word counts too: a section of 64 MiB has 16 million of them.
        length += word.len() + 1;
        if length > LONGEST_COMMAND {
            words.push("…".to_owned());
            break;
        }
        words.push(if plain { word } else { format!("'{}'", word.replace('\'', r"'\''")) });
        rest = behind;
    }
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> Vec<u8> {
        let padded = (text.len() + 1).next_multiple_of(64);
        let mut bytes = (padded as u32).to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes.resize(4 + padded, 0);
        bytes
    }

    #[test]
    fn texts_and_the_command() {
        let mut features = Features::default();
        features.read(HOSTNAME, &stored("host"));
        features.read(ARCH, &stored(""));
        let words: Vec<u8> = ["perf", "record", "-e", "kvm:*"].iter().flat_map(|word| stored(word)).collect();
        features.read(CMDLINE, &[&4u32.to_le_bytes()[..], &words].concat());
        assert_eq!(features.host.as_deref(), Some("host"));
        assert_eq!(features.architecture, None);
        assert_eq!(features.command.as_deref(), Some("perf record -e 'kvm:*'"));
    }

    #[test]
    fn a_command_of_any_number_of_words_is_cut() {
        let count = LONGEST_COMMAND + 1;
        let words = [&(count as u32).to_le_bytes()[..], &vec![0; 4 * count]].concat();
        let command = command(&words).unwrap();
        assert!(command.ends_with("'' '' …"), "{}", command.len());
        assert!(command.len() <= 4 * LONGEST_COMMAND);
        let long = [&1u32.to_le_bytes()[..], &stored(&"x".repeat(LONGEST_COMMAND))].concat();
        let mut features = Features::default();
        features.read(CMDLINE, &long);
        assert_eq!(features.command.as_deref(), Some("…"));
        features.read(HOSTNAME, &stored(&"x".repeat(LONGEST_FACT + 1)));
        assert_eq!(features.host.unwrap().len(), LONGEST_FACT);
    }

    #[test]
    fn broken_sections_say_nothing() {
        let mut features = Features::default();
        for feature in 0..30 {
            features.read(feature, &[0xff; 7]);
            features.read(feature, &[]);
        }
        assert_eq!(features, Features::default());
    }
}
