//! VM exits for the monitor: counted in the kernel, where that is allowed.

use std::path::Path;
use std::time::{Duration, Instant};

use iocm::monitor::{ExitsSeen, VmExits};
use live::{Collector, Error, Watch};

/// Exits are taken so often: to take them looks at every thread of the host.
const EVERY: Duration = Duration::from_secs(1);

/// What counts the exits of all VMs.
pub(super) struct Exits {
    collector: Option<Box<Collector>>,
    next: Option<Instant>,
    /// Why they are not counted, as it was said last.
    said: Option<String>,
}

impl Exits {
    /// Nothing is counted yet; where they are not `wanted`, nothing ever is.
    pub(super) fn new(wanted: bool) -> Self {
        Self { collector: None, next: wanted.then(Instant::now), said: None }
    }

    /// What was counted since the last time that something was given, or why nothing is; `None` until there is something
    /// new.
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

    /// KVM may be loaded later. What else the kernel refuses it refuses for good.
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
