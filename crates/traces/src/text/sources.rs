//! The recording or buffer, of several, that a line is from.
//!
//! `trace-cmd report` writes the name of the buffer, or of the file when there are several, before the
//! columns (`trace_show_data` in `tracecmd/trace-read.c`). Buffers may hold the same events.

use crate::event::Kind;
use crate::owners::Owners;

/// More than anybody gives to one report.
const MOST: usize = 64;

/// The sources of lines.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The names, in the order in which they appeared.
    names: Vec<Vec<u8>>,
    owners: Owners,
    /// Events that were left out.
    pub(super) left_out: u64,
}

impl Sources {
    /// Tests whether an event is taken, by the text before its thread's number.
    pub(super) fn takes(&mut self, before: &[u8], thread: u32, kind: Kind) -> bool {
        let source = source(before);
        // Nearly all texts have one source, and no word for it.
        if source.is_empty() && self.names.is_empty() {
            return true;
        }
        let number = match self.names.iter().position(|known| known == source) {
            Some(number) => number,
            None if self.names.len() < MOST => {
                self.names.push(source.to_vec());
                self.names.len() - 1
            }
            None => 0,
        };
        let taken = self.owners.takes(number, thread, kind);
        self.left_out += u64::from(!taken);
        taken
    }
}

/// The text before the thread's name: a word and a colon, and spaces that fill up the name's column.
fn source(before: &[u8]) -> &[u8] {
    let colon = before.windows(3).position(|window| window == b":  ");
    colon.map_or(&[], |colon| &before[..colon])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_two_buffers_count_once() {
        let mut sources = Sources::default();
        assert!(sources.takes(b"vcpu 0", 7, Kind::Exit));
        assert!(sources.takes(b"all:           vcpu 0", 8, Kind::Exit));
        assert!(sources.takes(b"all:           vcpu 0", 7, Kind::MsrRead));
        assert!(!sources.takes(b"regs:           vcpu 0", 7, Kind::MsrRead));
        assert!(!sources.takes(b"vcpu 0", 8, Kind::Exit));
        assert!(sources.takes(b"all:           vcpu 0", 8, Kind::Exit));
        assert_eq!(sources.left_out, 2);
        assert_eq!(source(b"kworker/0:1-"), b"");
    }
}
