//! Looking at another process, which can hold whoever looks.
//!
//! The kernel reads some files of `/proc/PID` (`stat`, `cmdline`, `exe`, the links in `fd`, and others) under locks that
//! the process holds while it unmaps memory or runs another program (`mmap_lock`, `exec_update_lock`). Where that memory
//! is a file of a FUSE whose server does not answer, both last as long as its owner likes, and so does a read beside them.
//! A file that a process names or maps can lie on such a file system too.
//!
//! So a thread looks, and is left behind when it does not come back. All these waits end with the signal that kills, so
//! the thread keeps nobody from ending. A user may have any number of such processes: how long is waited for those of one
//! user, and how many threads are left behind, has a bound.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;
/// So many threads that did not come back are left at most.
const MOST_LEFT: u32 = 64;
/// A look that takes no longer than this is a busy machine's, and not held against a user.
const NOTICED: Duration = Duration::from_millis(100);
/// So much of each look is held against nobody: a host may have ten thousand processes.
const FREE: Duration = Duration::from_millis(10);
/// The time after which a wait is forgotten.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The time that is waited.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For one look.
    once: Duration,
    /// For all looks at processes of one user, in [`REMEMBERED`].
    user: Duration,
    /// For all looks, in [`REMEMBERED`].
    all: Duration,
}

/// Reading what the kernel says of a process takes microseconds.
const FILES: Patience =
    Patience { once: Duration::from_secs(1), user: Duration::from_secs(3), all: Duration::from_secs(30) };
/// Reading a program of some hundred megabytes from a disk takes a while.
const PROGRAMS: Patience =
    Patience { once: Duration::from_secs(10), user: Duration::from_secs(20), all: Duration::from_secs(60) };

static LOOKS: Looks = Looks::new(FILES);
static LOOKS_AT_PROGRAMS: Looks = Looks::new(PROGRAMS);

/// Does `work`, which reads what the kernel says of the process whose folder in `/proc` is `home`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] when that takes longer than a second, and at once when the process holds an earlier look
/// still, or its user's processes have held several.
pub fn look<T: Send + 'static>(home: &Path, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    LOOKS.look(home, work)
}

/// The same with more time, for files that the process names or maps.
///
/// # Errors
/// As of [`look`], after ten seconds.
pub fn look_at_files<T: Send + 'static>(
    home: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    LOOKS_AT_PROGRAMS.look(home, work)
}

/// Reads `home/name`, which the kernel makes; it is cut after `most` bytes.
///
/// # Errors
/// As of [`look`], and of open(2) and read(2).
pub fn look_into(home: &Path, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let path = home.join(name);
    look(home, move || crate::read_start(&path, most))?
}

#[derive(Debug)]
struct Looks {
    patience: Patience,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    /// The time waited for processes of each user, in looks that took long.
    users: HashMap<u32, Duration>,
    all: Duration,
    /// Processes that hold looks, and how many.
    held: HashMap<PathBuf, u32>,
}

impl State {
    fn new() -> Self {
        Self { since: Instant::now(), users: HashMap::new(), all: Duration::ZERO, held: HashMap::new() }
    }

    fn let_go(&mut self, home: &Path) {
        if let Some(number) = self.held.get_mut(home) {
            *number -= 1;
            if *number == 0 {
                self.held.remove(home);
            }
        }
    }
}

