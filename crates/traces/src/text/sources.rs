//! The recording or buffer that a line is from, if there are several.
//!
//! `trace-cmd report` writes the name of the buffer, or of the file if there are several, before the columns
//! (`trace_show_data` in `tracecmd/trace-read.c`). Different buffers may have the same events.

use crate::event::Kind;
use crate::owners::Owners;

/// The most sources.
const MOST: usize = 64;

/// The sources of lines.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The names in order of appearance.
    names: Vec<Vec<u8>>,
    owners: Owners,
    /// The number of events that were ignored.
    pub(super) left_out: u64,
}

impl Sources {
    /// Tests whether an event is taken, by the text before its thread ID.
    pub(super) fn takes(&mut self, before: &[u8], thread: u32, kind: Kind) -> bool {
        let source = source(before);
        // Most texts have a single source without a name.
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

/// The text before the thread's name: a word, a colon, and spaces that pad the name's column.
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
