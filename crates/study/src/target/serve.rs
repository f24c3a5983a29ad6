//! The side with the guests, which receives a request, makes the runs, and sends them.

mod alone;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use alone::{Alone, PATIENCE};
use exits::with_causes;

use crate::engine::{Conclusion, HostLock, Rig, carry_out, place_of_locks, refuse_left_over};
use crate::stream::{Link, Message, Reader, Request, STREAM_FORMAT, StreamError, Writer};

/// The interval of signs of life while there is nothing else to send, by this host's clock. For an emulated host with
/// four busy CPUs a second takes up to 12 s of its emulator's time, which the other side's limits are in.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

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
    /// The directory of the locks cannot be used.
    #[error(transparent)]
    Place(#[from] files::Error),
    /// The same study is still running for an earlier connection.
    #[error("The same study is still running here for an earlier connection, which did not end within {} s", PATIENCE.as_secs())]
    Busy,
}

/// Reads a request from `input`, makes the runs with `rig`, and writes them to `output`. Files are in `place` until
/// they are sent.
///
/// # Errors
/// [`ServeError`]; an error of the study itself is sent as the last message instead.
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
    answer(request, output, place, rig, stop, &place_of_locks())
}

fn answer(
    request: Request,
    output: impl Write + Send,
    place: &Path,
    rig: &mut dyn Rig,
    stop: &AtomicBool,
    locks: &Path,
) -> Result<(), ServeError> {
    let mut link = Link::new(Writer::begin(output)?, place);
    if let Some(problem) = request.plan.check().first() {
        let conclusion = Err(format!("{}: {}", problem.field, problem.what));
        return Ok(link.say(&Message::End { conclusion })?);
    }
    // If the message cannot be sent, the other side is gone, and that sets `stop`.
    let (alive, mut tell) = (link.alive(), |text| drop(link.say(&Message::Warning { text })));
    let taken = heard(alive, || HostLock::take_below(locks, &request.plan, stop, &mut tell));
    let lock = match taken {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(link.say(&Message::End { conclusion: Ok(Conclusion::default()) })?),
        Err(error) => return Ok(link.say(&Message::End { conclusion: Err(with_causes(&error)) })?),
    };
    // Before the fingerprint: these changes could make another host of this one.
    if let Err(error) = refuse_left_over(rig) {
        return Ok(link.say(&Message::End { conclusion: Err(with_causes(&error)) })?);
    }
    link.say(&Message::Hello {
        format: STREAM_FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fingerprint: Box::new(rig.fingerprint()),
    })?;
    let conclusion = heard(link.alive(), || {
        carry_out(&request.plan, request.seed, request.past, rig, &mut link, stop)
            .map_err(|error| with_causes(&error))
    });
    // Before the message: the next study may begin as soon as the other side has it.
    drop(lock);
    link.say(&Message::End { conclusion })?;
    Ok(())
}

/// Runs `act`, and sends signs of life meanwhile.
fn heard<T>(alive: impl Fn() -> Result<(), StreamError> + Send, act: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        // Dropping the sender ends the thread, also if `act` panics.
        let (_at_work, over) = mpsc::channel::<()>();
        scope.spawn(move || {
            while over.recv_timeout(SIGN_OF_LIFE) == Err(RecvTimeoutError::Timeout) && alive().is_ok() {}
        });
        act()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Past, Sampling};
    use crate::factor::{InForce, Level};
    use crate::plan::Plan;
    use crate::sampling::{SamplePlan, SampledGuest};
    use guests::{Guest, GuestError, GuestPlan};

    /// A machine on which a killed study has left a change.
    struct Changed;

    impl Rig for Changed {
        fn left_over(&mut self) -> Vec<String> {
            vec!["change 7".to_owned()]
        }

        fn apply(&mut self, _: &[&Level]) -> Result<(), String> {
            unreachable!("no study begins")
        }

        fn undo(&mut self) -> Vec<String> {
            unreachable!("no study begins")
        }

        fn fingerprint(&mut self) -> host::Fingerprint {
            host::Fingerprint::default()
        }

        fn host(&mut self) -> Result<Box<dyn Guest>, GuestError> {
            unreachable!("no study begins")
        }

        fn start(
            &mut self,
            _: &GuestPlan,
            _: &[&Level],
            _: u32,
            _: u32,
            _: &AtomicBool,
        ) -> Result<Vec<Box<dyn Guest>>, GuestError> {
            unreachable!("no study begins")
        }

        fn sample(&mut self, _: &SamplePlan, _: &[SampledGuest]) -> Result<Box<dyn Sampling>, String> {
            unreachable!("no study begins")
        }

        fn in_force(&mut self, _: &[&Level], _: &[SampledGuest]) -> InForce {
            unreachable!("no study begins")
        }
    }

    fn request() -> Request {
        let plan = Plan::read(include_str!("../plan/small.toml"), "small.toml").unwrap();
        let (study, past) = ("test".to_owned(), Past::default());
        Request { format: STREAM_FORMAT, study, plan, seed: 5, past }
    }

    #[test]
    fn changes_that_are_left_are_told_before_the_host_is_compared() {
        let (place, mut bytes) = (tempfile::tempdir().unwrap(), Vec::<u8>::new());
        let locks = place.path().join("locks");
        answer(request(), &mut bytes, place.path(), &mut Changed, &AtomicBool::new(false), &locks).unwrap();
        match Reader::begin(&bytes[..]).unwrap().message().unwrap() {
            Message::End { conclusion: Err(why) } => assert!(why.contains("in force: change 7;"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_other_side_is_told_that_another_study_is_waited_for() {
        let (place, mut bytes) = (tempfile::tempdir().unwrap(), Vec::<u8>::new());
        let locks = place.path().join("locks");
        let go_on = AtomicBool::new(false);
        let held = HostLock::take_in(&locks, true, Duration::ZERO, &go_on, &mut |_| ()).unwrap();
        answer(request(), &mut bytes, place.path(), &mut Changed, &AtomicBool::new(true), &locks).unwrap();
        drop(held);
        let mut said = Reader::begin(&bytes[..]).unwrap();
        match said.message().unwrap() {
            Message::Warning { text } => assert!(text.contains("for another study on this host"), "{text}"),
            other => panic!("{other:?}"),
        }
        let end = Message::End { conclusion: Ok(Conclusion::default()) };
        assert_eq!(said.message::<Message>().unwrap(), end);
    }
}
