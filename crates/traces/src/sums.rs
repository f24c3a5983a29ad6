//! A sink that sums up exits, so that the sums can be read while a recording continues.

use std::sync::{Arc, Mutex, PoisonError};

use exits::{Exits, Profile, SeriesKey, Slice};

use crate::{AccessRecord, ExitRecord, Sink};

/// Sums of the exits since they were last taken. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Sums(Arc<Mutex<Profile>>);

impl Sums {
    /// Gives what was summed up since the last time, without a span, and begins anew.
    #[must_use]
    pub fn take(&self) -> Profile {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Sums {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        let mut profile = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let series = profile.timeline.series(SeriesKey { vm: exit.vcpu.vm, reason: exit.reason });
        let slice = Slice { count: 1, handling_ns: exit.handling_ns.unwrap_or(0) };
        profile.timeline.add(series, exit.time_ns, slice);
        if exit.handling_ns.is_none() {
            profile.losses.exits_without_entry += 1;
        }
        let row = profile.vcpu(exit.vcpu);
        add(row.reasons.entry(exit.reason).or_default(), exit.handling_ns);
        for access in accesses {
            add(row.accesses.entry(access.access).or_default(), access.handling_ns);
        }
    }

    fn lost(&mut self, events: u64) {
        let mut profile = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        profile.losses.lost_events = profile.losses.lost_events.saturating_add(events);
    }
}

fn add(exits: &mut Exits, handling_ns: Option<u64>) {
    exits.count = exits.count.saturating_add(1);
    if let Some(ns) = handling_ns {
        exits.handling.add(ns);
    }
}
