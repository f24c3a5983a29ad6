//! Ctrl-C, termination signals and the hang-up of the terminal: the work in progress stops and cleans up.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGTERM, TERM_SIGNALS};
use signal_hook::iterator::Signals;

use crate::console;

/// The signals that only other programs send, never the terminal's keys.
const SENT: [i32; 2] = [SIGHUP, SIGTERM];

/// A flag that is set by the first signal. The second one of those that the terminal's keys send (SIGINT, SIGQUIT) ends
/// the process at once.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let [stop, asked] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    for signal in signals() {
        // Those that programs send neither set `asked` nor end the process, because several may send one each, and
        // none of them asks to skip the cleanup: the kernel and the shell hang up, service managers and supervisors
        // send SIGTERM to a whole group, and sudo, timeout and other servers of the same study once more.
        if !SENT.contains(&signal) {
            let status = i32::from(crate::status::INTERRUPTED);
            signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&asked))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)))
                .context("Could not catch signals")?;
        }
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("Could not catch signals")?;
    }
    Ok(stop)
}

/// The same flag for studies, whose guests may take minutes to stop: after the first signal, a message says what happens.
pub(crate) fn answered_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = flag()?;
    let mut signals = Signals::new(signals()).context("Could not catch signals")?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            console::say(
                "Interrupted: stopping guests and undoing changes of the host; a second Ctrl-C ends this at once and \
                 leaves the rest as it is",
            );
        }
    });
    Ok(stop)
}

/// A flag that is set by the signals that the terminal's keys do not send.
pub(crate) fn sent() -> anyhow::Result<Arc<AtomicBool>> {
    let sent = Arc::new(AtomicBool::new(false));
    for signal in signals().into_iter().filter(|signal| SENT.contains(signal)) {
        signal_hook::flag::register(signal, Arc::clone(&sent)).context("Could not catch signals")?;
    }
    Ok(sent)
}

/// The signals that end the work: those of termination, and a hang-up unless it is ignored, as under nohup(1).
pub(crate) fn signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = TERM_SIGNALS.to_vec();
    if !is_ignored(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Tests whether a process ignores a signal, by its status in /proc.
fn is_ignored(status: &str, signal: i32) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    (set >> (signal - 1)) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_up_is_ignored_if_the_status_says_so() {
        for (set, ignored) in [("0000000000001001", true), ("0000000000001000", false), ("", false)] {
            let status = format!("Name:\texitless\nSigBlk:\t0000000000000001\nSigIgn:\t{set}\n");
            assert_eq!(is_ignored(&status, SIGHUP), ignored, "{set:?}");
        }
        assert!(!is_ignored("", SIGHUP));
    }
}
