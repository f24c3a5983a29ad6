//! The end of an attempt by a signal or by its time limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use guests::Cut;

/// The interval at which to check for a signal and the limit.
const LOOK: Duration = Duration::from_millis(50);
/// The time after the limit, or a signal, at which guests are killed. Scripts get 5 s after SIGTERM and 5 s after SIGKILL; a call
/// that has not returned by then waits for a guest that does not respond.
const GRACE: Duration = Duration::from_secs(20);

/// A test for whether the time that an attempt has taken exceeds its limit.
pub(super) type IsPast<'a> = &'a (dyn Fn(Duration, Duration) -> bool + Sync);

/// The test of real attempts.
pub(super) fn is_past(taken: Duration, limit: Duration) -> bool {
    taken > limit
}

/// Watches one attempt.
pub(super) struct Watch<'a> {
    stop: &'a AtomicBool,
    limit: Duration,
    is_past: IsPast<'a>,
    grace: Duration,
    begun: Instant,
    ending: AtomicBool,
    overdue: AtomicBool,
    cuts: Mutex<Vec<Cut>>,
}

impl<'a> Watch<'a> {
    /// Prepares to watch an attempt that may take `limit`, and has to end when `stop` is set.
    pub(super) fn new(stop: &'a AtomicBool, limit: Duration, is_past: IsPast<'a>) -> Self {
        Self {
            stop,
            limit,
            is_past,
            grace: GRACE,
            begun: Instant::now(),
            ending: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
            cuts: Mutex::default(),
        }
    }

    /// The flag that is set when the attempt has to end; whoever waits for scripts polls it.
    pub(super) fn ending(&self) -> &AtomicBool {
        &self.ending
    }

    /// The limit, if it has expired.
    pub(super) fn overdue(&self) -> Option<Duration> {
        self.overdue.load(Ordering::Relaxed).then_some(self.limit)
    }

    /// Adds functions that kill guests, in case waiting for their scripts does not end.
    pub(super) fn cut_if_needed(&self, cuts: impl Iterator<Item = Cut>) {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner).extend(cuts);
    }

    /// Runs `act` under watch.
    pub(super) fn over<T>(&self, act: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            // Dropping the sender ends the thread, also if `act` panics.
            let (_at_work, over) = mpsc::channel::<()>();
            scope.spawn(move || self.follow(&over));
            act()
        })
    }

    fn follow(&self, over: &Receiver<()>) {
        let mut ending: Option<Instant> = None;
        while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if (self.is_past)(self.begun.elapsed(), self.limit) {
                self.overdue.store(true, Ordering::Relaxed);
            }
            if self.overdue.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed) {
                self.ending.store(true, Ordering::Relaxed);
                ending = ending.or_else(|| Some(Instant::now()));
            }
            if ending.is_some_and(|since| since.elapsed() > self.grace) {
                let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
                cuts.drain(..).for_each(|cut| cut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(80);

    fn wait(flag: &AtomicBool) {
        while !flag.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_limit_ends_what_looks_and_then_cuts_what_does_not() {
        let stop = AtomicBool::new(false);
        let watch = Watch { grace: SOON, ..Watch::new(&stop, SOON, &is_past) };
        let (cut, gone) = mpsc::channel();
        watch.cut_if_needed(std::iter::once(Box::new(move || cut.send(()).unwrap()) as Cut));
        watch.over(|| {
            wait(watch.ending());
            if gone.try_recv().is_ok() {
                // On a busy machine the grace may be over before this thread sees the flag.
                assert!(watch.begun.elapsed() > 2 * SOON, "it was cut off before it could end");
            } else {
                gone.recv().unwrap();
            }
        });
        assert_eq!(watch.overdue(), Some(SOON));
    }

    #[test]
    fn a_signal_ends_it_and_is_no_limit() {
        let stop = AtomicBool::new(true);
        let watch = Watch::new(&stop, Duration::from_secs(60), &is_past);
        watch.over(|| wait(watch.ending()));
        assert_eq!(watch.overdue(), None);
    }

    #[test]
    fn a_signal_cuts_what_does_not_look() {
        let stop = AtomicBool::new(false);
        let watch = Watch { grace: SOON, ..Watch::new(&stop, Duration::from_secs(3600), &is_past) };
        let (cut, gone) = mpsc::channel();
        watch.cut_if_needed(std::iter::once(Box::new(move || cut.send(()).unwrap()) as Cut));
        watch.over(|| {
            assert!(gone.recv_timeout(3 * SOON).is_err(), "it was cut off without a signal");
            stop.store(true, Ordering::Relaxed);
            gone.recv_timeout(Duration::from_secs(30)).unwrap();
        });
        assert_eq!(watch.overdue(), None);
    }

    #[test]
    fn what_ends_in_time_is_left_alone() {
        let stop = AtomicBool::new(false);
        let watch = Watch::new(&stop, Duration::from_secs(60), &is_past);
        assert_eq!(watch.over(|| 5), 5);
        assert!(!watch.ending().load(Ordering::Relaxed));
    }
}
