//! Parts that the tests of several channels share.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::{GuestError, Patience};

/// A limit that no script here reaches.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// This limit, with a flag that nobody sets.
pub(crate) fn patience(limit: Duration) -> Patience<'static> {
    static GO_ON: AtomicBool = AtomicBool::new(false);
    Patience { limit, ending: &GO_ON }
}

/// Runs a script that writes its process ID to `pid` and then runs until a limit ends it, and returns the ID. On a busy
/// machine a short limit may expire before the script has begun; then tries longer ones.
pub(crate) fn beyond_limits(pid: &Path, mut run: impl FnMut(Duration) -> GuestError) -> String {
    let found = [500, 5_000, 50_000].into_iter().find_map(|limit| {
        let refusal = run(Duration::from_millis(limit));
        assert!(matches!(refusal, GuestError::Limit { .. }), "{refusal}");
        std::fs::read_to_string(pid).ok().filter(|pid| pid.ends_with('\n'))
    });
    found.expect("the script never began")
}

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
