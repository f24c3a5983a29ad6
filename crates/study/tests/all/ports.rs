//! Ports for servers that cannot choose one themselves.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first of `count` consecutive ports that are free.
///
/// They are below those that Linux gives to connections, and to servers that ask for any port. So the servers, which
/// take them later, find them free. Tests that run at the same time, in one process or in several, begin at different ones.
pub(crate) fn free(count: u16) -> u16 {
    const FIRST: u32 = 20_000;
    const ALL: u32 = 12_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let given = GIVEN.fetch_add(count.into(), Ordering::Relaxed);
    let begin = (std::process::id() * 8 + given) % ALL;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (0..ALL)
        .map(|step| u16::try_from(FIRST + (begin + step) % ALL).unwrap())
        .find(|first| (0..count).all(|number| is_free(first + number)))
        .unwrap()
}
