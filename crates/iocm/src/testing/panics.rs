//! A panic that a guest can provoke if a test allows it.

use std::sync::atomic::{AtomicBool, Ordering};

/// The type of requests on which a worker panics once [`let_requests_panic`] was called.
pub const PANICS: u32 = 0xdead_0001;

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Enables panics on requests of the type [`PANICS`] in this process.
pub fn let_requests_panic() {
    ENABLED.store(true, Ordering::Relaxed);
}

/// Panics on a request of that type if this was enabled. Debug builds only.
#[cfg(debug_assertions)]
pub(crate) fn panic_if_enabled(kind: u32) {
    assert!(kind != PANICS || !ENABLED.load(Ordering::Relaxed), "a test wants this worker to panic");
}
