//! A script that waits for its release, over any channel.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use guest::{Ending, Line};

use super::reception::{End, Reception};
use super::{Armed, Finished, GuestError};
use crate::Output;

/// The time for a script to end after SIGTERM, and after SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// The time limit for a shell's start: an emulated guest takes seconds to read it from an emulated disk.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// The interval at which to check the stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// For `sh -c`: kills a process group whose leader was told to end, after [`GRACE`] or when nothing of it is left. Goes by
/// the uptime: a slow machine takes long to start `sleep`, and some accept only whole seconds.
pub(super) fn end_rest(group: impl Display) -> String {
    // The uptime's fraction is cut off.
    let seconds = GRACE.as_secs() + 1;
    format!(
        "read -r up _ < /proc/uptime; end=$(( ${{up%.*}} + {seconds} )); \
         while kill -0 -{group} 2> /dev/null && [ ${{up%.*}} -lt $end ]; do \
         sleep 0.1 2> /dev/null || sleep 1; read -r up _ < /proc/uptime; done; \
         kill -KILL -{group} 2> /dev/null; true"
    )
}

/// A waiting script. Dropping it ends the script.
pub(super) struct Waiting {
    guest: String,
    limit: Duration,
    reception: Arc<Reception>,
    line: Box<dyn Line>,
    group: i32,
    released: Option<Instant>,
    over: bool,
}

impl Waiting {
    /// Waits until the shell has the script and is ready for its release.
    pub(super) fn new(
        guest: &str,
        limit: Duration,
        reception: Arc<Reception>,
        line: Box<dyn Line>,
    ) -> Result<Self, GuestError> {
        let unreachable = |why| GuestError::Unreachable { name: guest.to_owned(), why };
        let group = reception.wait_ready(READY_WITHIN).map_err(unreachable)?;
        Ok(Self { guest: guest.to_owned(), limit, reception, line, group, released: None, over: false })
    }

    fn unreachable(&self, why: String) -> GuestError {
        GuestError::Unreachable { name: self.guest.clone(), why }
    }

    fn end(&mut self, how: Ending) {
        // If the channel is closed, waiting for the script's end reports that.
        let _ = self.line.end(how, self.group);
    }

    fn wait(&mut self, stop: &AtomicBool) -> Result<End, GuestError> {
        let released = *self.released.get_or_insert_with(Instant::now);
        let mut asked: Option<(Ending, Instant)> = None;
        let mut limited = false;
        loop {
            match self.reception.wait_end(LOOK) {
                Ok(Some(end)) => {
                    self.over = true;
                    if asked.is_some() {
                        // The script has ended; its channel reports what may be left.
                        let _ = self.line.end_rest(self.group);
                    }
                    return if limited { Err(self.limit()) } else { Ok(end) };
                }
                Ok(None) => (),
                Err(why) => return Err(self.unreachable(why)),
            }
            limited |= asked.is_none() && released.elapsed() > self.limit;
            let next = match asked {
                None if limited || stop.load(Ordering::Relaxed) => Ending::Terminate,
                Some((Ending::Terminate, since)) if since.elapsed() > GRACE => Ending::Kill,
                Some((Ending::Kill, since)) if since.elapsed() > GRACE => {
                    return Err(if limited {
                        self.limit()
                    } else {
                        self.unreachable("a script did not end after SIGKILL".to_owned())
                    });
                }
                _ => continue,
            };
            self.end(next);
            asked = Some((next, Instant::now()));
        }
    }

    fn limit(&self) -> GuestError {
        GuestError::Limit { name: self.guest.clone(), limit: self.limit }
    }
}

impl Armed for Waiting {
    fn release(&mut self) -> Result<(), GuestError> {
        self.released = Some(Instant::now());
        self.line.release().map_err(|error| self.unreachable(format!("releasing a script: {error}")))
    }

    fn finish(mut self: Box<Self>, stop: &AtomicBool) -> Result<Finished, GuestError> {
        if self.released.is_none() && stop.load(Ordering::Relaxed) {
            let now = live::monotonic_ns();
            let output = Output { status: 128 + 15, ..Output::default() };
            return Ok(Finished { output, began_ns: now, ended_ns: now });
        }
        let end = self.wait(stop)?;
        let began_ns = end.began_ns.unwrap_or(end.ended_ns);
        Ok(Finished { output: end.output, began_ns, ended_ns: end.ended_ns })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.over {
            self.end(Ending::Kill);
        }
    }
}
