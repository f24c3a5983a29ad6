use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::engine::{Phase, Sink as _};
use crate::plan::Plan;
use crate::schedule::{Enough, Schedule, Slot};
use crate::store::StudyFolder;
use crate::stream::{Link, Writer};
use host::Fingerprint;

const TEXT: &str = include_str!("../plan/small.toml");

/// The limits of all connections here.
const SOON: Duration = Duration::from_millis(100);

fn plan() -> Plan {
    Plan::read(TEXT, "small.toml").unwrap()
}

/// The behaviour of a connection: some runs and then a break, or the end.
#[derive(Clone, Copy)]
enum Does {
    Runs(usize),
    Nothing,
    Unreachable,
    OtherHost,
    /// Sends something, then nothing more, but stays open.
    Silent,
    /// Sends only signs of life, forever.
    Idle,
    /// Sends progress of one run, forever.
    Busy,
    /// Sends greetings of a shell, forever.
    Greeting,
    /// Sends progress of a run that the schedule does not have.
    Elsewhere,
    /// Sends failed runs of the first position, forever.
    Failing,
    /// Makes all runs, but takes longer than any limit here; by its own clock it is in time.
    Starved,
}

/// A clock that goes only when a test lets time pass. Counts milliseconds.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

struct Machine {
    script: VecDeque<Does>,
    asked: Vec<Request>,
    clock: Clock,
}

fn slots() -> Vec<Slot> {
    let schedule = Schedule::new(&plan(), 5);
    (0..2).flat_map(|block| schedule.block(block)).flat_map(|arm| arm.slots).collect()
}

fn progress(slot: &Slot) -> StudyProgress {
    StudyProgress {
        position: slot.position,
        done: 0,
        total: 16,
        at_least: false,
        cell: slot.cell.clone(),
        attempt: 0,
        phase: Phase::Run,
    }
}

fn run(slot: &Slot) -> Run {
    Run {
        started: 1,
        spent: 1.0,
        took: 0.5,
        sampled: None,
        guests: vec![Vec::new()],
        ..Run::begun(slot.cell.clone(), slot.position, 0)
    }
}

fn bytes(request: &Request, runs: usize, fingerprint: Fingerprint) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    let mut link = Link::new(Writer::begin(&mut bytes).unwrap(), place.path());
    let (version, fingerprint) = ("1".to_owned(), Box::new(fingerprint));
    link.say(&Message::Hello { format: STREAM_FORMAT, version, fingerprint }).unwrap();
    let done = |slot: &Slot| request.past.runs.iter().any(|run| run.position == slot.position);
    let missing: Vec<Slot> = slots().into_iter().filter(|slot| !done(slot)).collect();
    for slot in missing.iter().take(runs) {
        link.progress(&progress(slot));
        let folder = link.folder().unwrap();
        fs::write(folder.join("x"), "y").unwrap();
        link.keep(&run(slot), &folder).unwrap();
    }
    match missing.get(runs) {
        Some(next) => link.progress(&progress(next)),
        None => {
            let enough = Some(Enough::Repeats);
            let conclusion = Conclusion { enough, made: 0, failed: Vec::new(), not_undone: Vec::new() };
            link.say(&Message::End { conclusion: Ok(conclusion) }).unwrap();
        }
    }
    drop(link);
    bytes
}

/// A message without the marker at the start of the stream.
fn whole(message: &Message) -> Vec<u8> {
    let mut begin = Vec::new();
    Writer::begin(&mut begin).unwrap();
    let mut bytes = Vec::new();
    Writer::begin(&mut bytes).unwrap().message(message).unwrap();
    bytes.split_off(begin.len())
}

/// The start of a stream, up to and including this number of failed runs of the first position.
fn failing(runs: usize) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    let mut link = Link::new(Writer::begin(&mut bytes).unwrap(), place.path());
    let (version, fingerprint) = ("1".to_owned(), Box::default());
    link.say(&Message::Hello { format: STREAM_FORMAT, version, fingerprint }).unwrap();
    for _ in 0..runs {
        let folder = link.folder().unwrap();
        link.keep(&Run { failure: Some("gone".to_owned()), ..run(&slots()[0]) }, &folder).unwrap();
    }
    drop(link);
    bytes
}

struct Canned(std::io::Cursor<Vec<u8>>);

impl std::io::Read for Canned {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

/// Bytes to send once, and bytes to repeat after them. Each time they are repeated, 5 ms pass.
struct Endless {
    said: std::io::Cursor<Vec<u8>>,
    again: Vec<u8>,
    clock: Clock,
    made: Duration,
}

impl std::io::Read for Endless {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.said.read(bytes)?;
        if read > 0 {
            return Ok(read);
        }
        self.clock.pass(Duration::from_millis(5));
        self.said = std::io::Cursor::new(self.again.clone());
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

/// The bytes of a machine on which time passes a hundred times more slowly.
struct Starved {
    said: std::io::Cursor<Vec<u8>>,
    made: Instant,
}

impl std::io::Read for Starved {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if self.made.elapsed() < SOON * 8 {
            std::thread::sleep(Duration::from_millis(5));
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        self.said.read(bytes)
    }
}

impl Connection for Starved {
    fn ask_to_stop(&mut self) {}

