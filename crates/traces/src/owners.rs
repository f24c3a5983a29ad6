//! Events that were recorded in more than one buffer, so that they count once.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::Kind;

/// From which of several buffers the events of a thread are taken.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// For each kind the first buffer that had one.
    by_kind: FxHashMap<(u32, u8), usize>,
    /// Buffers with entries.
    with_entries: FxHashSet<(u32, usize)>,
}

impl Owners {
    /// Tests whether an event is taken from this buffer.
    pub(crate) fn takes(&mut self, buffer: usize, thread: u32, kind: Kind) -> bool {
        if kind != Kind::Entry {
            return *self.by_kind.entry((thread, kind as u8)).or_insert(buffer) == buffer;
        }
        // An exit and its entry must be of one buffer: each buffer has its own time of the same event.
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
        // Another thread is in another buffer.
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
