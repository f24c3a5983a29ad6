//! Connections to programs that have just been started.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects to a socket as soon as somebody listens.
///
/// # Errors
/// That of connect(2) when the time limit has passed.
pub fn connect_within(limit: Duration, socket: &Path) -> io::Result<UnixStream> {
    let end = Instant::now() + limit;
    loop {
        match UnixStream::connect(socket) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            connected => return connected,
        }
    }
}
