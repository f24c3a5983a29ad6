//! The side with the result folder, which requests missing runs, and reconnects when a connection breaks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Connection, Remote, RemoteError};
use crate::engine::{Conclusion, Past, StudyProgress};
use crate::plan::Plan;
use crate::record::Run;
use crate::store::{Store, StoreError};
use crate::stream::{Asked, Message, Reader, Received, Request, STREAM_FORMAT, StreamError, receive};
use exits::with_causes;
use live::pause;

/// The time limit of the first message: a laboratory has to boot, or an earlier server has to stop its guests.
const FIRST_WORD: Duration = Duration::from_secs(300);
/// The time limit of other messages. The other side sends a sign of life every 2 s of its clock, which can be up to 24
/// s of its emulator's time.
const SILENCE: Duration = Duration::from_secs(120);
/// The time limit of the answer to a request to stop: the other side undoes its changes and stops its guests. Commands
/// of levels have limits of their own.
const LAST_WORD: Duration = Duration::from_secs(300);
/// The most connections in a row without a run before the study is given up.
const MOST_FRUITLESS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An event to show to the user.
#[derive(Debug)]
pub enum Event<'a> {
    /// Progress of the study.
    Progress(&'a StudyProgress),
    /// A run was stored in the result folder.
    Kept(&'a Run),
    /// A warning.
    Warning(String),
}

/// The end of a coordinated study.
#[derive(Debug, thiserror::Error)]
pub enum CoordinateError {
    /// An error of the result folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No connection could be established.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Too many connections in a row broke before they delivered a run.
    #[error(
        "{MOST_FRUITLESS} connections in a row delivered no run; the last one: {0}. Completed runs are kept; run the same command to continue"
    )]
    Fruitless(String),
    /// The other side stopped with an error.
    #[error("The target stopped: {0}")]
    Stopped(String),
    /// The other side has another version.
    #[error("The target has exitless {0}, whose stream format differs from that of {version}", version = env!("CARGO_PKG_VERSION"))]
    Version(String),
}

/// The result of a coordinated study.
pub type Coordinated = Result<Conclusion, CoordinateError>;

/// The settings of a coordinated study.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// Identifies this study on the target.
    pub study: &'a str,
    /// The emulator of the target's processors, if they are emulated.
    pub emulated: Option<&'a str>,
    /// The study may continue even if the host differs.
    pub allow_unlike: bool,
    /// The time limits of a connection.
    pub patience: Patience,
}

/// The times to wait for messages before the connection is closed, in the other side's time ([`Connection::time`]).
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the marker before the first message, even if other data arrive.
    pub first_word: Duration,
    /// For any other message.
    pub silence: Duration,
    /// For a message that reports progress.
    pub standstill: Duration,
    /// For the end of the stream after a request to stop, even if data arrive.
    pub last_word: Duration,
}

impl Patience {
    /// The times for a study that is not stuck.
    pub fn of(plan: &Plan) -> Self {
        Self {
            first_word: FIRST_WORD,
            silence: SILENCE,
            standstill: plan.longest_standstill(),
            // Those that apply a level are not interrupted, and those that undo it follow.
            last_word: LAST_WORD + plan.longest_commands() * 2,
        }
    }
}

/// Requests the runs that `store` lacks from `remote`, until none are missing, connections fail repeatedly, or `stop`
/// is set.
///
/// # Errors
/// [`CoordinateError`]; complete runs are stored in any case.
pub fn coordinate(
    store: &mut Store,
    remote: &mut dyn Remote,
    settings: Settings<'_>,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Coordinated {
    let mut past = Past::new(store.plan(), store.runs(), store.failed());
    let asked = Asked::of(store.plan(), store.seed());
    let mut begun = false;
    let mut fruitless = 0;
    let mut rest = FIRST_PAUSE;
    loop {
        let request = Request {
            format: STREAM_FORMAT,
            study: settings.study.to_owned(),
            plan: store.plan().clone(),
            seed: store.seed(),
            past: past.clone(),
        };
        let mut session =
            Session { store, settings, begun, in_progress: None, brought: 0, asked: &asked, past: &mut past };
        let broke = match remote.connect(&request) {
            Ok(connection) => match session.follow(connection, stop, on_event) {
                Ok(conclusion) => return Ok(conclusion),
                Err(Broke::Link(why)) => why,
                Err(Broke::End(error)) => return Err(error),
            },
            Err(RemoteError::Unreachable(why)) => why,
            Err(error) => return Err(error.into()),
        };
        begun = session.begun;
        if session.brought > 0 {
            (fruitless, rest) = (0, FIRST_PAUSE);
        }
        // If the user ended the connection, the run in progress has not failed.
        if stop.load(Ordering::Relaxed) {
            return Ok(interrupted());
        }
        session.blame(&broke)?;
        fruitless += 1;
        if fruitless >= MOST_FRUITLESS {
            return Err(CoordinateError::Fruitless(broke));
        }
        on_event(Event::Warning(format!("{broke}; trying again in {} s", rest.as_secs())));
        if !pause(Instant::now() + rest, stop) {
            return Ok(interrupted());
        }
        rest = (rest * 2).min(LONGEST_PAUSE);
    }
}

