//! A sink that sums up exits, whose sums can be read while the recording continues.

use std::sync::{Arc, Mutex, PoisonError};

use exits::{Exits, Profile, SeriesKey, Slice};

use crate::bounded::AccessRoom;
use crate::{AccessRecord, ExitRecord, Sink};

/// The sums of the exits since they were last taken. Clones share them. Beyond the limit that recordings have, 16,384
/// different accesses, further ones are counted as [`exits::Access::Other`].
#[derive(Debug, Clone, Default)]
pub struct Sums(Arc<Mutex<Sum>>);

#[derive(Debug, Default)]
struct Sum {
    profile: Profile,
    room: AccessRoom,
}

impl Sums {
    /// Takes the sums since the last call, without a span.
    #[must_use]
    pub fn take(&self) -> Profile {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).profile
    }
}

impl Sink for Sums {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Sum { profile, room } = &mut *sum;
        let series = profile.timeline.series(SeriesKey { vm: exit.vcpu.vm, reason: exit.reason });
        let slice = Slice { count: 1, handling_ns: exit.handling_ns.unwrap_or(0) };
        profile.timeline.add(series, exit.time_ns, slice);
        if exit.handling_ns.is_none() {
            profile.losses.exits_without_entry += 1;
        }
        let row = profile.vcpu(exit.vcpu);
        add(row.reasons.entry(exit.reason).or_default(), exit.handling_ns);
        for one in accesses {
            let access = room.row(one.access, row.accesses.contains_key(&one.access));
            add(row.accesses.entry(access).or_default(), one.handling_ns);
        }
    }

    fn lost(&mut self, events: u64) {
        let losses = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).profile.losses;
        losses.lost_events = losses.lost_events.saturating_add(events);
    }
}

fn add(exits: &mut Exits, handling_ns: Option<u64>) {
    exits.count = exits.count.saturating_add(1);
    if let Some(ns) = handling_ns {
        exits.handling.add(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::MOST_ACCESSES;
    use exits::{Access, Direction, ExitReason, Vcpu};

    #[test]
    fn a_guest_that_goes_through_all_registers_takes_no_more_memory_than_a_recording() {
        const BEYOND: u64 = 100;
        let mut sums = Sums::default();
        let sweep = |sums: &mut Sums| {
            for number in 0..MOST_ACCESSES as u32 + BEYOND as u32 {
                let access = Access::Msr { number, direction: Direction::Read };
                let exit = ExitRecord {
                    time_ns: u64::from(number),
                    // The limit is for all vCPUs together.
                    vcpu: Vcpu { vm: Some(1), number: Some(number % 2), thread: None },
                    cpu: 0,
                    reason: ExitReason::vmx(31),
                    guest_rip: 0,
                    access: Some(access),
                    handling_ns: Some(5),
                };
                sums.exit_with(&exit, &[AccessRecord { access, handling_ns: Some(5) }]);
            }
        };
        for _ in 0..2 {
            sweep(&mut sums);
            sweep(&mut sums);
            let profile = sums.take();
            let all = profile.accesses();
            assert_eq!(all.len(), MOST_ACCESSES + 1);
            assert_eq!(all[&Access::Other].count, 2 * BEYOND);
            assert_eq!(all.values().map(|exits| exits.handling.count()).sum::<u64>(), profile.total());
        }
    }
}
