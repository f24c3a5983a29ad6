//! Follows a run: forwards the agent's messages, and detects failures.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cache::free_mib;
use crate::error::Error;
use crate::frames::{Ending, Frame, Moment};
use crate::process::{Event, Process};
use crate::request::{Happening, Request, Timings};
use crate::snapshot::Snapshot;

const TICK: Duration = Duration::from_millis(100);

/// If a file system had less free space than this during a run, in MiB, then what the host wrote to its disk
/// may not have fitted.
pub(crate) const FULL_MIB: u64 = 16;

/// The state of a run.
pub(crate) struct Watch<'a> {
    pub(crate) lab: &'static str,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) request: &'a Request,
    /// The limit on the emulator's time for reaching user space, and for each later part of the run except
    /// the command.
    pub(crate) boot_limit: Duration,
    pub(crate) begun: Instant,
    pub(crate) powered_on: Instant,
    pub(crate) last: Instant,
    /// The last time at which the limits were checked.
    pub(crate) checked: Instant,
    pub(crate) timings: Timings,
    pub(crate) running: bool,
    /// The command had had its time when the limits were last checked.
    pub(crate) overdue: bool,
    /// The event that is waited for, as in an error message.
    pub(crate) awaited: &'static str,
    /// The emulator's time when the agent last sent something other than the command's output, or took a part
    /// of the input.
    pub(crate) heard: Duration,
    /// The number of bytes of the input that the agent had taken then.
    pub(crate) sent: u64,
    pub(crate) warnings: Vec<String>,
    pub(crate) files: File,
    /// The run's folder, which has the changes to the host's disk.
    pub(crate) folder: &'a Path,
    /// Less than [`FULL_MIB`] were free there.
    pub(crate) full: bool,
}

