//! Simultaneous start of scripts in many guests.

use std::thread;
use std::time::Duration;

use super::{Armed, Finished, GuestError};

/// Releases all scripts at once: scripts with an [`Armed::lead`] are told a common start time, and the others are
/// released at that time.
///
/// # Errors
/// If a guest cannot be reached; others may have been released.
pub fn release_together(armed: &mut [Box<dyn Armed>]) -> Result<(), GuestError> {
    let lead = armed.iter().map(|armed| armed.lead()).max().unwrap_or_default();
    if !lead.is_zero() {
        let at_ns = live::monotonic_ns() + u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
        armed.iter_mut().try_for_each(|armed| armed.agree(at_ns))?;
        thread::sleep(Duration::from_nanos(at_ns.saturating_sub(live::monotonic_ns())));
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
    use std::sync::atomic::AtomicBool;

    use super::super::{Guest, HostGuest};
    use super::*;

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
