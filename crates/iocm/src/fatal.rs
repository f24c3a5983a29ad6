//! Threads whose panic ends the daemon.
//!
//! A panic leaves things half done: a queue that nobody serves, or a ring whose buffers the kernel still writes to. So
//! the process aborts, and its supervisor starts the next one, which resubmits the requests in flight. A request that
//! caused it is not tried a third time ([`crate::queue::inflight`]).

use std::io;
use std::thread::{Builder, JoinHandle};

/// Ends the process when it is dropped by a panic.
struct Fatal;

impl Drop for Fatal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort("one of its threads panicked");
        }
    }
}

/// Ends the process without freeing anything that the kernel may still write to.
pub(crate) fn abort(why: &str) -> ! {
    // An error: the log may keep other lines for a thread that writes them later.
    tracing::error!("The I/O daemon ends: {why}");
    std::process::abort()
}

/// Starts a thread whose panic ends the process.
///
/// # Errors
/// When the kernel refuses a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(move || {
        let _fatal = Fatal;
        body()
    })
}
