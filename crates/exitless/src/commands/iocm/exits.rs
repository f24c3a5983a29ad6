//! VM exits for the monitor, counted in the kernel if permitted.

use std::path::Path;
use std::time::{Duration, Instant};

use exits::with_causes;
use iocm_monitor::{ExitsSeen, VmExits};
use live::{Collector, Error, Watch};

use crate::console;

/// The interval of reading the counts. Not shorter, because each reading examines every thread of the host.
const EVERY: Duration = Duration::from_secs(1);

/// Counts the exits of all VMs.
pub(super) struct Exits {
    collector: Option<Box<Collector>>,
    next: Option<Instant>,
    /// The last reported reason why exits are not counted.
    said: Option<String>,
}

impl Exits {
    /// A counter that attaches at the first [`Self::look`], if `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        Self { collector: None, next: wanted.then(Instant::now), said: None }
    }

    /// The exits since the last call that returned some, or the reason why they are not counted; `None` if
    /// there is nothing new.
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

    /// Reports a new error. Tries again only if KVM is missing, because it may be loaded later.
    fn refused(&mut self, error: &Error) -> Option<ExitsSeen> {
        self.collector = None;
        if !matches!(error, Error::NoKvm | Error::NoEvent { .. }) {
            self.next = None;
        }
        let why = with_causes(error);
        if self.said.as_ref() == Some(&why) {
            return None;
        }
        console::say(format_args!("VM exits are not counted: {why}"));
        self.said = Some(why.clone());
        Some(Err(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_why_exits_are_not_counted_has_its_cause() {
        let source = std::io::Error::from_raw_os_error(libc::EIO);
        let refused =
            Error::Read { path: "/sys/devices/system/cpu/online".into(), expected: "processors", source };
        let why = Exits::new(true).refused(&refused).unwrap().unwrap_err();
        assert!(why.contains("cpu/online") && why.ends_with("(os error 5)"), "{why}");
    }
}
