//! Reading from `/proc/PID` of a process that can block its readers.
//!
//! The kernel reads some files of `/proc/PID` (`stat`, `cmdline`, `exe`, the links in `fd`, and others) under locks
//! that the process holds while it unmaps memory or executes another program (`mmap_lock`, `exec_update_lock`). If that
//! memory maps a file of a FUSE server that does not answer, the process keeps the lock for as long as its owner likes,
//! and every reader blocks with it. A file that a process names or maps can also be on such a file system.
//!
//! So a thread does the reading, and is abandoned if it does not return in time. The waits for these locks are killable,
//! so a thread that is abandoned there does not keep this process from exiting. (A wait for a FUSE server is not killable
//! once the server has taken the request.) A user may have any number of such processes, so there are limits on the time
//! spent on the processes of one user and on the number of abandoned threads. Such a thread may never return, so a user
//! has only a small part of that number.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;
/// The most abandoned threads at a time.
const MOST_LEFT: u32 = 128;
/// The most abandoned threads at a time for processes of one user.
const MOST_LEFT_OF_USER: u32 = 8;
/// Looks up to this long do not count as slow: a busy machine may interrupt them.
const NOTICED: Duration = Duration::from_millis(100);
/// The part of each look that does not count towards the limit for all: a host may have ten thousand processes.
const FREE: Duration = Duration::from_millis(10);
/// The time for all, divided by this, is that for the processes of one user. So no user can use it up, neither by looks
/// that are not slow nor with subordinate user IDs, which have a share of their own.
const SHARES: u32 = 3;
/// The period after which the time limits start anew.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The limit of subuid(5), in bytes.
const LONGEST_SUBUID: u64 = 1 << 20;

/// Time limits of looks.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Of one look.
    once: Duration,
    /// Of all slow looks at processes of one user, in [`REMEMBERED`].
    user: Duration,
    /// Of all looks, in [`REMEMBERED`].
    all: Duration,
}

/// The kernel answers reads of `/proc/PID` in microseconds.
const FILES: Patience =
    Patience { once: Duration::from_secs(1), user: Duration::from_secs(3), all: Duration::from_secs(30) };
/// An executable can have hundreds of megabytes, which a disk reads in seconds.
const PROGRAMS: Patience =
    Patience { once: Duration::from_secs(10), user: Duration::from_secs(20), all: Duration::from_secs(60) };

static LOOKS: Looks = Looks::new(FILES);
static LOOKS_AT_PROGRAMS: Looks = Looks::new(PROGRAMS);

/// Runs `work`, which reads about the process whose directory in `/proc` is `home`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if that takes longer than a second; immediately if an earlier look at the process still
/// blocks, or if the time for its user's processes or for all is used up.
pub fn look<T: Send + 'static>(home: &Path, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    LOOKS.look(home, work)
}

/// Runs `work` as [`look`] does, with more time, for files that the process names or maps.
///
/// # Errors
/// Those of [`look`], after ten seconds.
pub fn look_at_files<T: Send + 'static>(
    home: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    LOOKS_AT_PROGRAMS.look(home, work)
}

/// Reads the first `most` bytes of `home/name` in procfs.
///
/// # Errors
/// Those of [`look`], open(2) and read(2).
pub fn look_into(home: &Path, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let path = home.join(name);
    look(home, move || crate::read_start(&path, most))?
}

/// Runs `work`, in which all looks of this thread share a thread, until one does not return in time: starting a thread
/// costs more than most looks, and a search for VMs looks at each process of the host.
pub fn many_looks<T>(work: impl FnOnce() -> T) -> T {
    /// Ends the thread also if `work` panics.
    struct Sharing;

    impl Drop for Sharing {
        fn drop(&mut self) {
            let worker = SHARED.with_borrow_mut(|shared| {
                shared.depth -= 1;
                shared.worker.take_if(|_| shared.depth == 0)
            });
            if let Some(worker) = worker {
                worker.end();
            }
        }
    }

    SHARED.with_borrow_mut(|shared| shared.depth += 1);
    let _sharing = Sharing;
    work()
}

