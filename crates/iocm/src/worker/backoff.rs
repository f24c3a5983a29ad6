//! Polling and back-off: the decision of a worker that found nothing to do, from figures alone.
//!
//! There are three ways to the next request. Polling again costs the CPU, but no time. A nap of a set length costs one
//! timer for all requests that arrive meanwhile, and no kicks; but requests wait for it. Sleeping until a kick costs
//! nothing while none arrives, and a system call and a wake-up for each that does. So naps pay when requests arrive
//! faster than naps end, sleeping pays when they do not, and polling pays when the next request is nearer than a
//! wake-up takes.

/// The polling mode of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// Polls, naps or sleeps, depending on the rate of requests.
    Adaptive {
        /// The longest nap, nanoseconds: the most that a request waits for one.
        nap_ns: u64,
    },
    /// Always polls: for a worker with a core of its own.
    Always,
    /// Always sleeps until a kick.
    Never,
}

/// The default for the longest nap: long enough that naps halve the cost of a request at some ten thousand requests a
/// second, short enough that the slowest hundredth of requests waits no longer than for a thread of its own.
pub const DEFAULT_NAP_NS: u64 = 60_000;

impl Default for Polling {
    fn default() -> Self {
        Self::Adaptive { nap_ns: DEFAULT_NAP_NS }
    }
}

/// The next step of an idle worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// Poll all queues again.
    Poll,
    /// Sleep for this many nanoseconds, or until a completion.
    Nap(u64),
    /// Sleep until a kick or a completion.
    Sleep,
}

/// The time of a wake-up, nanoseconds: while the next request is nearer, polling is cheaper.
const WAKE_UP_NS: u64 = 4_000;
/// A shorter nap is not worth its timer.
const SHORTEST_NAP_NS: u64 = 20_000;
/// The number of requests that a nap should collect.
const BATCH: u64 = 16;
/// The time over which a rate is measured.
const WINDOW_NS: u64 = 5_000_000;
/// The number of windows after which naps are tried or checked again, at least and at most.
const HOLD_WINDOWS: std::ops::RangeInclusive<u32> = 2..=256;

/// The way in which a worker waits for requests.
///
/// A guest that waits for its answers before it submits more is slowed down by naps, and its rate alone does not show
/// it, because the naps shape the rate. So naps are tried, and kept only if the rate does not fall; and they are left
/// out for a moment now and then, to see that it would not rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitBy {
    /// By kicks, for this many windows.
    Kicks(u32),
    /// By naps on trial; the gap before the trial.
    Trying(u64),
    /// By naps, for this many windows.
    Naps(u32),
    /// By kicks on trial; the gap with naps.
    Checking(u64),
}

/// The rate of requests, and the way in which they are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    way: WaitBy,
    /// The number of windows for which the next decision holds.
    hold: u32,
    /// The start of the present window, nanoseconds.
    began: u64,
    /// The requests in it.
    requests: u64,
    /// Nanoseconds between two requests in the last window; 0 while unknown.
    gap: u64,
    /// The time of the last request.
    last: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        let hold = *HOLD_WINDOWS.start();
        Self { way: WaitBy::Kicks(hold), hold, began: 0, requests: 0, gap: 0, last: 0 }
    }
}

impl Backoff {
    /// Counts requests that were found at `now`.
    pub(super) fn found(&mut self, requests: u64, now: u64) {
        if now.saturating_sub(self.last) > WINDOW_NS {
            // The rate before a rest says nothing about the one after it.
            *self = Self { began: now, requests, last: now, ..Self::default() };
            return;
        }
        self.last = now;
        self.requests += requests;
        let passed = now - self.began;
        if passed >= WINDOW_NS {
            self.gap = passed / self.requests.max(1);
            (self.began, self.requests) = (now, 0);
            self.decide();
        }
    }

    /// Decides at the end of a window, by the rates with and without naps.
    fn decide(&mut self) {
        let longer = (self.hold * 2).min(*HOLD_WINDOWS.end());
        // Rates over so short a time vary by chance; those that depend on naps differ by far more.
        let is_faster = |gap: u64, than: u64| gap * 5 < than * 4;
        (self.way, self.hold) = match self.way {
            WaitBy::Kicks(0) => (WaitBy::Trying(self.gap), self.hold),
            WaitBy::Kicks(left) => (WaitBy::Kicks(left - 1), self.hold),
            WaitBy::Naps(0) => (WaitBy::Checking(self.gap), self.hold),
            WaitBy::Naps(left) => (WaitBy::Naps(left - 1), self.hold),
            WaitBy::Trying(before) if is_faster(before, self.gap) => (WaitBy::Kicks(longer), longer),
            WaitBy::Checking(before) if is_faster(self.gap, before) => {
                (WaitBy::Kicks(*HOLD_WINDOWS.start()), *HOLD_WINDOWS.start())
            }
            WaitBy::Trying(_) | WaitBy::Checking(_) => (WaitBy::Naps(longer), longer),
        };
    }

