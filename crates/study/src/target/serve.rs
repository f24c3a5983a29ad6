//! The side with the guests: receives a request, makes the runs, and sends them.

use std::fs::File;
use std::io::{Read, Seek as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::engine::{Rig, carry_out};
use crate::stream::{Link, Message, Reader, Request, STREAM_FORMAT, StreamError, Writer};

/// The time limit for an earlier server to end its guests.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
/// The interval of signs of life while there is nothing else to send.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// The reason why a request cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The request was incomplete, or the answer could not be sent.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The other side has another version.
    #[error(
        "The request has format {found}, this exitless serves {STREAM_FORMAT}; use the same binary on both sides"
    )]
    Format {
        /// Its format.
        found: u32,
    },
    /// An error of a file on this machine.
    #[error("Could not use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The same study is still running for an earlier connection.
    #[error("The same study is still running here for an earlier connection, which did not end within {} s", PATIENCE.as_secs())]
    Busy,
}

/// Reads a request from `input`, makes the runs with `rig`, and writes them to `output`. Files are in `place`
/// until then.
///
/// # Errors
/// [`ServeError`]; later errors are the stream's last message.
pub fn serve(
    input: impl Read,
    output: impl Write + Send,
    place: &Path,
    rig: &mut dyn Rig,
    stop: &AtomicBool,
    on_request: impl FnOnce(),
) -> Result<(), ServeError> {
    let request: Request = Reader::begin(input)?.message()?;
    if request.format != STREAM_FORMAT {
        return Err(ServeError::Format { found: request.format });
    }
    on_request();
    let _alone = Alone::take(&request.study, stop)?;
    let mut link = Link::new(Writer::begin(output)?, place);
    link.say(&Message::Hello {
        format: STREAM_FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fingerprint: Box::new(rig.fingerprint()),
    })?;
    let problems = request.plan.check();
    let conclusion = match problems.first() {
        Some(problem) => Err(format!("{}: {}", problem.field, problem.what)),
        None => heard(link.alive(), || {
            carry_out(&request.plan, request.seed, request.past, rig, &mut link, stop).map_err(|error| {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                format!("{error}{}", cause.unwrap_or_default())
            })
        }),
    };
    link.say(&Message::End { conclusion })?;
    Ok(())
}

/// Runs `act`, and sends signs of life during it.
fn heard<T>(alive: impl Fn() -> Result<(), StreamError> + Send, act: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        // Dropped also if `act` panics, which ends the thread.
        let (_at_work, over) = mpsc::channel::<()>();
        scope.spawn(move || {
            while over.recv_timeout(SIGN_OF_LIFE) == Err(RecvTimeoutError::Timeout) && alive().is_ok() {}
        });
        act()
    })
}

/// Held while a study is served: the server that an earlier connection left behind is ended first.
struct Alone {
    _file: File,
}

impl Alone {
    fn take(study: &str, stop: &AtomicBool) -> Result<Self, ServeError> {
        let plain: String = study.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        let path = std::env::temp_dir().join(format!("exitless-study-{plain}.lock"));
        let failed = |source| ServeError::File { path: path.clone(), source };
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        // A link with that name, in a folder where everyone may write, could lead anywhere.
        let options = options.custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0));
        let mut file = options.open(&path).map_err(failed)?;
        let began = Instant::now();
        let mut asked = false;
        while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::AGAIN {
                return Err(failed(errno.into()));
            }
            if !asked {
                asked = true;
                end_holder(&mut file);
            }
            if began.elapsed() > PATIENCE || stop.load(Ordering::Relaxed) {
                return Err(ServeError::Busy);
            }
            std::thread::sleep(PAUSE);
        }
        let noted = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "{}", std::process::id()));
        noted.map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// The lock is held, so the process whose ID is in the file is alive and serves the same study.
fn end_holder(file: &mut File) {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(16).read_to_string(&mut text));
    let pid = read.ok().and_then(|_| text.trim().parse().ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        tracing::info!(
            "ending process {}, which serves the same study for an earlier connection",
            pid.as_raw_nonzero()
        );
        let _ = kill_process(pid, Signal::TERM);
    }
}
