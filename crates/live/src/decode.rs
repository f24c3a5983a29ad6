//! Decodes the exits of one thread from its records.

use crate::inhibit::{InhibitChange, InhibitFields, number_field};
use crate::record::{Record, Records, Sample};
use crate::{Error, EventFormat, Field};
use exits::{ExitCounts, ExitReason, HandlingTime, Isa};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The exits of one thread between two drains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadExits {
    /// The thread.
    pub thread: i32,
    /// Exits by reason. `lost` is exact: the number of occurrences that the kernel counted, minus the recorded ones.
    pub counts: ExitCounts,
    /// The times from exits to the next entries of this thread, by reason. They include waiting: for HLT until the
    /// vCPU is woken, for any reason while the thread is preempted.
    pub handling: BTreeMap<ExitReason, HandlingTime>,
    /// Exits without a handling time, because their entry was not seen. An exit that waits for its entry at the drain
    /// is not included; it is continued by the next drain.
    pub unpaired: u64,
    /// Samples of `kvm_exit` with unknown contents (such as an unknown instruction set).
    pub undecoded: u64,
    /// Records of any kind that were dropped, as reported in the buffer; those at its very end are not reported
    /// there.
    pub lost_records: u64,
    /// Changes of inhibit reasons made by this thread, in order.
    pub inhibits: Vec<InhibitChange>,
}

/// The state that is carried from one drain of a thread to the next.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// An exit that waits for its entry.
    pending: Option<(ExitReason, u64)>,
    /// Exits recorded so far.
    recorded: u64,
    /// Exits reported as lost so far.
    lost: u64,
}

impl Carried {
    /// Forgets the exit that waits, because its entry may be missed.
    pub(crate) fn interrupt(&mut self) {
        self.pending = None;
    }
}

/// The offsets of the fields that are read, from the events' formats.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) exit_id: u16,
    entry_id: u16,
    event: Field,
    reason: Field,
    isa: Field,
    inhibit: Option<InhibitFields>,
}

impl Decoder {
    pub(crate) fn new(
        exit: &EventFormat,
        entry: &EventFormat,
        inhibit: Option<InhibitFields>,
    ) -> Result<Self, Error> {
        Ok(Self {
            exit_id: exit.id,
            entry_id: entry.id,
            event: number_field(exit, "common_type")?,
            reason: number_field(exit, "exit_reason")?,
            isa: number_field(exit, "isa")?,
            inhibit,
        })
    }

    /// Decodes records. `exits` is the kernel's count of exits since the events were opened.
    pub(crate) fn decode(
        &self,
        thread: i32,
        records: Records<'_>,
        exits: u64,
        carried: &mut Carried,
    ) -> ThreadExits {
        let mut found = ThreadExits { thread, ..ThreadExits::default() };
        for record in records {
            match record {
                Record::Sample(sample) => self.sample(&sample, carried, &mut found),
                Record::Lost(count) => {
                    found.lost_records = found.lost_records.saturating_add(count);
                    // The entry of the waiting exit may be among the lost records, so do not pair it with a later
                    // one.
                    found.unpaired += u64::from(carried.pending.take().is_some());
                }
                Record::Malformed { .. } => {
                    found.unpaired += u64::from(carried.pending.take().is_some());
                }
                Record::Other(_) => {}
            }
        }
        let lost = exits.saturating_sub(carried.recorded);
        found.counts.lost = lost.saturating_sub(carried.lost);
        carried.lost = carried.lost.max(lost);
        found
    }

    fn sample(&self, sample: &Sample<'_>, carried: &mut Carried, found: &mut ThreadExits) {
        let Some(event) = self.event.read(sample.raw).and_then(|id| u16::try_from(id).ok()) else { return };
        if event == self.entry_id {
            self.entry(sample.time_ns, carried, found);
        } else if event == self.exit_id {
            carried.recorded += 1;
            found.unpaired += u64::from(carried.pending.take().is_some());
            match self.exit_reason(sample.raw) {
                Some(reason) => {
                    found.counts.add(reason, 1);
                    carried.pending = Some((reason, sample.time_ns));
                }
                None => found.undecoded += 1,
            }
        } else if let Some(inhibit) = self.inhibit.as_ref().filter(|inhibit| inhibit.id == event) {
            found.inhibits.extend(inhibit.decode(sample.tid, sample.time_ns, sample.raw));
        }
    }

    fn entry(&self, time_ns: u64, carried: &mut Carried, found: &mut ThreadExits) {
        let Some((reason, since)) = carried.pending.take() else { return };
        match time_ns.checked_sub(since) {
            Some(ns) => found.handling.entry(reason).or_default().add(ns),
            None => found.unpaired += 1,
        }
    }

    fn exit_reason(&self, raw: &[u8]) -> Option<ExitReason> {
        let isa = Isa::from_kvm(u32::try_from(self.isa.read(raw)?).ok()?)?;
        // Some kernels declare the field as long, and sign-extend -1 (SVM's VMEXIT_INVALID).
        let code = (self.reason.read(raw)? & u64::from(u32::MAX)) as u32;
        Some(ExitReason { isa, code })
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
