//! Steps that start at the same time, and their results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::Duration;

use super::scene;
use crate::workload::{Output, Outputs, Step};
use guests::{Armed, Finished, Guest, GuestError, release_together};

/// The interval at which to check for a signal.
const LOOK: Duration = Duration::from_millis(50);

/// Steps that are ready to be released: their guests and names.
pub(super) struct Waiting {
    steps: Vec<(usize, &'static str)>,
    armed: Vec<Box<dyn Armed>>,
}

/// The result of a step.
pub(super) struct Left {
    guest: usize,
    step: &'static str,
    finished: Result<Finished, GuestError>,
}

/// Prepares all steps, which then wait for their release. `of` contains the steps of each guest.
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

/// Releases all steps at once.
pub(super) fn release(waiting: &mut Waiting) -> Result<(), String> {
    release_together(&mut waiting.armed).map_err(|error| error.to_string())
}

/// Waits for the steps, with a thread for each.
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
            // Fails if the run has already failed and the receiver is gone.
            let _ = sender.send(Left { guest, step, finished });
        });
    }
    receiver
}

/// Collects results from `receiver` until there are no more. Sets `ending`, which ends all steps, as soon as
/// `interrupted` is set or a step has failed.
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

/// The first server that ended by itself and failed: its step, its guest and its output. From `told_ns` on servers were
/// told to end. Status 0 is no failure, because a server may put itself into the background.
pub(super) fn failed_before(served: &[Left], told_ns: u64) -> Option<(&'static str, usize, &Output)> {
    served.iter().find_map(|left| {
        let finished = left.finished.as_ref().ok()?;
        let failed = finished.output.status != 0 && finished.ended_ns < told_ns;
        failed.then_some((left.step, left.guest, &finished.output))
    })
}

/// The outputs of each guest's steps and the times of the completed ones, or the first error.
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
            // Keep the first error: later ones may be of steps that were ended because of it.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(()), Err)
}