/// A thread that does looks, one after the other.
#[derive(Debug)]
struct Worker {
    looks: Sender<Box<dyn FnOnce() + Send>>,
    thread: JoinHandle<()>,
}

/// The thread for the looks of [`many_looks`].
#[derive(Debug)]
struct Shared {
    /// The number of calls of [`many_looks`] that have not returned.
    depth: u32,
    /// `None` before the first look, and during looks.
    worker: Option<Worker>,
}

thread_local! {
    static SHARED: RefCell<Shared> = const { RefCell::new(Shared { depth: 0, worker: None }) };
}

impl Worker {
    /// A thread that has nothing to do.
    fn idle() -> io::Result<Self> {
        if let Some(worker) = SHARED.with_borrow_mut(|shared| shared.worker.take()) {
            return Ok(worker);
        }
        let (looks, received) = channel::<Box<dyn FnOnce() + Send>>();
        let work = move || received.into_iter().for_each(|look| look());
        let thread = std::thread::Builder::new().name("look".to_owned()).spawn(work)?;
        Ok(Self { looks, thread })
    }

    /// After its look: keeps the thread for the next one, or ends it.
    fn release(self) {
        let unneeded = SHARED.with_borrow_mut(|shared| match shared.depth {
            0 => Some(self),
            _ => shared.worker.replace(self),
        });
        if let Some(worker) = unneeded {
            worker.end();
        }
    }

    fn end(self) {
        drop(self.looks);
        // It exits now; the leak sanitizer would report a thread that was not joined.
        let _ = self.thread.join();
    }
}

#[derive(Debug)]
struct Looks {
    patience: Patience,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    users: HashMap<u32, Waited>,
    /// The time of all looks, without [`FREE`].
    all: Duration,
    /// `None` until it is read.
    subordinate: Option<SubordinateIds>,
    /// The processes that block looks.
    held: HashMap<PathBuf, Held>,
}

/// The time of looks at the processes of a user.
#[derive(Debug, Default)]
struct Waited {
    /// Of slow looks.
    slow: Duration,
    /// Of all looks, without [`FREE`].
    all: Duration,
}

/// The abandoned looks of a process.
#[derive(Debug)]
struct Held {
    user: u32,
    number: u32,
}

impl State {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            users: HashMap::new(),
            all: Duration::ZERO,
            subordinate: None,
            held: HashMap::new(),
        }
    }

    fn charge(&mut self, user: u32, waited: Duration) {
        let counted = waited.saturating_sub(FREE);
        self.all += counted;
        let of_user = self.users.entry(user).or_default();
        of_user.all += counted;
        if waited > NOTICED {
            of_user.slow += waited;
        }
    }

    fn let_go(&mut self, home: &Path) {
        if let Some(held) = self.held.get_mut(home) {
            held.number -= 1;
            if held.number == 0 {
                self.held.remove(home);
            }
        }
    }

    /// The number of abandoned looks at the processes of these users.
    fn left(&self, is_meant: impl Fn(u32) -> bool) -> u32 {
        self.held.values().filter(|held| is_meant(held.user)).map(|held| held.number).sum()
    }
}

