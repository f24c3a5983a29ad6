//! Selects one of several buffers that recorded the same events, so that each event counts once.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::Kind;

/// The buffer from which the events of each thread are taken.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The first buffer that had an event of each kind.
    by_kind: FxHashMap<(u32, u8), usize>,
    /// Buffers that have entries.
    with_entries: FxHashSet<(u32, usize)>,
}

impl Owners {
    /// Tests whether an event is taken from this buffer.
    pub(crate) fn takes(&mut self, buffer: usize, thread: u32, kind: Kind) -> bool {
        if kind != Kind::Entry {
            return *self.by_kind.entry((thread, kind as u8)).or_insert(buffer) == buffer;
        }
        // An exit and its entry must be from the same buffer: each buffer has its own time for the same event.
        self.with_entries.insert((thread, buffer));
        let of_exits = self.by_kind.get(&(thread, Kind::Exit as u8));
        of_exits.is_none_or(|&owner| owner == buffer || !self.with_entries.contains(&(thread, owner)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_and_entries_are_of_one_buffer() {
        let mut owners = Owners::default();
        assert!(owners.takes(1, 7, Kind::Entry));
        assert!(owners.takes(0, 7, Kind::Entry));
        assert!(owners.takes(0, 7, Kind::Exit));
        assert!(!owners.takes(1, 7, Kind::Exit));
        assert!(!owners.takes(1, 7, Kind::Entry));
        assert!(owners.takes(0, 7, Kind::Entry));
        assert!(owners.takes(1, 7, Kind::MsrRead));
        // Another thread can use another buffer.
        assert!(owners.takes(1, 8, Kind::Exit));
        assert!(owners.takes(1, 8, Kind::Entry));
    }

    #[test]
    fn entries_of_another_buffer_serve_when_there_are_no_others() {
        let mut owners = Owners::default();
        assert!(owners.takes(0, 7, Kind::Exit));
        assert!(owners.takes(1, 7, Kind::Entry));
        assert!(owners.takes(1, 7, Kind::Entry));
    }
}