    /// The next step at `now`, when nothing was found.
    pub(super) fn idle(&self, polling: Polling, now: u64) -> Idle {
        let longest = match polling {
            Polling::Always => return Idle::Poll,
            Polling::Never => return Idle::Sleep,
            Polling::Adaptive { nap_ns } => nap_ns,
        };
        let rested = now.saturating_sub(self.last);
        if self.gap == 0 {
            return Idle::Sleep;
        }
        if rested < WAKE_UP_NS && self.gap < WAKE_UP_NS / 2 {
            return Idle::Poll;
        }
        // If several naps find nothing, the rate has changed.
        let is_over = self.gap > longest || rested > longest.max(self.gap * 4) * 4;
        match (self.gap * BATCH).clamp(SHORTEST_NAP_NS, longest.max(SHORTEST_NAP_NS)) {
            nap if nap <= longest && !is_over && matches!(self.way, WaitBy::Trying(_) | WaitBy::Naps(_)) => {
                Idle::Nap(nap)
            }
            _ => Idle::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: Polling = Polling::Adaptive { nap_ns: DEFAULT_NAP_NS };

    /// Plays a load: `next` gives the time of the next requests after those at `now`, and their number.
    fn play(polling: Polling, next: impl Fn(u64, Idle) -> (u64, u64)) -> (Backoff, u64, [u64; 3]) {
        let mut backoff = Backoff::default();
        let (mut now, mut found, mut ways) = (1_000_000_000, 1, [0; 3]);
        while now < 3_000_000_000 {
            backoff.found(found, now);
            let idle = backoff.idle(polling, now + 100);
            ways[match idle {
                Idle::Poll => 0,
                Idle::Nap(_) => 1,
                Idle::Sleep => 2,
            }] += 1;
            (now, found) = next(now, idle);
        }
        (backoff, now, ways)
    }

    /// Requests that arrive every `gap` nanoseconds, however long earlier ones take.
    fn open(gap: u64) -> impl Fn(u64, Idle) -> (u64, u64) {
        move |now, idle| match idle {
            Idle::Nap(ns) if ns > gap => (now + ns, ns / gap),
            _ => (now + gap, 1),
        }
    }

    /// A guest that submits the next `depth` requests as soon as it has the answers.
    fn closed(depth: u64, turn: u64) -> impl Fn(u64, Idle) -> (u64, u64) {
        move |now, idle| match idle {
            Idle::Nap(ns) => (now + ns.max(turn), depth),
            _ => (now + turn, depth),
        }
    }

    #[test]
    fn the_rate_of_an_open_load_decides() {
        let mostly = |gap| {
            let (_, _, ways) = play(ADAPTIVE, open(gap));
            ways.iter().position(|count| count == ways.iter().max().unwrap()).unwrap()
        };
        assert_eq!(mostly(1_000), 0, "it is looked again at once");
        assert_eq!(mostly(200_000), 2, "kicks are cheaper than naps that find nothing");
        let (backoff, now, ways) = play(ADAPTIVE, open(25_000));
        assert!(matches!(backoff.way, WaitBy::Naps(_) | WaitBy::Checking(_)));
        assert!(ways[1] * DEFAULT_NAP_NS > 1_500_000_000, "most of the time is napped: {ways:?}");
        assert!(
            !matches!(backoff.idle(ADAPTIVE, now), Idle::Nap(nap) if nap > DEFAULT_NAP_NS),
            "no longer than the longest"
        );
    }

    #[test]
    fn a_guest_that_waits_for_its_answers_is_not_made_to_wait_for_naps() {
        for (depth, turn) in [(1, 12_000), (4, 20_000)] {
            let (_, _, ways) = play(ADAPTIVE, closed(depth, turn));
            assert!(ways[2] * turn > 1_700_000_000, "depth {depth}: {ways:?}");
        }
    }

    #[test]
    fn what_was_set_is_kept() {
        assert_eq!(play(Polling::Always, open(200_000)).2[1..], [0, 0]);
        assert_eq!(play(Polling::Never, open(1_000)).2[..2], [0, 0]);
        let short = Polling::Adaptive { nap_ns: 10_000 };
        assert_eq!(play(short, open(9_000)).2[1], 0, "so short a nap is not worth its timer");
    }

    #[test]
    fn it_falls_asleep_when_nothing_comes_any_more() {
        let (mut backoff, now, _) = play(ADAPTIVE, open(5_000));
        backoff.way = WaitBy::Naps(9);
        assert!(matches!(backoff.idle(ADAPTIVE, now + DEFAULT_NAP_NS), Idle::Nap(_)));
        assert_eq!(backoff.idle(ADAPTIVE, now + 500_000), Idle::Sleep);
        assert_eq!(Backoff::default().idle(ADAPTIVE, 1), Idle::Sleep);
        backoff.found(1, now + 1_000_000_000);
        assert_eq!(backoff.way, WaitBy::Kicks(2), "a rest makes the rate unknown");
    }
}