impl Looks {
    const fn new(patience: Patience) -> Self {
        Self { patience, state: Mutex::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tests whether a look at a user's process may begin, with what was waited so far.
    fn may_begin(&self, home: &Path, user: u32) -> bool {
        let mut state = self.state();
        let state = state.get_or_insert_with(State::new);
        if state.since.elapsed() > REMEMBERED {
            state.since = Instant::now();
            state.users.clear();
            state.all = Duration::ZERO;
        }
        if state.held.contains_key(home) || state.all >= self.patience.all {
            return false;
        }
        if state.held.values().sum::<u32>() >= MOST_LEFT {
            return false;
        }
        state.users.get(&user).is_none_or(|waited| *waited < self.patience.user)
    }

    fn look<T: Send + 'static>(
        &'static self,
        home: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        // Before the look: a process that is gone afterwards would be root's.
        let user = user_of(home);
        if !self.may_begin(home, user) {
            return Err(io::Error::from_raw_os_error(TIMED_OUT));
        }
        let begun = Instant::now();
        let (sender, receiver) = sync_channel(1);
        let is_left = Arc::new(AtomicBool::new(false));
        let (left, place) = (Arc::clone(&is_left), home.to_owned());
        let looking = move || {
            let done = work();
            let mut state = self.state();
            // Nobody waits any more where it was left.
            let _ = sender.send(done);
            if let Some(state) = state.as_mut().filter(|_| left.load(Ordering::Relaxed)) {
                state.let_go(&place);
            }
        };
        let thread = std::thread::Builder::new().name("look".to_owned()).spawn(looking)?;
        let found = receiver.recv_timeout(self.patience.once);
        if !matches!(found, Err(RecvTimeoutError::Timeout)) {
            // It has nothing left to wait for, and a thread that ends by itself looks like a leak to the sanitizers.
            let _ = thread.join();
        }
        let mut state = self.state();
        let state = state.get_or_insert_with(State::new);
        let waited = begun.elapsed();
        state.all += waited.saturating_sub(FREE);
        if waited > NOTICED {
            *state.users.entry(user).or_default() += waited;
        }
        match found {
            Ok(found) => Ok(found),
            // What it found in the last moment is there now, for it holds the state while it tells that.
            Err(RecvTimeoutError::Timeout) => receiver.try_recv().map_err(|_| {
                is_left.store(true, Ordering::Relaxed);
                *state.held.entry(home.to_owned()).or_default() += 1;
                io::Error::from_raw_os_error(TIMED_OUT)
            }),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the look at a process failed")),
        }
    }
}

/// The user that a process belongs to: who started it, for its folder may belong to root. Of one that is gone, root.
///
/// The kernel makes this file without any lock of the process.
fn user_of(home: &Path) -> u32 {
    let status = std::fs::read(home.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const SHORT: Patience = Patience {
        once: Duration::from_millis(200),
        user: Duration::from_millis(500),
        all: Duration::from_secs(3600),
    };

    /// A made-up `/proc` with processes of the users given, numbered from 0.
    fn processes(users: &[u32]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for (number, user) in users.iter().enumerate() {
            let home = proc.path().join(number.to_string());
            std::fs::create_dir(&home).unwrap();
            std::fs::write(home.join("status"), format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n")).unwrap();
        }
        proc
    }

    #[test]
    fn who_holds_a_look_is_left_and_not_looked_at_until_it_lets_go() {
        static LOOKS: Looks = Looks::new(SHORT);
        let proc = processes(&[7, 8]);
        let home = proc.path().join("0");
        let (let_go, held) = channel::<()>();
        let begun = Instant::now();
        let error = LOOKS.look(&home, move || held.recv()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= SHORT.once, "{:?}", begun.elapsed());
        assert_eq!(LOOKS.look(&proc.path().join("1"), || 5).unwrap(), 5);
        // Not begun, so it takes no time.
        let error = LOOKS.look(&home, || unreachable!("it is held")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let_go.send(()).unwrap();
        while LOOKS.look(&home, || 6).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_user_whose_processes_hold_many_looks_hides_nobody_elses() {
        static LOOKS: Looks = Looks::new(SHORT);
        let mut users = [7; 40];
        users[39] = 8;
        let proc = processes(&users);
        let mut holders = Vec::new();
        let looks = |number: usize| proc.path().join(number.to_string());
        let begun = (0..39)
            .filter(|number| {
                let (holder, held) = channel::<()>();
                holders.push(holder);
                let (told, begun) = channel();
                let error = LOOKS
                    .look(&looks(*number), move || {
                        let _ = told.send(());
                        held.recv()
                    })
                    .unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                begun.try_recv().is_ok()
            })
            .count();
        // Each takes 200 ms or more, and those of one user 500 ms together.
        assert!((1..=3).contains(&begun), "{begun}");
        assert_eq!(LOOKS.look(&looks(39), || 5).unwrap(), 5);
    }

    #[test]
    fn a_look_that_fails_is_an_error_and_this_process_can_be_looked_into() {
        static LOOKS: Looks = Looks::new(SHORT);
        let home = Path::new("/proc/self");
        let error = LOOKS.look(home, || panic!("as this test wants")).map(|()| 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(!look_into(home, "cmdline", 1 << 20).unwrap().is_empty());
        assert_eq!(look_into(home, "stat", 3).unwrap().len(), 3);
        assert_eq!(look_into(home, "none", 3).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
