//! A local process whose outputs and exit status go to a sink.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::time::{ClockId, clock_gettime};

use crate::line::{Ending, Line};

/// How long to keep reading outputs after the process has ended: its background processes may hold them open.
/// Time in which the sink is busy does not count.
const LEFTOVERS: Duration = Duration::from_secs(1);
/// The limit for output after the end, for processes that print without pause. What the process itself left in its pipes is
/// less.
const MOST_LEFT: usize = 1 << 20;

/// The interval at which to check whether a process's group has ended too.
const LOOK: Duration = Duration::from_millis(20);

/// The receiver of a process's outputs and exit status.
pub trait Sink: Send + Sync {
    /// The process printed this to standard output.
    fn stdout(&self, bytes: &[u8]);

    /// The process printed this to standard error.
    fn stderr(&self, bytes: &[u8]);

    /// The process ended with this status, in a shell's numbering, at this time of CLOCK_MONOTONIC in nanoseconds. If it got
    /// a signal before that, its group has ended too.
    fn ended(&self, status: i32, at_ns: u64);
}

/// A process in its own process group, which is released through its standard input.
#[derive(Debug)]
pub struct Piped {
    stdin: Option<ChildStdin>,
    group: Option<Pid>,
    life: Arc<Mutex<Life>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Free,
    /// It got a signal, which is meant for its whole group.
    Signalled,
    /// It is about to be reaped: its ID and that of its group may be reused afterwards.
    Over,
}

/// Starts a command; its outputs and exit status go to the sink.
///
/// # Errors
/// If it does not start.
pub fn start(command: Command, sink: &Arc<impl Sink + 'static>) -> io::Result<Piped> {
    start_by(command, sink, |mut command| command.spawn())
}

/// As [`start`], with a function that spawns the command.
///
/// # Errors
/// If it does not start.
pub fn start_by(
    mut command: Command,
    sink: &Arc<impl Sink + 'static>,
    spawn: impl FnOnce(Command) -> io::Result<Child>,
) -> io::Result<Piped> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = spawn(command)?;
    let stdin = child.stdin.take();
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let outputs = Arc::new(Outputs::default());
    if let Some(stdout) = child.stdout.take() {
        let sink = Arc::clone(sink);
        read(stdout, &outputs, move |bytes| sink.stdout(bytes));
    }
    if let Some(stderr) = child.stderr.take() {
        let sink = Arc::clone(sink);
        read(stderr, &outputs, move |bytes| sink.stderr(bytes));
    }
    let life = Arc::new(Mutex::new(Life::Free));
    let (sink, its) = (Arc::clone(sink), Arc::clone(&life));
    thread::spawn(move || {
        let (status, ended_ns) = wait(child, group, &its);
        outputs.drain();
        // Only a process that was reaped elsewhere would have no status, and nothing else reaps this one.
        sink.ended(status.map_or(125, code), ended_ns);
    });
    Ok(Piped { stdin, group, life })
}

/// Waits for the exit before reaping, so that [`Piped::signal`] cannot hit other processes with a reused ID. After a signal
/// waits for the group too: a shell dies of SIGTERM at once, and what it started may take longer or ignore it.
fn wait(mut child: Child, pid: Option<Pid>, life: &Mutex<Life>) -> (io::Result<ExitStatus>, u64) {
    if let Some(pid) = pid {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), ended) {}
    }
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative: CLOCK_MONOTONIC counts from boot.
    let ended_ns = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
    loop {
        let mut life = life.lock().unwrap_or_else(PoisonError::into_inner);
        if *life == Life::Free || !pid.is_some_and(has_others) {
            *life = Life::Over;
            return (child.wait(), ended_ns);
        }
        drop(life);
        thread::sleep(LOOK);
    }
}

/// Tests whether a group has processes besides its leader. Zombies do not count: not every container's init reaps them.
fn has_others(leader: Pid) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let group = leader.to_string();
    processes
        .filter(|process| {
            process.file_name().to_str().is_some_and(|name| name != group && name.parse::<u32>().is_ok())
        })
        // Unlike `stat`, the kernel writes this without locks that a process can hold.
        .filter_map(|process| fs::read_to_string(process.path().join("status")).ok())
        .any(|status| is_running_in(&status, &group))
}

/// Whether `/proc/PID/status` is that of a process of this group that has not ended. Kernel threads have the group 0.
fn is_running_in(status: &str, group: &str) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let groups = value("NSpgid:").unwrap_or_default();
    groups.split_ascii_whitespace().next() == Some(group)
        && value("State:").is_some_and(|state| !state.starts_with('Z'))
}

/// The state of a process's two outputs.
#[derive(Debug, Default)]
struct Outputs {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Outputs that are open.
    open: usize,
    /// Pieces that the sink is taking.
    under_way: usize,
    /// Bytes that the sink has taken.
    taken: usize,
}

impl Outputs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until both outputs have been read to their ends, within the limits for what is left.
    fn drain(&self) {
        let mut state = self.lock();
        let enough = state.taken.saturating_add(MOST_LEFT);
        let mut patience = LEFTOVERS;
        while state.open > 0 && state.taken < enough && !(patience.is_zero() && state.under_way == 0) {
            if state.under_way > 0 {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                let asked = Instant::now();
                let waited = self.changed.wait_timeout(state, patience);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                patience = patience.saturating_sub(asked.elapsed());
            }
        }
    }
}

