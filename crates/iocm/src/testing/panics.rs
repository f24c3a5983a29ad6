//! A panic that a guest can provoke, where a test says so.

use std::sync::atomic::{AtomicBool, Ordering};

/// A kind of request for which a worker panics once [`let_requests_panic`] was called.
pub const PANICS: u32 = 0xdead_0001;

static ARMED: AtomicBool = AtomicBool::new(false);

/// Lets requests of the kind [`PANICS`] do what they are for, in this process.
pub fn let_requests_panic() {
    ARMED.store(true, Ordering::Relaxed);
}

/// Panics if it is to; not in builds without the checks of a debug build.
#[cfg(debug_assertions)]
pub(crate) fn panic_if_armed(kind: u32) {
    assert!(kind != PANICS || !ARMED.load(Ordering::Relaxed), "a test wants this worker to panic");
}
