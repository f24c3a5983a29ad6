//! Running programs whose output is short, with a limit of time and of bytes, even if the program or its daemon hangs.
//!
//! [`std::process::Command::output`] waits for as long as any process holds the program's outputs open, and buffers
//! everything that is printed. [`answer`] limits both; [`answer_to`] also passes an input, and [`answer_unless`] can be
//! stopped. For programs that run for longer, [`ended_within`] and [`end_within`] limit the wait for their end.

pub mod virsh;

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The interval at which to check for the program's exit: its outputs may stay open because another process holds them.
const LOOK: Duration = Duration::from_millis(20);
/// The interval at which to check for the program's exit once it has closed its outputs.
const ENDING: Duration = Duration::from_millis(1);

/// The interval at which to check for the end of a program that runs for longer.
const TURN: Duration = Duration::from_millis(5);

/// The most lines of standard error in an error.
const SAID: usize = 10;

/// The outputs of a program that has ended.
#[derive(Debug)]
pub struct Answer {
    /// The program's exit status.
    pub status: ExitStatus,
    /// Standard output, complete.
    pub stdout: Vec<u8>,
    /// Standard error; what exceeds the limit is dropped.
    pub stderr: Vec<u8>,
}

impl Answer {
    /// Standard output, unless the program failed.
    ///
    /// # Errors
    /// The last lines on standard error, separated by semicolons; the exit status if there are none.
    pub fn output(self) -> Result<Vec<u8>, String> {
        self.succeeded().map(|()| self.stdout)
    }

    /// Standard output as text, trimmed, unless the program failed.
    ///
    /// # Errors
    /// Those of [`Self::output`].
    pub fn text(&self) -> Result<String, String> {
        self.succeeded().map(|()| String::from_utf8_lossy(&self.stdout).trim().to_owned())
    }

    fn succeeded(&self) -> Result<(), String> {
        if self.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&self.stderr);
        let lines: Vec<&str> = last_lines(&said, SAID).into_iter().map(str::trim_start).collect();
        Err(if lines.is_empty() { self.status.to_string() } else { lines.join("; ") })
    }
}

/// The reason why there is no [`Answer`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program did not start.
    #[error(transparent)]
    Start(io::Error),
    /// Waiting for the program, or reading or writing its pipes, failed.
    #[error(transparent)]
    Wait(io::Error),
    /// The program exceeded the limit of time.
    #[error("it had not ended after {:.1} s and was killed", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The program exceeded the limit of bytes on standard output.
    #[error("it printed more than {} KiB and was killed", .0 >> 10)]
    TooLong(usize),
    /// The program was no longer needed.
    #[error("it was killed, because its answer was no longer needed")]
    Stopped,
}

impl Error {
    /// Tests whether the program does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Start(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The last `count` lines of a program's output that are not blank, without the spaces at their ends.
#[must_use]
pub fn last_lines(output: &str, count: usize) -> Vec<&str> {
    let lines = output.lines().rev().map(str::trim_end).filter(|line| !line.is_empty());
    let mut last: Vec<&str> = lines.take(count).collect();
    last.reverse();
    last
}

/// Waits for a program to end, for at most `patience`. `None` if it still runs then.
///
/// # Errors
/// If it cannot be waited for.
pub fn ended_within(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || begun.elapsed() > patience {
            return Ok(status);
        }
        std::thread::sleep(TURN);
    }
}

/// Waits for a program to end, and kills it after `patience`.
///
/// # Errors
/// If it cannot be waited for or killed.
pub fn end_within(child: &mut Child, patience: Duration) -> io::Result<ExitStatus> {
    if let Some(status) = ended_within(child, patience)? {
        return Ok(status);
    }
    child.kill()?;
    child.wait()
}

/// A program that is killed when this is dropped.
struct Running(Option<Child>);

