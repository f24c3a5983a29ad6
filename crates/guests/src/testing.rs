//! The parts that tests of several channels to guests share.

use std::path::Path;
use std::time::{Duration, Instant};

/// A limit that no script here reaches.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Tests whether a process ends soon; a zombie counts as ended.
pub(crate) fn ends(pid: &str) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        match std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")) {
            Ok(stat) if !stat.contains(") Z ") => std::thread::sleep(Duration::from_millis(20)),
            _ => return true,
        }
    }
    false
}
