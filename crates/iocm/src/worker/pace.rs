//! What a worker does when it found nothing to do: a decision from figures alone.
//!
//! Three ways lead to the next request. To look again at once costs the CPU, but no time. To nap for a set time and look
//! then costs one timer for all requests that came meanwhile, and neither side's kicks; requests wait for it. To sleep
//! until a kick costs nothing when none comes, and a system call and a wake-up for each that does. So naps pay when
//! requests come faster than naps end; sleeping pays when they do not; looking again pays when the next request is nearer
//! than a wake-up takes.

/// What a worker does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// Looks, naps or sleeps by how often requests come.
    Adaptive {
        /// The longest nap, nanoseconds: the most that a request waits for one.
        nap_ns: u64,
    },
    /// Always looks again: for a core of its own.
    Always,
    /// Always sleeps until a kick.
    Never,
}

/// What a nap is at most, unless it is set.
pub(super) const USUAL_NAP_NS: u64 = 100_000;

impl Default for Polling {
    fn default() -> Self {
        Self::Adaptive { nap_ns: USUAL_NAP_NS }
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// Look at all queues again.
    Look,
    /// Sleep for so many nanoseconds, or until the kernel has answered something.
    Nap(u64),
    /// Sleep until a kick or an answer.
    Sleep,
}

/// A wake-up takes about so long, nanoseconds: while the next request is nearer, looking is cheaper.
const WAKE_UP_NS: u64 = 4_000;
/// A shorter nap is not worth its timer.
const SHORTEST_NAP_NS: u64 = 20_000;
/// So many requests a nap shall collect.
const BATCH: u64 = 16;
/// How long a rate is measured before it counts.
const WINDOW_NS: u64 = 500_000;

/// How often requests come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// When the present window began, nanoseconds.
    began: u64,
    /// Requests in it.
    requests: u64,
    /// Nanoseconds between two requests, smoothed; 0 while it is not known.
    gap: u64,
    /// When the last request was found.
    last: u64,
}

impl Pace {
    /// Takes note of requests that were found at `now`.
    pub(super) fn found(&mut self, requests: u64, now: u64) {
        self.last = now;
        if self.requests == 0 && now - self.began > WINDOW_NS * 4 {
            // What came before a rest says nothing.
            *self = Self { began: now, requests, gap: 0, last: now };
            return;
        }
        self.requests += requests;
        let passed = now - self.began;
        if passed >= WINDOW_NS {
            let gap = passed / self.requests.max(1);
            self.gap = if self.gap == 0 { gap } else { (self.gap * 3 + gap) / 4 };
            (self.began, self.requests) = (now, 0);
        }
    }

    /// What to do at `now`, when nothing was found.
    pub(super) fn idle(&self, polling: Polling, now: u64) -> Idle {
        let longest = match polling {
            Polling::Always => return Idle::Look,
            Polling::Never => return Idle::Sleep,
            Polling::Adaptive { nap_ns } => nap_ns,
        };
        // A nap that finds nothing several times over says that the rate is no longer what it was.
        let rested = now.saturating_sub(self.last);
        if self.gap == 0 || self.gap > longest || rested > longest.max(self.gap * 4) * 4 {
            return Idle::Sleep;
        }
        if rested < WAKE_UP_NS && self.gap < WAKE_UP_NS / 2 {
            return Idle::Look;
        }
        match (self.gap * BATCH).min(longest) {
            nap if nap < SHORTEST_NAP_NS && longest < SHORTEST_NAP_NS => Idle::Sleep,
            nap => Idle::Nap(nap.max(SHORTEST_NAP_NS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: Polling = Polling::Adaptive { nap_ns: USUAL_NAP_NS };

    /// Requests that come one every `gap` nanoseconds for a while; what is done between two of them.
    fn between(gap: u64, polling: Polling) -> (Pace, Idle, u64) {
        let mut pace = Pace::default();
        let mut now = 1_000_000_000;
        for _ in 0..20_000_000 / gap + 10 {
            now += gap;
            pace.found(1, now);
        }
        (pace, pace.idle(polling, now + gap / 2), now)
    }

    #[test]
    fn the_rate_decides() {
        assert_eq!(between(1_000, ADAPTIVE).1, Idle::Look);
        assert!(matches!(between(5_000, ADAPTIVE).1, Idle::Nap(79_000..=80_000)));
        assert_eq!(between(25_000, ADAPTIVE).1, Idle::Nap(100_000), "no longer than the longest");
        assert_eq!(
            between(200_000, ADAPTIVE).1,
            Idle::Sleep,
            "kicks are cheaper than naps that find nothing"
        );
        let short = Polling::Adaptive { nap_ns: 10_000 };
        assert_eq!(between(9_000, short).1, Idle::Sleep, "so short a nap is not worth its timer");
    }

    #[test]
    fn what_was_set_is_kept() {
        assert_eq!(between(200_000, Polling::Always).1, Idle::Look);
        assert_eq!(between(1_000, Polling::Never).1, Idle::Sleep);
    }

    #[test]
    fn it_falls_asleep_when_nothing_comes_any_more() {
        let (pace, _, now) = between(5_000, ADAPTIVE);
        assert!(matches!(pace.idle(ADAPTIVE, now + 200_000), Idle::Nap(_)));
        assert_eq!(pace.idle(ADAPTIVE, now + 500_000), Idle::Sleep);
        assert_eq!(Pace::default().idle(ADAPTIVE, 1), Idle::Sleep);
    }

    #[test]
    fn a_rest_makes_the_rate_unknown() {
        let (mut pace, _, now) = between(5_000, ADAPTIVE);
        pace.found(1, now + 1_000_000_000);
        pace.found(1, now + 2_000_000_000);
        assert_eq!(pace.idle(ADAPTIVE, now + 2_000_001_000), Idle::Sleep);
    }
}
