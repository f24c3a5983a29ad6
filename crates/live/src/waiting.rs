//! Sleeping that a signal can interrupt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time until `stop` is noticed.
const STEP: Duration = Duration::from_millis(20);

/// Sleeps until `end`, or until `stop` is set. Returns true if it reached `end`.
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