    fn time(&self) -> Option<Duration> {
        Some(self.made.elapsed() / 100)
    }

    fn end(self: Box<Self>) -> Option<String> {
        None
    }
}

impl Connection for Endless {
    fn ask_to_stop(&mut self) {}

    fn time(&self) -> Option<Duration> {
        Some(self.clock.now() - self.made)
    }

    fn end(self: Box<Self>) -> Option<String> {
        None
    }
}

impl Connection for Canned {
    fn ask_to_stop(&mut self) {}

    fn time(&self) -> Option<Duration> {
        // Its bytes are there at once, so no limit applies.
        Some(Duration::ZERO)
    }

    fn end(self: Box<Self>) -> Option<String> {
        Some(" WARN An earlier session left change 7\nConnection reset by peer\n".to_owned())
    }
}

impl Remote for Machine {
    fn connect(&mut self, request: &Request) -> Result<Box<dyn Connection>, RemoteError> {
        self.asked.push(request.clone());
        let (clock, made) = (self.clock.clone(), self.clock.now());
        let other = Fingerprint { kernel_release: Some("9.9".to_owned()), ..Fingerprint::default() };
        let bytes = match self.script.pop_front() {
            Some(Does::Runs(runs)) => bytes(request, runs, Fingerprint::default()),
            Some(Does::OtherHost) => bytes(request, 1, other),
            Some(does @ (Does::Silent | Does::Idle | Does::Busy)) => {
                let said = std::io::Cursor::new(bytes(request, 1, Fingerprint::default()));
                let again = match does {
                    Does::Idle => whole(&Message::Alive),
                    Does::Busy => whole(&Message::Progress(progress(&slots()[1]))),
                    _ => Vec::new(),
                };
                return Ok(Box::new(Endless { said, again, clock, made }));
            }
            Some(Does::Greeting) => {
                let said = std::io::Cursor::new(Vec::new());
                return Ok(Box::new(Endless { said, again: b"Welcome\n".to_vec(), clock, made }));
            }
            Some(Does::Elsewhere) => {
                let slot = Slot { position: 99, ..slots().remove(0) };
                let mut bytes = failing(0);
                bytes.extend(whole(&Message::Progress(progress(&slot))));
                bytes
            }
            Some(Does::Failing) => failing(99),
            Some(Does::Starved) => {
                let said = std::io::Cursor::new(bytes(request, 99, Fingerprint::default()));
                return Ok(Box::new(Starved { said, made: Instant::now() }));
            }
            Some(Does::Nothing) => b"killed\n".to_vec(),
            Some(Does::Unreachable) => return Err(RemoteError::Unreachable("no route".to_owned())),
            None => return Err(RemoteError::Hopeless("the script is over".to_owned())),
        };
        Ok(Box::new(Canned(std::io::Cursor::new(bytes))))
    }
}

fn go(folder: &Path, script: &[Does]) -> (Coordinated, Machine, Vec<String>) {
    go_until(folder, script, &Clock::default(), |_| false)
}

/// Follows the script until an event after which the user ends it.
fn go_until(
    folder: &Path,
    script: &[Does],
    clock: &Clock,
    is_last: impl Fn(&Event<'_>) -> bool,
) -> (Coordinated, Machine, Vec<String>) {
    let mut store = Store::open(folder, &plan(), TEXT, "ssh://there", 5).unwrap();
    let script = script.iter().copied().collect();
    let mut machine = Machine { script, asked: Vec::new(), clock: clock.clone() };
    let mut warnings = Vec::new();
    let patience = Patience { first_word: SOON, silence: SOON, standstill: 3 * SOON, last_word: 2 * SOON };
    let settings = Settings { study: "test", emulated: None, allow_unlike: false, patience };
    let stop = AtomicBool::new(false);
    let coordinated = coordinate(&mut store, &mut machine, settings, &stop, &mut |event| {
        if is_last(&event) {
            stop.store(true, Ordering::Relaxed);
        }
        if let Event::Warning(text) = event {
            warnings.push(text);
        }
    });
    (coordinated, machine, warnings)
}

#[test]
fn a_lost_link_costs_the_run_in_progress_and_the_rest_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, machine, warnings) = go(folder.path(), &[Does::Runs(5), Does::Runs(99)]);
    assert_eq!(ended.unwrap().enough, Some(Enough::Repeats));
    assert_eq!(machine.asked[1].past.runs.len(), 5);
    assert!(warnings[0].contains("Connection reset by peer; trying again") || warnings[0].contains("reset"));
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!((read.runs.len(), read.failed.len()), (16, 1));
    let failed = &read.failed[0].run;
    assert_eq!(failed.position, 5);
    assert!(failed.failure.as_ref().unwrap().contains("connection to the target was lost"), "{failed:?}");
}

#[test]
fn what_the_target_warns_of_is_told_when_the_study_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, _, warnings) = go(folder.path(), &[Does::Runs(99)]);
    assert_eq!(ended.unwrap().enough, Some(Enough::Repeats));
    assert_eq!(warnings, ["An earlier session left change 7"]);
}