fn interrupted() -> Conclusion {
    Conclusion { enough: None, made: 0, failed: Vec::new(), not_undone: Vec::new() }
}

/// The warnings in the log that the other side writes to standard error.
fn warnings_in(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter_map(|line| line.trim_start().strip_prefix("WARN "))
}

/// The reason why a connection ended.
enum Broke {
    Link(String),
    End(CoordinateError),
}

impl From<StoreError> for Broke {
    fn from(error: StoreError) -> Self {
        Self::End(error.into())
    }
}

struct Session<'a> {
    store: &'a mut Store,
    settings: Settings<'a>,
    /// The study's host has been recorded by this process.
    begun: bool,
    in_progress: Option<StudyProgress>,
    brought: u32,
    asked: &'a Asked,
    past: &'a mut Past,
}

impl Session<'_> {
    fn follow(
        &mut self,
        connection: Box<dyn Connection>,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Conclusion, Broke> {
        let mut watched = Watched {
            inner: Some(connection),
            stop,
            patience: self.settings.patience,
            made: Instant::now(),
            greeted: false,
            asked: None,
        };
        let followed = self.messages(&mut watched, on_event);
        if followed.is_err() && watched.goes_on() {
            let seconds = watched.patience.last_word.as_secs();
            on_event(Event::Warning(format!(
                "The target did not end within {seconds} s of the request to stop; its changes may not be undone"
            )));
        }
        let said = watched.inner.take().and_then(Connection::end);
        // Otherwise they are part of the reason why the connection broke.
        if !matches!(followed, Err(Ended::Stream(_))) {
            let warnings = said.iter().flat_map(|said| warnings_in(said));
            warnings.for_each(|text| on_event(Event::Warning(text.to_owned())));
        }
        match followed {
            Ok(conclusion) => Ok(conclusion),
            Err(Ended::Broke(broke)) => Err(broke),
            Err(Ended::Stream(StreamError::Kept(error))) => Err(error.into()),
            Err(Ended::Stream(error)) => {
                let said = said.filter(|said| !said.trim().is_empty());
                let said = said.map(|said| format!(" ({})", said.trim().replace('\n', "; ")));
                Err(Broke::Link(format!("{}{}", with_causes(&error), said.unwrap_or_default())))
            }
        }
    }

    fn messages(
        &mut self,
        watched: &mut Watched<'_>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Conclusion, Ended> {
        let patience = self.settings.patience;
        let mut reader = Reader::begin(watched)?;
        reader.get_mut().greeted = true;
        let mut moved = reader.get_mut().now();
        loop {
            let received = receive(&mut reader, self.store, self.asked, self.past)?;
            let is_alive = matches!(received, Received::Message(Message::Alive));
            if is_alive && reader.get_mut().now().saturating_sub(moved) > patience.standstill {
                let seconds = patience.standstill.as_secs();
                let why = format!("it was alive, but made no progress for {seconds} s");
                return Err(Ended::Broke(Broke::Link(why)));
            }
            match received {
                Received::Run(run) => {
                    self.note(&run);
                    on_event(Event::Kept(&run));
                }
                Received::Message(Message::Hello { format, version, fingerprint }) => {
                    if format != STREAM_FORMAT {
                        return Err(Ended::Broke(Broke::End(CoordinateError::Version(version))));
                    }
                    // On later connections the host must still be the same: the machine may have rebooted.
                    if !self.begun {
                        let begun = self.store.begin(
                            &fingerprint,
                            self.settings.emulated,
                            self.settings.allow_unlike,
                        );
                        begun.map_err(|error| Ended::Broke(error.into()))?;
                        self.begun = true;
                    } else if !self.settings.allow_unlike {
                        self.store.same_host(&fingerprint).map_err(|error| Ended::Broke(error.into()))?;
                    }
                }
                Received::Message(Message::Progress(progress)) => {
                    if !self.asked.has(&progress.cell, progress.position) {
                        let what = "progress of a run that was not asked for".to_owned();
                        return Err(StreamError::Damaged { offset: reader.offset(), what }.into());
                    }
                    on_event(Event::Progress(&progress));
                    self.in_progress = Some(progress);
                }
                Received::Message(Message::Warning { text }) => on_event(Event::Warning(text)),
                Received::Message(Message::End { conclusion: Ok(conclusion) }) => return Ok(conclusion),
                Received::Message(Message::End { conclusion: Err(why) }) => {
                    return Err(Ended::Broke(Broke::End(CoordinateError::Stopped(why))));
                }
                // Handled above: `receive` returns runs as `Received::Run`.
                Received::Message(Message::Run { .. } | Message::Alive) => {}
            }
            // Only now: the time of the events is the caller's.
            if !is_alive {
                moved = reader.get_mut().now();
            }
        }
    }

    fn note(&mut self, run: &Run) {
        self.brought += 1;
        self.in_progress = None;
        self.past.spent = self.past.spent.max(run.spent);
        match run.failure {
            None => self.past.runs.push(run.clone()),
            Some(_) => self.past.fail(run.position),
        }
    }

    /// Records a failed attempt at the run during which the connection was lost, so that a run that always crashes its
    /// host is not repeated forever.
    fn blame(&mut self, why: &str) -> Result<(), StoreError> {
        let Some(progress) = self.in_progress.take() else { return Ok(()) };
        // Not if the reported run needs no further attempt: the connection was then lost between runs.
        if !self.asked.lacks(&progress.cell, progress.position, self.past) {
            return Ok(());
        }
        let attempt = self.past.tried(progress.position).ever;
        self.past.fail(progress.position);
        let run = Run {
            spent: self.past.spent(),
            failure: Some(format!("the connection to the target was lost: {why}")),
            ..Run::begun(progress.cell, progress.position, attempt)
        };
        let folder = self.store.unfinished()?;
        self.store.keep(&run, &folder)
    }
}

