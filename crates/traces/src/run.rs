//! A run of events of one thread, in the order of the file.

use crate::event::Event;

/// A run of events; `T` identifies its thread.
#[derive(Default)]
pub(crate) struct Run<T> {
    pub(crate) thread: T,
    pub(crate) events: Vec<Event>,
    /// True if they are in order of time.
    pub(crate) ordered: bool,
    pub(crate) newest_ns: u64,
}

impl<T> Run<T> {
    /// Restarts it for `thread`, reusing the memory.
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