#[test]
fn a_run_that_takes_its_host_with_it_counts_as_tried() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, machine, _) = go(folder.path(), &[Does::Runs(0), Does::Runs(0)]);
    assert!(matches!(ended, Err(CoordinateError::Remote(_))));
    assert_eq!(machine.asked[2].past.tried(0).now, 2);
}

#[test]
fn a_machine_that_answers_no_more_is_asked_again_and_another_host_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, machine, warnings) = go(folder.path(), &[Does::Runs(1), Does::Unreachable, Does::OtherHost]);
    assert!(matches!(ended, Err(CoordinateError::Store(StoreError::OtherHost { .. }))), "{ended:?}");
    assert_eq!(machine.asked.len(), 3);
    assert!(warnings[1].starts_with("no route; trying again in 2 s"), "{warnings:?}");
    assert_eq!(StudyFolder::open(folder.path()).unwrap().runs.len(), 1);
}

#[test]
fn a_link_that_falls_silent_or_stands_still_is_broken_off_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, machine, warnings) = go(folder.path(), &[Does::Silent, Does::Idle, Does::Runs(99)]);
    assert_eq!(ended.unwrap().enough, Some(Enough::Repeats));
    assert!(warnings[0].contains("it was silent for"), "{warnings:?}");
    assert!(warnings[1].contains("made no progress"), "{warnings:?}");
    // Each connection delivered one run; the run in progress after it counts as tried.
    assert_eq!(machine.asked[2].past.runs.len(), 2);
    assert_eq!(StudyFolder::open(folder.path()).unwrap().failed.len(), 2);
}

#[test]
fn time_that_goes_by_between_two_reads_is_not_the_machines_silence() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::default();
    let (ended, waited) = (Cell::new(Duration::ZERO), Cell::new(Duration::ZERO));
    // Each event takes longer than any limit of the messages.
    let slow = |event: &Event<'_>| {
        if let Event::Warning(_) = event {
            waited.set(clock.now() - ended.get());
        } else {
            clock.pass(4 * SOON);
            ended.set(clock.now());
        }
        false
    };
    let (_, _, warnings) = go_until(folder.path(), &[Does::Idle], &clock, slow);
    assert!(warnings[0].contains("made no progress"), "{warnings:?}");
    assert!(waited.get() > 3 * SOON, "{:?} after the last event", waited.get());
}

#[test]
fn a_machine_that_has_little_time_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (ended, machine, warnings) = go(folder.path(), &[Does::Starved]);
    assert_eq!(ended.unwrap().enough, Some(Enough::Repeats));
    assert_eq!((machine.asked.len(), warnings), (1, Vec::<String>::new()));
}

#[test]
fn what_is_said_instead_of_a_stream_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _, warnings) = go(folder.path(), &[Does::Nothing]);
    assert!(warnings[0].contains("killed"), "{warnings:?}");
}

#[test]
fn a_machine_that_goes_on_after_the_request_to_stop_is_left_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let is_kept = |event: &Event<'_>| matches!(event, Event::Kept(_));
    let (ended, machine, warnings) =
        go_until(folder.path(), &[Does::Busy, Does::Runs(99)], &Clock::default(), is_kept);
    assert_eq!((ended.unwrap().enough, machine.asked.len()), (None, 1));
    assert!(warnings[0].contains("did not end within 0 s of the request to stop"), "{warnings:?}");
    assert_eq!(StudyFolder::open(folder.path()).unwrap().runs.len(), 1);
}

#[test]
fn greetings_without_an_end_are_not_listened_to() {
    let folder = tempfile::tempdir().unwrap();
    let (_, machine, warnings) = go(folder.path(), &[Does::Greeting]);
    assert_eq!(machine.asked.len(), 2);
    assert!(warnings[0].contains("it did not begin within 0 s"), "{warnings:?}");
}

#[test]
fn runs_and_progress_that_were_not_asked_for_break_the_link_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_, machine, warnings) = go(folder.path(), &[Does::Failing, Does::Elsewhere]);
    assert!(warnings[0].contains("a run that was not asked for, at position 0"), "{warnings:?}");
    assert!(warnings[1].contains("progress of a run that was not asked for"), "{warnings:?}");
    assert_eq!(machine.asked[2].past.tried(0).now, 3);
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!((read.runs.len(), read.failed.len()), (0, 3));
}
