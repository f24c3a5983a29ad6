//! Waiting that a signal ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long `stop` may go unseen.
const STEP: Duration = Duration::from_millis(20);

/// Sleeps until `end`, or until `stop` is set. Whether it came to the end.
#[must_use = "whether it was stopped"]
pub fn pause(end: Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STEP));
    }
}
