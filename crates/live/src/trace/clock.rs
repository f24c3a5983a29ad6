//! Converts the clock of events to the time of day.

use std::time::{Duration, SystemTime};

use crate::monotonic_ns;

/// A moment on both clocks, to convert event times to the time of day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anchor {
    ns: u64,
    wall: SystemTime,
}

impl Anchor {
    /// The current moment. The time of day may be set during a trace, so use an anchor only for current events.
    pub(crate) fn now() -> Self {
        Self { ns: monotonic_ns(), wall: SystemTime::now() }
    }

    pub(crate) fn ns(self) -> u64 {
        self.ns
    }

    pub(crate) fn wall(self, ns: u64) -> SystemTime {
        let later = self.wall.checked_add(Duration::from_nanos(ns.saturating_sub(self.ns)));
        let earlier =
            later.and_then(|wall| wall.checked_sub(Duration::from_nanos(self.ns.saturating_sub(ns))));
        // A machine without an RTC starts in 1970; printing an earlier time would panic.
        earlier.unwrap_or(self.wall).max(SystemTime::UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let anchor = Anchor { ns: 500, wall };
        assert_eq!(anchor.wall(600), wall + Duration::from_nanos(100));
        assert_eq!(anchor.wall(400), wall - Duration::from_nanos(100));
        let early = Anchor { ns: 500, wall: SystemTime::UNIX_EPOCH };
        assert_eq!(early.wall(400), SystemTime::UNIX_EPOCH);
        assert!(monotonic_ns() > 0 && Anchor::now().ns() <= monotonic_ns());
    }
}
