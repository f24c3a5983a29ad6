//! A run of events: of one thread, in the order in which a file has them.

use crate::event::Event;

/// A run. `T` names its thread.
#[derive(Default)]
pub(crate) struct Run<T> {
    pub(crate) thread: T,
    pub(crate) events: Vec<Event>,
    /// They are ordered by time.
    pub(crate) ordered: bool,
    pub(crate) newest_ns: u64,
}

impl<T> Run<T> {
    /// Begins anew, for `thread`; the room of former events is kept.
    pub(crate) fn begin(&mut self, thread: T) {
        self.events.clear();
        (self.thread, self.ordered, self.newest_ns) = (thread, true, 0);
    }

    #[inline]
    pub(crate) fn push(&mut self, event: &Event) {
        self.ordered &= event.time_ns >= self.newest_ns;
        self.newest_ns = self.newest_ns.max(event.time_ns);
        self.events.push(*event);
    }
}