/// The reason why the messages ended.
enum Ended {
    Stream(StreamError),
    Broke(Broke),
}

impl From<StreamError> for Ended {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

/// A connection that asks the other side to stop once the flag is set. Reads from it obey the time limits.
struct Watched<'a> {
    inner: Option<Box<dyn Connection>>,
    stop: &'a AtomicBool,
    patience: Patience,
    made: Instant,
    /// The marker before the first message has been received.
    greeted: bool,
    /// The other side's time when it was asked to stop.
    asked: Option<Duration>,
}

impl Watched<'_> {
    /// The other side's time.
    fn now(&self) -> Duration {
        self.inner.as_ref().and_then(|inner| inner.time()).unwrap_or_else(|| self.made.elapsed())
    }

    /// The limit that has expired, if any. Checked even while data arrive: they may never end.
    fn late(&self) -> Option<String> {
        if !self.greeted && self.now() > self.patience.first_word {
            return Some(format!("it did not begin within {} s", self.patience.first_word.as_secs()));
        }
        self.goes_on().then(|| format!("it did not end within {} s", self.patience.last_word.as_secs()))
    }

    /// Tests whether the other side is still sending after the limit for its stop.
    fn goes_on(&self) -> bool {
        self.asked.is_some_and(|asked| self.now().saturating_sub(asked) > self.patience.last_word)
    }
}

impl std::io::Read for Watched<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let timed_out = |why| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why));
        // The time between two reads is the caller's, who keeps runs and writes to the terminal, and no silence of the
        // other side.
        let began = self.now();
        loop {
            if self.asked.is_none() && self.stop.load(Ordering::Relaxed) {
                self.asked = Some(self.now());
                if let Some(inner) = &mut self.inner {
                    inner.ask_to_stop();
                }
            }
            if let Some(why) = self.late() {
                return timed_out(why);
            }
            let Some(inner) = &mut self.inner else { return Ok(0) };
            match inner.read(bytes) {
                // Reads return `WouldBlock` at short intervals, so that the flag can be checked.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if self.greeted && self.now().saturating_sub(began) > self.patience.silence {
                        return timed_out(format!("it was silent for {} s", self.patience.silence.as_secs()));
                    }
                }
                other => return other,
            }
        }
    }
}

#[cfg(test)]
#[path = "coordinate_tests.rs"]
mod tests;
