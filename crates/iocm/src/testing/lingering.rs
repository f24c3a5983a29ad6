//! Descriptors that block whoever closes them.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A TCP socket that may linger for an hour over data that its peer does not take, and the peer.
///
/// # Panics
/// When the kernel refuses the sockets.
#[must_use]
pub fn lingering_socket() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let (peer, _) = listener.accept().expect("its other end");
    let hour = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&stream, hour).expect("a socket that lingers");
    stream.set_nonblocking(true).expect("a socket that does not block");
    while stream.write(&[0; 1 << 16]).is_ok() {}
    (stream, peer)
}
