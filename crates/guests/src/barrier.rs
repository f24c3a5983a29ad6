//! Simultaneous start of scripts in many guests.

use std::thread;
use std::time::Duration;

use super::{Armed, Finished, GuestError};

/// Releases all scripts at once: scripts that must be told beforehand ([`Armed::prepare`]) are told a common start time,
/// and the others are released at that time.
///
/// # Errors
/// If a guest cannot be reached; others may have been released.
pub fn release_together(armed: &mut [Box<dyn Armed>]) -> Result<(), GuestError> {
    release_by(armed, live::monotonic_ns, |ns| thread::sleep(Duration::from_nanos(ns)))
}

fn release_by(
    armed: &mut [Box<dyn Armed>],
    now_ns: impl Fn() -> u64,
    sleep_ns: impl FnOnce(u64),
) -> Result<(), GuestError> {
    let began_ns = now_ns();
    let leads: Result<Vec<Duration>, GuestError> = armed.iter_mut().map(|armed| armed.prepare()).collect();
    let lead = leads?.into_iter().max().unwrap_or_default();
    if !lead.is_zero() {
        // The last one must be told early enough too, so leave twice the time that telling all of them takes.
        let prepared_ns = now_ns();
        let telling_ns = (prepared_ns - began_ns) / 2;
        let at_ns = prepared_ns + telling_ns + u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
        armed.iter_mut().try_for_each(|armed| armed.agree(at_ns))?;
        sleep_ns(at_ns.saturating_sub(now_ns()));
    }
    armed.iter_mut().try_for_each(|armed| armed.release())
}

/// The time from the first script's start to the last one's; `None` for fewer than two.
pub fn skew(finished: &[Finished]) -> Option<Duration> {
    let began = finished.iter().map(|finished| finished.began_ns);
    let (first, last) = (began.clone().min()?, began.max()?);
    (finished.len() > 1).then(|| Duration::from_nanos(last - first))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::super::{Guest, HostGuest};
    use super::*;

    /// A script in a guest to which each request takes 100 ms of a clock.
    struct Distant {
        clock: Arc<AtomicU64>,
        told: Arc<AtomicU64>,
    }

    const REQUEST_NS: u64 = 100_000_000;
    const LEAD: Duration = Duration::from_millis(1);

    impl Armed for Distant {
        fn prepare(&mut self) -> Result<Duration, GuestError> {
            self.clock.fetch_add(5 * REQUEST_NS, Ordering::Relaxed);
            Ok(LEAD)
        }

        fn agree(&mut self, at_ns: u64) -> Result<(), GuestError> {
            let now_ns = self.clock.fetch_add(REQUEST_NS, Ordering::Relaxed) + REQUEST_NS;
            assert!(now_ns + 1_000_000 <= at_ns, "{now_ns} is too late for {at_ns}");
            let before = self.told.swap(at_ns, Ordering::Relaxed);
            assert!(before == 0 || before == at_ns);
            Ok(())
        }

        fn release(&mut self) -> Result<(), GuestError> {
            assert_eq!(self.clock.load(Ordering::Relaxed), self.told.load(Ordering::Relaxed));
            Ok(())
        }

        fn finish(self: Box<Self>, _stop: &AtomicBool) -> Result<Finished, GuestError> {
            unreachable!("nobody waits for it")
        }
    }

    #[test]
    fn the_last_of_many_guests_is_told_the_common_start_in_time() {
        for count in [1, 3, 32] {
            let (clock, told) = (Arc::new(AtomicU64::new(7)), Arc::new(AtomicU64::new(0)));
            let distant = || Distant { clock: Arc::clone(&clock), told: Arc::clone(&told) };
            let mut armed: Vec<_> = (0..count).map(|_| Box::new(distant()) as Box<dyn Armed>).collect();
            let now_ns = || clock.load(Ordering::Relaxed);
            let sleep_ns = |ns| {
                clock.fetch_add(ns, Ordering::Relaxed);
            };
            release_by(&mut armed, now_ns, sleep_ns).unwrap();
        }
    }

    #[test]
    fn guests_begin_together_however_long_arming_took() {
        let folder = tempfile::tempdir().unwrap();
        let arm = |index| {
            thread::sleep(Duration::from_millis(100));
            let mut guest = HostGuest::new(index, folder.path()).unwrap();
            guest.arm("true", Duration::from_secs(60)).unwrap()
        };
        let mut armed: Vec<_> = (0..3).map(arm).collect();
        release_together(&mut armed).unwrap();
        let finished: Vec<_> =
            armed.into_iter().map(|armed| armed.finish(&AtomicBool::new(false)).unwrap()).collect();
        // A busy machine may delay a script, but not by the 200 ms that preparing them took.
        assert!(skew(&finished).unwrap() < Duration::from_millis(180));
        assert_eq!(skew(&finished[..1]), None);
    }
}