fn read(mut from: impl Read + Send + 'static, outputs: &Arc<Outputs>, take: impl Fn(&[u8]) + Send + 'static) {
    outputs.change(|state| state.open += 1);
    let outputs = Arc::clone(outputs);
    thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            outputs.change(|state| state.under_way += 1);
            take(&buffer[..count]);
            outputs.change(|state| {
                state.under_way -= 1;
                state.taken = state.taken.saturating_add(count);
            });
        }
        outputs.change(|state| state.open -= 1);
    });
}

/// The exit status in a shell's numbering: 128 plus the signal's number for a killed process.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

impl Piped {
    /// Tests whether the process has not been reaped yet.
    pub(crate) fn is_alive(&self) -> bool {
        *self.lock() != Life::Over
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal to the process and its group.
    ///
    /// # Errors
    /// If the kernel refuses the signal.
    pub fn signal(&self, how: Ending) -> io::Result<()> {
        let mut life = self.lock();
        let signal = match how {
            Ending::Terminate => Signal::TERM,
            Ending::Kill => Signal::KILL,
        };
        match self.group.filter(|_| *life != Life::Over) {
            Some(group) => {
                *life = Life::Signalled;
                Ok(kill_process_group(group, signal)?)
            }
            None => Ok(()),
        }
    }
}

impl Line for Piped {
    fn release(&mut self) -> io::Result<()> {
        match self.stdin.take() {
            Some(mut stdin) => stdin.write_all(b"\n"),
            None => Ok(()),
        }
    }

    fn end(&mut self, how: Ending, _group: i32) -> io::Result<()> {
        self.signal(how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[test]
    fn only_processes_that_run_keep_a_group() {
        let status = |state, groups| format!("Name:\tx\nState:\t{state}\nNSpgid:\t{groups}\n");
        assert!(is_running_in(&status("S (sleeping)", "42\t7"), "42"));
        assert!(!is_running_in(&status("S (sleeping)", "7\t42"), "42"));
        assert!(!is_running_in(&status("Z (zombie)", "42"), "42"));
        // Kernel threads, and processes whose group is outside of the PID namespace.
        assert!(!is_running_in(&status("I (idle)", "0"), "42"));
    }

    /// Takes its time for each piece, and tells how much came before the end.
    struct Slow {
        pause: Duration,
        taken: Mutex<usize>,
        ended: Mutex<Sender<(usize, i32)>>,
    }

    impl Sink for Slow {
        fn stdout(&self, bytes: &[u8]) {
            thread::sleep(self.pause);
            *self.taken.lock().unwrap() += bytes.len();
        }

        fn stderr(&self, _bytes: &[u8]) {}

        fn ended(&self, status: i32, _at_ns: u64) {
            self.ended.lock().unwrap().send((*self.taken.lock().unwrap(), status)).unwrap();
        }
    }

    fn started(script: &str, pause: Duration) -> (Piped, Receiver<(usize, i32)>) {
        let (ended, end) = channel();
        let sink = Arc::new(Slow { pause, taken: Mutex::default(), ended: Mutex::new(ended) });
        let mut sh = Command::new("sh");
        sh.args(["-c", script]);
        (start(sh, &sink).unwrap(), end)
    }

    fn ran(script: &str, pause: Duration) -> (usize, i32) {
        let (_piped, end) = started(script, pause);
        end.recv().unwrap()
    }

    #[test]
    fn a_slow_sink_does_not_cut_the_output() {
        let slow = LEFTOVERS / 2 + Duration::from_millis(50);
        assert_eq!(ran("head -c 90000 /dev/zero; exit 3", slow), (90_000, 3));
    }

    #[test]
    fn what_goes_on_in_the_background_does_not_keep_a_script_from_its_end() {
        let begun = Instant::now();
        assert_eq!(ran("echo said; sleep 30 & exit 3", Duration::ZERO), (5, 3));
        assert_eq!(ran("yes & exit 4", Duration::ZERO).1, 4);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn who_got_a_signal_has_ended_when_its_whole_group_has() {
        // The background process ignores SIGTERM from its start on, the shell does not, and neither holds the outputs.
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let script = format!(
            "exec > /dev/null 2>&1; trap '' TERM; sleep 1000 & trap - TERM; echo $! > {}; wait",
            mark.display()
        );
        let (piped, end) = started(&script, Duration::ZERO);
        let other = loop {
            match fs::read_to_string(&mark) {
                Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
                _ => thread::yield_now(),
            }
        };
        piped.signal(Ending::Terminate).unwrap();
        // The shell has become a zombie by then.
        let leader = format!("/proc/{}/status", piped.group.unwrap().as_raw_nonzero());
        while fs::read_to_string(&leader).is_ok_and(|status| !status.contains("State:\tZ")) {
            thread::yield_now();
        }
        assert!(piped.is_alive() && end.try_recv().is_err());
        piped.signal(Ending::Kill).unwrap();
        assert_eq!(end.recv().unwrap(), (0, 128 + 15));
        let status = fs::read_to_string(format!("/proc/{other}/status")).unwrap_or_default();
        assert!(status.is_empty() || status.contains("State:\tZ"), "{status}");
    }
}
