//! Ctrl-C and termination signals: the work in progress stops and cleans up.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use signal_hook::consts::TERM_SIGNALS;

/// A flag that is set by the first signal; the second one ends the process at once.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        let status = i32::from(crate::status::INTERRUPTED);
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("Could not catch signals")?;
    }
    Ok(stop)
}
