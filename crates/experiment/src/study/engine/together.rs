//! Steps that begin at the same moment, and what they left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::Duration;

use super::scene;
use crate::study::guest::{Armed, Finished, Guest, GuestError, release_together};
use crate::study::workload::{Outputs, Step};

/// How long a signal may go unseen.
const LOOK: Duration = Duration::from_millis(50);

/// Steps that wait for their release: of which guest, and by which name.
pub(super) struct Waiting {
    steps: Vec<(usize, &'static str)>,
    armed: Vec<Box<dyn Armed>>,
}

/// What a step left.
pub(super) struct Left {
    guest: usize,
    step: &'static str,
    finished: Result<Finished, GuestError>,
}

/// Brings steps to where one word releases each. `of` are the steps of each guest.
pub(super) fn arm(
    of: &[&[Step]],
    guests: &mut [Box<dyn Guest>],
    host: &mut Box<dyn Guest>,
) -> Result<Waiting, String> {
    let mut waiting = Waiting { steps: Vec::new(), armed: Vec::new() };
    for (guest, steps) in of.iter().enumerate() {
        for step in *steps {
            let machine = scene::machine(step, guest, guests, host)?;
            let armed = machine.arm(&step.script, step.limit).map_err(|error| error.to_string())?;
            waiting.steps.push((guest, step.name));
            waiting.armed.push(armed);
        }
    }
    Ok(waiting)
}

/// Releases all of them back to back.
pub(super) fn release(waiting: &mut Waiting) -> Result<(), String> {
    release_together(&mut waiting.armed).map_err(|error| error.to_string())
}

/// Waits for each in a thread of its own.
pub(super) fn wait<'scope>(
    scope: &'scope Scope<'scope, '_>,
    waiting: Waiting,
    stop: &'scope AtomicBool,
) -> Receiver<Left> {
    let (sender, receiver) = mpsc::channel();
    for ((guest, step), armed) in waiting.steps.into_iter().zip(waiting.armed) {
        let sender: Sender<Left> = sender.clone();
        scope.spawn(move || {
            let finished = armed.finish(stop);
            // Nobody listens any more where the run has failed already.
            let _ = sender.send(Left { guest, step, finished });
        });
    }
    receiver
}

/// Collects what `receiver` gets until nothing more can come. `ending` is set, so that all of them end, as soon as
/// `interrupted` is, or one of them has failed.
pub(super) fn collect(receiver: &Receiver<Left>, interrupted: &AtomicBool, ending: &AtomicBool) -> Vec<Left> {
    let mut all = Vec::new();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(left) => {
                if left.finished.is_err() {
                    ending.store(true, Ordering::Relaxed);
                }
                all.push(left);
            }
            Err(RecvTimeoutError::Timeout) if interrupted.load(Ordering::Relaxed) => {
                ending.store(true, Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return all,
        }
    }
}

/// The outputs of each guest's steps and the times of those that ended by themselves, or the first error.
pub(super) fn sort(
    left: Vec<Left>,
    outputs: &mut [Outputs],
    times: &mut Vec<(u64, u64)>,
) -> Result<(), GuestError> {
    let mut failure = None;
    for Left { guest, step, finished } in left {
        match finished {
            Ok(finished) => {
                times.push((finished.began_ns, finished.ended_ns));
                if let Some(outputs) = outputs.get_mut(guest) {
                    outputs.steps.insert(step.to_owned(), finished.output);
                }
            }
            // What was ended because of another one's failure is not the story.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(()), Err)
}
