//! The time that a guest has to start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time that a guest has to start: a limit, and a flag that ends the wait before it.
#[derive(Debug, Clone, Copy)]
pub struct Patience<'a> {
    /// The limit.
    pub limit: Duration,
    /// The flag, which a signal or the limit of a run sets.
    pub ending: &'a AtomicBool,
}

impl Patience<'_> {
    /// The rest of a wait that began at `begun`.
    pub(crate) fn left(self, begun: Instant) -> Duration {
        let is_ended = self.ending.load(Ordering::Relaxed);
        if is_ended { Duration::ZERO } else { self.limit.saturating_sub(begun.elapsed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_after_the_limit_or_once_the_flag_is_set() {
        let ending = AtomicBool::new(false);
        let hour = Patience { limit: Duration::from_secs(3600), ending: &ending };
        let begun = Instant::now();
        assert!(
            !hour.left(begun).is_zero() && Patience { limit: Duration::ZERO, ..hour }.left(begun).is_zero()
        );
        ending.store(true, Ordering::Relaxed);
        assert!(hour.left(begun).is_zero());
    }
}