impl Looks {
    const fn new(patience: Patience) -> Self {
        Self { patience, state: Mutex::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tests whether the time limits allow another look at a user's process.
    fn may_begin(&self, home: &Path, user: u32) -> bool {
        let mut state = self.state();
        let state = state.get_or_insert_with(State::new);
        if state.since.elapsed() > REMEMBERED {
            state.since = Instant::now();
            state.users.clear();
            state.all = Duration::ZERO;
            state.subordinate = None;
        }
        if state.held.contains_key(home) || state.all >= self.patience.all {
            return false;
        }
        if state.left(|other| other == user) >= MOST_LEFT_OF_USER || state.left(|_| true) >= MOST_LEFT {
            return false;
        }
        let (slow, share) = (self.patience.user, self.patience.all / SHARES);
        state.users.get(&user).is_none_or(|waited| waited.slow < slow && waited.all < share)
    }

    /// The user to whom a look at a process is charged: for a subordinate user ID the one who has it.
    fn charged(&self, home: &Path) -> u32 {
        let user = user_of(home);
        let mut state = self.state();
        let state = state.get_or_insert_with(State::new);
        state.subordinate.get_or_insert_with(|| SubordinateIds::read(home)).owner(user)
    }

    fn look<T: Send + 'static>(
        &'static self,
        home: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        // Before the look: if the process exits during it, its user can no longer be read.
        let user = self.charged(home);
        if !self.may_begin(home, user) {
            return Err(io::Error::from_raw_os_error(TIMED_OUT));
        }
        let (begin, begun) = channel();
        let (sender, receiver) = sync_channel(1);
        let is_left = Arc::new(AtomicBool::new(false));
        let (left, place) = (Arc::clone(&is_left), home.to_owned());
        let looking = move || {
            let _ = begin.send(());
            let started = Instant::now();
            let done = catch_unwind(AssertUnwindSafe(work));
            let took = started.elapsed();
            let mut state = self.state();
            if let Ok(done) = done {
                // Fails if the caller has given up and dropped the receiver.
                let _ = sender.send((done, took));
            }
            drop(sender);
            if let Some(state) = state.as_mut().filter(|_| left.load(Ordering::Relaxed)) {
                state.let_go(&place);
            }
        };
        let worker = Worker::idle()?;
        // Fails only if the thread has ended, and then the receiver says so.
        let _ = worker.looks.send(Box::new(looking));
        // On a busy machine it takes long until the thread runs and until its result is taken. The process is not to
        // blame for that: it may be one of hundreds of VMs that run as the same user.
        let _ = begun.recv();
        let begun = Instant::now();
        let found = receiver.recv_timeout(self.patience.once);
        if !matches!(found, Err(RecvTimeoutError::Timeout)) {
            worker.release();
        }
        let mut state = self.state();
        let state = state.get_or_insert_with(State::new);
        // The thread sends with the state locked, so a result that came at the last moment is here by now.
        let found = found.or_else(|_| receiver.try_recv());
        let took = found.as_ref().map_or_else(|_| begun.elapsed(), |(_, took)| *took);
        state.charge(user, took);
        found.map(|(done, _)| done).map_err(|error| match error {
            TryRecvError::Empty => {
                is_left.store(true, Ordering::Relaxed);
                state.held.entry(home.to_owned()).or_insert(Held { user, number: 0 }).number += 1;
                io::Error::from_raw_os_error(TIMED_OUT)
            }
            TryRecvError::Disconnected => io::Error::other("the look at a process failed"),
        })
    }
}

/// The real user ID of a process, from `status`: its directory may belong to root. For a process that is gone, root.
///
/// The kernel needs no lock of the process for this file.
fn user_of(home: &Path) -> u32 {
    let status = std::fs::read(home.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The user IDs as which users may run processes besides their own, from subuid(5): each of its users can run each process
/// under another ID, with newuidmap(1).
#[derive(Debug)]
struct SubordinateIds(Vec<Range>);

#[derive(Debug)]
struct Range {
    first: u32,
    last: u32,
    /// The first ID of the first range of the same user, which stands for the user: names would have to be looked up.
    owner: u32,
}

impl SubordinateIds {
    /// Those of the host with this process.
    fn read(home: &Path) -> Self {
        let root = home.ancestors().nth(2).unwrap_or(Path::new("/"));
        let text = crate::read_start(&root.join("etc/subuid"), LONGEST_SUBUID).unwrap_or_default();
        Self::of(&String::from_utf8_lossy(&text))
    }

    /// Of lines `USER:FIRST:COUNT`.
    fn of(text: &str) -> Self {
        let mut owners: HashMap<&str, u32> = HashMap::new();
        let mut ranges = Vec::new();
        for line in text.lines() {
            let mut fields = line.trim().split(':');
            let user = fields.next().unwrap_or_default();
            let mut number = || fields.next()?.parse::<u32>().ok();
            let (Some(first), Some(count)) = (number(), number()) else { continue };
            let Some(more) = count.checked_sub(1) else { continue };
            let owner = *owners.entry(user).or_insert(first);
            ranges.push(Range { first, last: first.saturating_add(more), owner });
        }
        Self(ranges)
    }

    /// The user who has this ID: itself, if it is nobody's subordinate.
    fn owner(&self, user: u32) -> u32 {
        let range = self.0.iter().find(|range| (range.first..=range.last).contains(&user));
        range.map_or(user, |range| range.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const SHORT: Patience = Patience {
        once: Duration::from_secs(1),
        user: Duration::from_millis(2500),
        all: Duration::from_secs(3600),
    };

    /// For looks that end, and limits of users that a busy machine does not reach.
    const LONG: Patience = Patience {
        once: Duration::from_secs(3600),
        user: Duration::from_secs(3600),
        all: Duration::from_secs(3600),
    };

    /// A fake host with one process for each of these users, numbered from 0.
    struct Host(tempfile::TempDir);

    impl Host {
        fn of(users: &[u32]) -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for (number, user) in users.iter().enumerate() {
                let home = host.process(number);
                std::fs::create_dir_all(&home).unwrap();
                let status = format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n");
                std::fs::write(home.join("status"), status).unwrap();
            }
            host
        }

        fn process(&self, number: usize) -> PathBuf {
            self.0.path().join(format!("proc/{number}"))
        }
    }

    #[test]
    fn who_holds_a_look_is_left_and_not_looked_at_until_it_lets_go() {
        static LOOKS: Looks = Looks::new(SHORT);
        let host = Host::of(&[7, 8]);
        let home = host.process(0);
        let (let_go, held) = channel::<()>();
        let begun = Instant::now();
        let error = LOOKS.look(&home, move || held.recv()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= SHORT.once, "{:?}", begun.elapsed());
        assert!(LOOKS.may_begin(&host.process(1), 8));
        // Refused before `work` starts.
        let error = LOOKS.look(&home, || unreachable!("it is held")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let_go.send(()).unwrap();
        while LOOKS.look(&home, || 6).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_look_that_fails_after_it_was_left_lets_go() {
        static LOOKS: Looks = Looks::new(SHORT);
        let host = Host::of(&[7]);
        let home = host.process(0);
        let (let_go, held) = channel::<()>();
        let error = LOOKS.look(&home, move || held.recv().expect("as this test wants")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(let_go);
        let begun = Instant::now();
        while let Err(error) = LOOKS.look(&home, || 6) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn many_looks_share_a_thread_until_one_is_left() {
        static LOOKS: Looks = Looks::new(LONG);
        static LEFT: Looks = Looks::new(SHORT);
        let host = Host::of(&[7, 8]);
        let (free, blocked) = (host.process(0), host.process(1));
        let thread = || LOOKS.look(&free, || std::thread::current().id()).unwrap();
        let alone = thread();
        assert_ne!(thread(), alone);
        let (let_go, held) = channel::<()>();
        many_looks(|| {
            let first = thread();
            assert_eq!([many_looks(thread), thread()], [first, first]);
            LOOKS.look(&free, || panic!("as this test wants")).map(|()| 0).unwrap_err();
            assert_eq!(thread(), first);
            let error = LEFT.look(&blocked, move || held.recv()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let second = thread();
            assert_ne!(second, first);
            assert_eq!(thread(), second);
        });
        drop(let_go);
        assert!(SHARED.with_borrow(|shared| shared.depth == 0 && shared.worker.is_none()));
    }

    #[test]
    fn a_user_whose_processes_hold_many_looks_hides_nobody_elses() {
        static LOOKS: Looks = Looks::new(SHORT);
        let mut users = [7; 40];
        users[39] = 8;
        let host = Host::of(&users);
        let mut holders = Vec::new();
        let begun = (0..39)
            .filter(|number| {
                let (holder, held) = channel::<()>();
                holders.push(holder);
                let (told, begun) = channel();
                let error = LOOKS
                    .look(&host.process(*number), move || {
                        let _ = told.send(());
                        held.recv()
                    })
                    .unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                begun.try_recv().is_ok()
            })
            .count();
        // Each look takes at least 1 s, and all looks of one user may take 2.5 s.
        assert!((1..=3).contains(&begun), "{begun}");
        assert!(LOOKS.may_begin(&host.process(39), 8));
    }

    #[test]
    fn a_user_with_many_looks_that_are_not_slow_hides_nobody_elses() {
        for patience in [FILES, PROGRAMS] {
            let looks = Looks::new(patience);
            let may_begin = |user| looks.may_begin(Path::new("new"), user);
            while may_begin(7) {
                looks.state().get_or_insert_with(State::new).charge(7, NOTICED);
            }
            assert!(may_begin(8));
        }
    }

    #[test]
    fn a_user_is_not_charged_for_a_busy_machine() {
        static LOOKS: Looks = Looks::new(LONG);
        const BUSY: Duration = Duration::from_millis(60);
        let host = Host::of(&[7]);
        let begun = Instant::now();
        // Another thread delays the result, but not the work.
        let work = || {
            let (locked, is_locked) = channel();
            let (end, ended) = channel::<()>();
            std::thread::spawn(move || {
                let _state = LOOKS.state();
                locked.send(()).unwrap();
                ended.recv().unwrap_err();
                std::thread::sleep(BUSY);
            });
            is_locked.recv().unwrap();
            drop(end);
        };
        LOOKS.look(&host.process(0), work).unwrap();
        let total = begun.elapsed();
        let charged = LOOKS.state().as_ref().unwrap().users[&7].all;
        assert!(charged <= total - BUSY / 2, "{charged:?} of {total:?}");
    }

    #[test]
    fn a_look_that_begins_late_has_all_of_its_time() {
        static FIRST: Looks = Looks::new(LONG);
        static LOOKS: Looks = Looks::new(SHORT);
        let host = Host::of(&[7]);
        many_looks(|| {
            FIRST.look(&host.process(0), || ()).unwrap();
            // The thread is not there for longer than a look may take.
            SHARED.with_borrow(|shared| {
                let away = Box::new(|| std::thread::sleep(SHORT.once * 3 / 2));
                shared.worker.as_ref().unwrap().looks.send(away).unwrap();
            });
            assert_eq!(LOOKS.look(&host.process(0), || 6).unwrap(), 6);
        });
        assert!(LOOKS.state().as_ref().unwrap().users[&7].slow < SHORT.once);
    }

    #[test]
    fn subordinate_user_ids_are_charged_to_the_user_who_has_them() {
        static LOOKS: Looks = Looks::new(LONG);
        let users = [99_999, 100_000, 165_535, 165_536, 300_009, 300_010, 7];
        let host = Host::of(&users);
        std::fs::create_dir(host.0.path().join("etc")).unwrap();
        let text = "1000:100000:65536\nodd\nweb:165536:10\n1000:300000:10\nx:7:0\nx:7:-1\n";
        std::fs::write(host.0.path().join("etc/subuid"), text).unwrap();
        let charged: Vec<u32> = (0..users.len()).map(|number| LOOKS.charged(&host.process(number))).collect();
        assert_eq!(charged, [99_999, 100_000, 100_000, 165_536, 100_000, 300_010, 7]);
    }

    #[test]
    fn looks_that_never_return_hide_no_other_users_processes() {
        static LOOKS: Looks = Looks::new(LONG);
        let hold = |user: u32, number: u32| {
            let held =
                (0..number).map(|at| (PathBuf::from(format!("{user}/{at}")), Held { user, number: 1 }));
            LOOKS.state().get_or_insert_with(State::new).held.extend(held);
        };
        let may_begin = |user| LOOKS.may_begin(Path::new("new"), user);
        hold(7, MOST_LEFT_OF_USER - 1);
        assert!(may_begin(7));
        hold(7, MOST_LEFT_OF_USER);
        assert!(!may_begin(7) && may_begin(8));
        hold(7, MOST_LEFT - 1);
        assert!(may_begin(8));
        hold(9, 1);
        assert!(!may_begin(8));
    }

    #[test]
    fn a_look_that_fails_is_an_error_and_this_process_can_be_looked_into() {
        static LOOKS: Looks = Looks::new(LONG);
        let home = Path::new("/proc/self");
        let error = LOOKS.look(home, || panic!("as this test wants")).map(|()| 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(!look_into(home, "cmdline", 1 << 20).unwrap().is_empty());
        assert_eq!(look_into(home, "stat", 3).unwrap().len(), 3);
        assert_eq!(look_into(home, "none", 3).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
