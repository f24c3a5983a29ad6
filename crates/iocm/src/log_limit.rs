//! A rate limit of the log lines that a front-end or a guest can cause; further lines are counted.

use crate::clock::now_ns;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of lines that are written in each period.
const LINES: u64 = 10;
/// The length of a period, nanoseconds.
const PERIOD_NS: u64 = 10_000_000_000;

/// The number of lines that one source wrote. Each source has its own limit, so that none hides the lines of another.
#[derive(Debug, Default)]
pub struct LogLimit {
    /// The start of the period, nanoseconds.
    began: AtomicU64,
    /// The number of lines in it, including dropped ones.
    lines: AtomicU64,
}

impl LogLimit {
    /// Admits or drops a line. If admitted, returns the number of lines that were dropped before it.
    fn admit(&self, now: u64) -> Option<u64> {
        let began = self.began.load(Ordering::Relaxed);
        if began == 0 || now.saturating_sub(began) >= PERIOD_NS {
            let begun = self.began.compare_exchange(began, now.max(1), Ordering::Relaxed, Ordering::Relaxed);
            if begun.is_ok() {
                return Some(self.lines.swap(1, Ordering::Relaxed).saturating_sub(LINES));
            }
        }
        (self.lines.fetch_add(1, Ordering::Relaxed) < LINES).then_some(0)
    }

    /// The number of lines in this period, including dropped ones.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Writes a warning, unless the limit is reached.
    pub fn warn(&self, line: impl FnOnce() -> String) {
        match self.admit(now_ns()) {
            Some(0) => tracing::warn!("{}", line()),
            Some(omitted) => {
                tracing::warn!("{} ({} of the same source left out)", line(), exits::counted(omitted, "line"))
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_written_and_then_how_many_were_left_out() {
        let limit = LogLimit::default();
        let now = 5 * PERIOD_NS;
        let written = (0..1000).filter(|line| limit.admit(now + line) == Some(0)).count() as u64;
        assert_eq!(written, LINES);
        assert_eq!(limit.admit(now + PERIOD_NS - 1), None);
        assert_eq!(limit.admit(now + PERIOD_NS), Some(1001 - LINES));
        assert_eq!(limit.admit(now + PERIOD_NS + 1), Some(0));
    }
}
