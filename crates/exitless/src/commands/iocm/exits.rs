//! VM exits for the monitor, counted in the kernel if permitted.

use std::path::Path;
use std::time::{Duration, Instant};

use iocm_monitor::{ExitsSeen, VmExits};
use live::{Collector, Error, Watch};

/// The interval of reading the counts, which examines every thread of the host.
const EVERY: Duration = Duration::from_secs(1);

/// The counter of all VMs' exits.
pub(super) struct Exits {
    collector: Option<Box<Collector>>,
    next: Option<Instant>,
    /// The last reported reason why they are not counted.
    said: Option<String>,
}

impl Exits {
    /// Counting starts later, and only if it is `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        Self { collector: None, next: wanted.then(Instant::now), said: None }
    }

    /// The exits since the last call that returned some, or the reason why they are not counted; `None` until
    /// there is something new.
    pub(super) fn look(&mut self, root: &Path) -> Option<ExitsSeen> {
        let now = Instant::now();
        let next = self.next.as_mut().filter(|next| **next <= now)?;
        *next = now + EVERY;
        let outcome = match &mut self.collector {
            Some(collector) => collector.take().map(|profile| Some(VmExits::of(&profile))),
            None => Collector::attach(root, &Watch::default()).map(|collector| {
                self.collector = Some(Box::new(collector));
                None
            }),
        };
        match outcome {
            Ok(counted) => {
                self.said = None;
                counted.map(Ok)
            }
            Err(error) => self.refused(&error),
        }
    }

    /// KVM may be loaded later. Other errors are permanent.
    fn refused(&mut self, error: &Error) -> Option<ExitsSeen> {
        self.collector = None;
        if !matches!(error, Error::NoKvm | Error::NoEvent { .. }) {
            self.next = None;
        }
        let why = error.to_string();
        if self.said.as_ref() == Some(&why) {
            return None;
        }
        eprintln!("VM exits are not counted: {why}");
        self.said = Some(why.clone());
        Some(Err(why))
    }
}