impl Watch<'_> {
    /// Forwards events until the command has ended and its files have arrived.
    pub(crate) fn follow(
        &mut self,
        process: &mut Process,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Ending, Error> {
        loop {
            let frame = self.next_frame(process)?;
            if let Some(ending) = self.take(frame, process, on_happening)? {
                return Ok(ending);
            }
        }
    }

    /// Waits until the agent has reached a point. Returns the command's end if that came first.
    pub(crate) fn until(
        &mut self,
        process: &mut Process,
        point: &str,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Option<Ending>, Error> {
        loop {
            let frame = self.next_frame(process)?;
            let there = matches!(&frame, Frame::Moment(moment) if moment.reached == point);
            let ending = self.take(frame, process, on_happening)?;
            if there || ending.is_some() {
                return Ok(ending);
            }
        }
    }

    /// Waits for the next frame, or until a time limit is exceeded.
    fn next_frame(&mut self, process: &mut Process) -> Result<Frame, Error> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            // Check even if frames keep coming: a command may write without pause.
            if self.checked.elapsed() >= TICK {
                self.check_limits(process)?;
                self.checked = Instant::now();
            }
            match process.next(TICK)? {
                Event::Frame(frame) => return Ok(frame),
                // Only now: after a pause of this program, frames that have arrived are taken first.
                Event::Quiet => self.check_silence(process)?,
                Event::Ended(status) => return Err(self.died(process, status.to_string())),
            }
        }
    }

    fn take(
        &mut self,
        frame: Frame,
        process: &Process,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Option<Ending>, Error> {
        match frame {
            Frame::Stdout(bytes) => on_happening(Happening::Stdout(&bytes)),
            Frame::Stderr(bytes) => on_happening(Happening::Stderr(&bytes)),
            Frame::Files(bytes) => {
                self.files
                    .write_all(&bytes)
                    .map_err(Error::file("Could not write", "the files brought out"))?;
            }
            Frame::Warning(message) => self.warnings.push(message),
            Frame::Failure(message) => return Err(Error::Agent { lab: self.lab.to_owned(), message }),
            Frame::Ended(ending) => return Ok(Some(ending)),
            Frame::Order(_) | Frame::Put(_) | Frame::Typed(_) | Frame::Resized(_) => {
                tracing::debug!("the agent sends what only this side sends");
            }
            Frame::Moment(moment) => {
                self.reached(&moment);
                on_happening(Happening::Reached(&moment));
            }
        }
        if !self.running {
            self.heard = process.time().spent();
        }
        Ok(None)
    }

    fn reached(&mut self, moment: &Moment) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        match moment.reached.as_str() {
            "init" => {
                self.timings.boot = self.powered_on.elapsed().as_secs_f64();
                self.awaited = "the point where it waits for a command";
            }
            "modules" => self.timings.modules = seconds,
            "waiting" => self.timings.modules += seconds,
            "order" => {
                // This is the first message of a restored machine.
                if self.timings.boot == 0.0 {
                    self.timings.boot = self.powered_on.elapsed().as_secs_f64();
                }
                self.awaited = "the start of its command";
            }
            "root" => {
                self.timings.root = seconds;
                self.running = true;
            }
            "terminal" => {}
            "command" => {
                self.timings.command = seconds;
                self.timings.inside = moment.uptime;
                self.running = false;
                self.awaited = "the end of its files";
            }
            "files" => self.timings.files = seconds,
            other => {
                tracing::debug!(reached = other, "the agent reports a point that this version does not know")
            }
        }
    }

    fn check_limits(&mut self, process: &Process) -> Result<(), Error> {
        process.keep_end_of_console();
        self.look_for_space();
        if process.panicked() {
            // Wait for the backtrace that follows the first line of a panic.
            std::thread::sleep(TICK * 3);
            return Err(Error::Panic {
                lab: self.lab.to_owned(),
                after: self.begun.elapsed(),
                console: process.last_words(),
            });
        }
        let over = self.request.timeout.filter(|&limit| self.running && self.last.elapsed() > limit);
        // Not at the first check: after a pause of this program, the command's end may have arrived.
        let was_overdue = std::mem::replace(&mut self.overdue, over.is_some());
        match over {
            Some(limit) if was_overdue => Err(Error::TimedOut { lab: self.lab.to_owned(), limit }),
            _ => Ok(()),
        }
    }

    /// Notes if there is little space left for the changes to the disk. The emulator's end, which may come of
    /// that, frees what they take.
    pub(crate) fn look_for_space(&mut self) {
        self.full |= free_mib(self.folder).is_ok_and(|free| free < FULL_MIB);
    }

    /// Fails if the agent has been silent for too long.
    fn check_silence(&mut self, process: &Process) -> Result<(), Error> {
        let sent = process.sent();
        if sent != self.sent {
            self.sent = sent;
            self.heard = process.time().spent();
        }
        if !self.running && process.time().spent().saturating_sub(self.heard) > self.boot_limit {
            return Err(Error::BootHung {
                lab: self.lab.to_owned(),
                awaited: self.awaited,
                limit: self.boot_limit,
                console: process.last_words(),
            });
        }
        Ok(())
    }

    /// Replaces the error of a failed write, if the emulator has ended: its exit explains more.
    pub(crate) fn explain(&self, process: &mut Process, error: Error) -> Error {
        if matches!(error, Error::Interrupted) {
            return error;
        }
        match process.wait(TICK * 10, self.stop) {
            Ok(Some(status)) => self.died(process, status.to_string()),
            Err(Error::Interrupted) => Error::Interrupted,
            _ => error,
        }
    }

    /// Explains the error of a run from a snapshot. Removes the snapshot if the agent did not resume from it.
    pub(crate) fn restore_failed(&self, error: Error, snapshot: Snapshot) -> Error {
        // The snapshot is not to blame if the agent resumed, or if the disk is full.
        let went_on = self.timings.boot != 0.0;
        let ends = matches!(
            error,
            Error::EmulatorEnded { .. }
                | Error::ProgramFailed { .. }
                | Error::BootHung { .. }
                | Error::Panic { .. }
                | Error::Agent { .. }
        );
        if went_on || !ends {
            return error;
        }
        let path = snapshot.folder().to_owned();
        snapshot.discard();
        Error::Restore { lab: self.lab, path, source: Box::new(error) }
    }

    /// The error for an emulator that ended early, with its output.
    pub(crate) fn died(&self, process: &Process, status: String) -> Error {
        let (lab, console) = (self.lab.to_owned(), process.last_words());
        if process.panicked() {
            return Error::Panic { lab, after: self.begun.elapsed(), console };
        }
        Error::EmulatorEnded { lab, status, console }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::input::tests::input_with;
    use crate::process::started;
    use crate::snapshot::tests::shape;

    /// The end of a run whose agent reports these points, and whose shell then continues with `script`.
    fn followed(points: &[&str], script: &str, limit: Duration) -> Result<Ending, Error> {
        let folder = tempfile::tempdir().unwrap();
        let moments = points
            .iter()
            .flat_map(|&point| Frame::Moment(Moment { reached: point.to_owned(), uptime: 1.0 }).encode());
        std::fs::write(folder.path().join("sent"), moments.collect::<Vec<_>>()).unwrap();
        std::fs::write(folder.path().join("ended"), Frame::Ended(Ending::Status(3)).encode()).unwrap();
        let mut process = started(folder.path(), "sh", &["-c", &format!("cat sent; {script}")]);
        process.send(input_with(&vec![7; TAKEN], TAKEN as u64));
        let (stop, request) = (AtomicBool::new(false), Request::new(["true"]));
        watch(&stop, &request, limit).follow(&mut process, &mut |_| ())
    }

    fn watch<'a>(stop: &'a AtomicBool, request: &'a Request, limit: Duration) -> Watch<'a> {
        Watch {
            lab: "amd-svm",
            stop,
            request,
            boot_limit: limit,
            begun: Instant::now(),
            powered_on: Instant::now(),
            last: Instant::now(),
            checked: Instant::now(),
            timings: Timings::default(),
            running: false,
            overdue: false,
            awaited: "its user space",
            heard: Duration::ZERO,
            sent: 0,
            warnings: Vec::new(),
            files: tempfile::tempfile().unwrap(),
            folder: Path::new("/"),
            full: false,
        }
    }

    #[test]
    fn a_lack_of_space_is_seen_though_the_emulator_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = started(folder.path(), "true", &[]);
        let (stop, request) = (AtomicBool::new(false), Request::new(["true"]));
        let mut watch = watch(&stop, &request, Duration::from_secs(60));
        // No space is ever free there.
        watch.folder = Path::new("/proc");
        watch.checked = Instant::now().checked_sub(TICK).unwrap();
        let ended = watch.follow(&mut process, &mut |_| ());
        assert!(matches!(ended, Err(Error::EmulatorEnded { .. })), "{ended:?}");
        assert!(watch.full);
    }

    #[test]
    fn the_console_is_bounded_and_a_panic_seen_while_the_command_prints_without_pause() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("console");
        let printed = Frame::Stdout(b"x".to_vec()).encode();
        std::fs::write(folder.path().join("sent"), printed).unwrap();
        let script = "head -c 80M /dev/zero >>console; for i in $(seq 100); do cat sent; sleep 0.01; done
            echo 'Kernel panic - not syncing: x' >>console; while :; do cat sent; sleep 0.01; done";
        let mut process = started(folder.path(), "sh", &["-c", script]);
        let (stop, request) = (AtomicBool::new(false), Request::new(["true"]));
        let ended = watch(&stop, &request, Duration::from_secs(60)).follow(&mut process, &mut |_| ());
        assert!(matches!(ended, Err(Error::Panic { .. })), "{ended:?}");
        assert!(console.metadata().unwrap().blocks() * 512 <= 64 << 20);
    }

    #[test]
    fn a_snapshot_stays_when_it_is_not_the_cause() {
        let root = tempfile::tempdir().unwrap();
        let (stop, request) = (AtomicBool::new(false), Request::new(["true"]));
        let watch = watch(&stop, &request, Duration::from_secs(60));
        let full = || Error::file("Could not write", "console")(std::io::ErrorKind::StorageFull.into());
        let refused = || Error::ProgramFailed {
            program: "QEMU's migrate-incoming".to_owned(),
            status: "refused".to_owned(),
            output: String::new(),
        };
        for (error, stays) in [(full(), true), (Error::Interrupted, true), (refused(), false)] {
            let cache = Cache::at(root.path());
            let snapshot = Snapshot::find_or_make(&cache, &shape(2), &stop, |_| Ok(())).unwrap();
            let folder = snapshot.folder().to_owned();
            let told = watch.restore_failed(error, snapshot);
            assert_eq!(folder.exists(), stays, "{told}");
        }
    }

    #[test]
    fn what_has_arrived_is_taken_before_an_agent_counts_as_silent() {
        let folder = tempfile::tempdir().unwrap();
        let points = ["init", "waiting", "order"];
        let moments = points.map(|point| Moment { reached: point.to_owned(), uptime: 1.0 });
        let sent: Vec<u8> = moments.into_iter().flat_map(|moment| Frame::Moment(moment).encode()).collect();
        std::fs::write(folder.path().join("sent"), sent).unwrap();
        let mut process = started(folder.path(), "sh", &["-c", "cat sent; exec sleep 100"]);
        let (stop, request) = (AtomicBool::new(false), Request::new(["true"]));
        let mut watch = watch(&stop, &request, Duration::from_millis(10));
        // The three frames arrive together.
        let first = process.next(Duration::from_secs(60)).unwrap();
        assert!(matches!(first, Event::Frame(Frame::Moment(_))), "{first:?}");
        while process.time().spent() <= watch.boot_limit {
            std::thread::sleep(TICK);
        }
        watch.checked = Instant::now().checked_sub(TICK).unwrap();
        for point in &points[1..] {
            let next = watch.next_frame(&mut process);
            assert!(matches!(&next, Ok(Frame::Moment(moment)) if moment.reached == *point), "{next:?}");
        }
        let end = watch.next_frame(&mut process);
        assert!(matches!(end, Err(Error::BootHung { .. })), "{end:?}");
    }

    #[test]
    fn a_command_that_ended_during_a_pause_of_this_program_is_not_timed_out() {
        let folder = tempfile::tempdir().unwrap();
        let moments =
            ["order", "root", "command"].map(|point| Moment { reached: point.to_owned(), uptime: 1.0 });
        let frames = moments.map(Frame::Moment).into_iter().chain([Frame::Ended(Ending::Status(3))]);
        let sent: Vec<u8> = frames.flat_map(|frame| frame.encode()).collect();
        std::fs::write(folder.path().join("sent"), sent).unwrap();
        let mut process = started(folder.path(), "sh", &["-c", "cat sent; exec sleep 100"]);
        let stop = AtomicBool::new(false);
        let request = Request { timeout: Some(Duration::from_millis(10)), ..Request::new(["true"]) };
        let mut watch = watch(&stop, &request, Duration::from_secs(60));
        assert!(watch.until(&mut process, "root", &mut |_| ()).unwrap().is_none());
        let before = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        (watch.last, watch.checked) = (before, before);
        let ended = watch.follow(&mut process, &mut |_| ());
        assert!(matches!(ended, Ok(Ending::Status(3))), "{ended:?}");
    }

    #[test]
    fn a_command_that_prints_without_pause_is_timed_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = Frame::Moment(Moment { reached: "root".to_owned(), uptime: 1.0 });
        std::fs::write(folder.path().join("sent"), root.encode()).unwrap();
        std::fs::write(folder.path().join("printed"), Frame::Stdout(b"x".to_vec()).encode()).unwrap();
        let script = "cat sent; while :; do cat printed; sleep 0.01; done";
        let mut process = started(folder.path(), "sh", &["-c", script]);
        let stop = AtomicBool::new(false);
        let request = Request { timeout: Some(Duration::from_millis(10)), ..Request::new(["true"]) };
        let ended = watch(&stop, &request, Duration::from_secs(60)).follow(&mut process, &mut |_| ());
        assert!(matches!(ended, Err(Error::TimedOut { .. })), "{ended:?}");
    }

    /// The size of the file that is sent to the agent.
    const TAKEN: usize = 1 << 20;

    fn hung_after(points: &[&str]) -> String {
        match followed(points, "exec sleep 100", Duration::from_secs(1)) {
            Err(error @ Error::BootHung { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_host_that_takes_its_files_slowly_is_not_ended() {
        // Takes longer than the limit, which by this machine's clock is at most ten times as long.
        let takes =
            "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.7; head -c 100000 >/dev/null; done; cat ended; sleep 9";
        let ended = followed(&["order"], takes, Duration::from_millis(500));
        assert!(matches!(ended, Ok(Ending::Status(3))), "{ended:?}");
    }

    #[test]
    fn a_host_that_hangs_before_or_after_its_command_is_ended() {
        let hung = [
            (&[][..], "its user space"),
            (&["init"], "the point where it waits for a command"),
            (&["init", "modules", "waiting", "order"], "the start of its command"),
            (&["order", "root", "command"], "the end of its files"),
        ];
        std::thread::scope(|scope| {
            for (points, awaited) in hung {
                scope.spawn(move || {
                    let told = hung_after(points);
                    assert!(
                        told.starts_with(&format!("amd-svm did not reach {awaited} within 1s")),
                        "{told}"
                    );
                });
            }
        });
    }
}