impl Running {
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.0.as_mut().map_or(Ok(None), Child::try_wait)?;
        if status.is_some() {
            self.0 = None;
        }
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // Fails if the program has ended already.
        let _ = child.kill();
        // Reap on another thread: a process in uninterruptible sleep would block this one.
        std::thread::spawn(move || child.wait());
    }
}

/// One output of a program, and the bytes read so far.
#[derive(Default)]
struct Pipe {
    /// `None` once nothing more is to be read.
    from: Option<OwnedFd>,
    kept: Vec<u8>,
}

impl Pipe {
    /// Reads once, which does not block after poll(2). Keeps one byte more than `most`, which shows that there was
    /// more.
    fn read(&mut self, most: usize) -> io::Result<()> {
        let Some(from) = &self.from else { return Ok(()) };
        let mut bytes = [0; 16 << 10];
        match rustix::io::read(from, &mut bytes) {
            Ok(0) => self.from = None,
            Ok(count) => {
                let room = (most + 1).saturating_sub(self.kept.len()).min(count);
                self.kept.extend_from_slice(&bytes[..room]);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The input of a program, and the bytes that are still to be written.
struct Input<'a> {
    /// `None` once everything is written, or the program reads no more.
    to: Option<OwnedFd>,
    left: &'a [u8],
}

impl<'a> Input<'a> {
    fn new(to: Option<OwnedFd>, left: &'a [u8]) -> io::Result<Self> {
        if let Some(to) = &to {
            // A blocking write would hang if the program reads only a part of it.
            rustix::io::ioctl_fionbio(to, true)?;
        }
        Ok(Self { to: to.filter(|_| !left.is_empty()), left })
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        match rustix::io::write(to, self.left) {
            Ok(count) => self.left = &self.left[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The program closed its input; its exit status shows whether it needed the rest.
            Err(Errno::PIPE) => self.left = &[],
            Err(error) => return Err(error.into()),
        }
        if self.left.is_empty() {
            self.to = None;
        }
        Ok(())
    }
}

/// Waits for at most `patience` until a pipe is ready, and reads and writes once on those that are. Returns false if
/// none was.
fn exchange(
    input: &mut Input<'_>,
    pipes: &mut [Pipe; 2],
    patience: Duration,
    most: usize,
) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'_>> =
        pipes.iter().filter_map(|pipe| Some(PollFd::new(pipe.from.as_ref()?, PollFlags::IN))).collect();
    polled.extend(input.to.as_ref().map(|to| PollFd::new(to, PollFlags::OUT)));
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&patience)) {
        Ok(0) | Err(Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = polled.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
    for pipe in pipes.iter_mut().filter(|pipe| pipe.from.is_some()) {
        if ready.next() == Some(true) {
            pipe.read(most)?;
        }
    }
    if ready.next() == Some(true) {
        input.write()?;
    }
    Ok(true)
}

/// Runs a program without input until it exits, and returns its outputs, at most `most` bytes of each. Does not wait
/// for processes that it left in the background.
///
/// # Errors
/// [`Error::Start`] if it does not start, [`Error::TimedOut`] if it has not ended within `limit`, [`Error::TooLong`] if
/// its standard output has more than `most` bytes. In the last two cases it is killed, but not its child processes.
pub fn answer(command: &mut Command, limit: Duration, most: usize) -> Result<Answer, Error> {
    answer_unless(&AtomicBool::new(false), command, limit, most)
}

/// Runs a program as [`answer`] does, and kills it once `stop` is set.
///
/// # Errors
/// Those of [`answer`], and [`Error::Stopped`].
pub fn answer_unless(
    stop: &AtomicBool,
    command: &mut Command,
    limit: Duration,
    most: usize,
) -> Result<Answer, Error> {
    finish(command.stdin(Stdio::null()), &[], limit, most, stop)
}

/// Runs a program as [`answer_unless`] does, with this input, of which it may read only a part.
///
/// # Errors
/// Those of [`answer_unless`].
pub fn answer_to(
    input: &[u8],
    stop: &AtomicBool,
    command: &mut Command,
    limit: Duration,
    most: usize,
) -> Result<Answer, Error> {
    finish(command.stdin(Stdio::piped()), input, limit, most, stop)
}

fn finish(
    command: &mut Command,
    input: &[u8],
    limit: Duration,
    most: usize,
    stop: &AtomicBool,
) -> Result<Answer, Error> {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(Error::Start)?;
    let stdin = child.stdin.take().map(OwnedFd::from);
    let pipe = |from: Option<OwnedFd>| Pipe { from, kept: Vec::new() };
    let mut pipes =
        [pipe(child.stdout.take().map(OwnedFd::from)), pipe(child.stderr.take().map(OwnedFd::from))];
    let mut program = Running(Some(child));
    let mut input = Input::new(stdin, input).map_err(Error::Wait)?;
    let status = loop {
        let status = program.ended().map_err(Error::Wait)?;
        if status.is_some() {
            // Background processes that inherited the input must not get the rest.
            input.to = None;
        }
        // After the exit all of its output is in the pipes. Read no more than the limit: background processes may keep
        // printing.
        while status.is_some()
            && exchange(&mut input, &mut pipes, Duration::ZERO, most).map_err(Error::Wait)?
        {
            pipes.iter_mut().filter(|pipe| pipe.kept.len() > most).for_each(|pipe| pipe.from = None);
        }
        if pipes[0].kept.len() > most {
            return Err(Error::TooLong(most));
        }
        if let Some(status) = status {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let left = limit.checked_sub(begun.elapsed()).ok_or(Error::TimedOut(limit))?;
        let closed = pipes.iter().all(|pipe| pipe.from.is_none());
        let patience = left.min(if closed { ENDING } else { LOOK });
        exchange(&mut input, &mut pipes, patience, most).map_err(Error::Wait)?;
    };
    let [stdout, mut stderr] = pipes.map(|pipe| pipe.kept);
    stderr.truncate(most);
    Ok(Answer { status, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    const LONG: Duration = Duration::from_secs(60);
    const MOST: usize = 64 << 10;
    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn shell(script: &str, limit: Duration) -> Result<Answer, Error> {
        answer(Command::new("sh").args(["-c", script]), limit, MOST)
    }

    /// Waits until the process with this ID has ended; a zombie counts as ended.
    fn ends(pid: &str) -> bool {
        let begun = Instant::now();
        let stat = format!("/proc/{}/stat", pid.trim());
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            if begun.elapsed() > LONG {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    #[test]
    fn both_outputs_and_the_status_are_returned() {
        let said = shell("echo ' out '; echo err >&2; exit 3", LONG).unwrap();
        assert_eq!(
            (&*said.stdout, &*said.stderr, said.status.code()),
            (&b" out \n"[..], &b"err\n"[..], Some(3))
        );
        assert_eq!(said.text(), Err("err".to_owned()));
        assert_eq!(shell("echo ' out '; echo err >&2", LONG).unwrap().text(), Ok("out".to_owned()));
        assert_eq!(shell("exit 3", LONG).unwrap().text(), Err("exit status: 3".to_owned()));
        assert_eq!(shell("kill -9 $$", LONG).unwrap().status.signal(), Some(9));
    }

    #[test]
    fn an_error_has_only_the_last_lines() {
        let error = shell("seq 10000 >&2; exit 3", LONG).unwrap().text().unwrap_err();
        assert_eq!(error, "9991; 9992; 9993; 9994; 9995; 9996; 9997; 9998; 9999; 10000");
        assert_eq!(last_lines("a\n\nb \r\n  c\n \n", 2), ["b", "  c"]);
        assert_eq!(last_lines("a\n", 2), ["a"]);
        assert!(last_lines(" \n", 2).is_empty() && last_lines("a\n", 0).is_empty());
    }

    #[test]
    fn an_end_that_does_not_come_in_time_is_made() {
        let started = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut ending = started("exit 3");
        assert_eq!(ended_within(&mut ending, LONG).unwrap().unwrap().code(), Some(3));
        assert_eq!(end_within(&mut ending, Duration::ZERO).unwrap().code(), Some(3));
        let mut running = started("exec sleep 1000");
        assert_eq!(ended_within(&mut running, Duration::ZERO).unwrap(), None);
        assert_eq!(end_within(&mut running, Duration::ZERO).unwrap().signal(), Some(9));
    }

    #[test]
    fn standard_output_is_whole_up_to_the_limit_and_refused_beyond_it() {
        assert_eq!(shell(&format!("head -c {MOST} /dev/zero"), LONG).unwrap().stdout.len(), MOST);
        let error = shell(&format!("head -c {} /dev/zero", MOST + 1), LONG).unwrap_err();
        assert_eq!(error.to_string(), "it printed more than 64 KiB and was killed");
    }

    #[test]
    fn a_full_standard_error_does_not_block_the_program() {
        let said = shell("head -c 1000000 /dev/zero >&2; exit 3", LONG).unwrap();
        assert_eq!((said.stderr.len(), said.status.code()), (MOST, Some(3)));
    }

    #[test]
    fn a_program_that_never_ends_is_killed_although_it_prints_or_has_closed_its_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("pid");
        for program in ["sleep 1000", "yes >&2", "sleep 1000 >&- 2>&-"] {
            let script = format!("echo $$ > {}; exec {program}", mark.display());
            // On a busy machine a short limit may expire before the script has begun.
            let pid = [500, 5_000, 50_000].into_iter().map(Duration::from_millis).find_map(|limit| {
                let _ = std::fs::remove_file(&mark);
                let begun = Instant::now();
                let error = shell(&script, limit).unwrap_err();
                assert!(begun.elapsed() < limit + LONG / 2, "{program}: {:?}", begun.elapsed());
                let said = format!("it had not ended after {:.1} s and was killed", limit.as_secs_f64());
                assert_eq!(error.to_string(), said, "{program}");
                std::fs::read_to_string(&mark).ok().filter(|pid| pid.ends_with('\n'))
            });
            assert!(ends(&pid.expect("the script never began")), "{program}");
        }
    }

    #[test]
    fn a_process_in_the_background_is_not_waited_for() {
        for left in ["sleep 100", "yes >&2"] {
            let begun = Instant::now();
            let said = shell(&format!("{left} & echo $!"), LONG).unwrap();
            assert!(begun.elapsed() < LONG / 2, "{left}: {:?}", begun.elapsed());
            let pid = said.text().unwrap();
            assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        }
    }

    #[test]
    fn input_is_whole_while_the_program_prints_more_than_a_pipe_holds() {
        let input: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let said = answer_to(&input, &GO_ON, &mut Command::new("cat"), LONG, input.len()).unwrap();
        assert!(said.stdout == input, "{} bytes", said.stdout.len());
        let said = answer_to(b"", &GO_ON, Command::new("cat").arg("-"), LONG, MOST).unwrap();
        assert_eq!(said.stdout, b"");
    }

    #[test]
    fn a_program_that_reads_none_of_its_input_ends_or_is_killed() {
        let input = vec![7; 1_000_000];
        let given = |script: &str, limit| {
            answer_to(&input, &GO_ON, Command::new("sh").args(["-c", script]), limit, MOST)
        };
        for script in ["exit 3", "exec <&-; sleep 0.1; exit 3", "sleep 0.1; exit 3"] {
            assert_eq!(given(script, LONG).unwrap().status.code(), Some(3), "{script}");
        }
        let begun = Instant::now();
        let error = given("exec sleep 1000", Duration::from_millis(500)).unwrap_err();
        assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
        assert_eq!(error.to_string(), "it had not ended after 0.5 s and was killed");
    }

    #[test]
    fn a_program_that_is_not_there_is_told_from_one_that_fails() {
        assert!(answer(&mut Command::new("/no/such/program"), LONG, MOST).unwrap_err().is_missing());
    }
}
