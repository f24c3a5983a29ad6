//! The vCPU that runs on a processor.

use exits::Vcpu;

use super::event::{CONTINUE_RUNNING, RUNNABLE, RUNNING, RUNSTATE_CHANGE};
use super::record::Record;
use crate::event::Event;

/// `DOMID_IDLE` of `xen/include/public/xen.h`: a domain with a vCPU for each processor.
const IDLE: u16 = 0x7fff;
/// Above all domains; what `xenalyze` calls the default domain.
const UNKNOWN: u32 = 0x8000 << 16;

/// A vCPU of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DomainVcpu {
    pub(super) domain: u16,
    pub(super) vcpu: u16,
}

impl DomainVcpu {
    /// From the numbers that a record holds; `None` for those that no domain has.
    pub(super) fn new(domain: u32, vcpu: u32) -> Option<Self> {
        let (domain, vcpu) = (u16::try_from(domain).ok()?, u16::try_from(vcpu).ok()?);
        (domain <= IDLE).then_some(Self { domain, vcpu })
    }

    /// The idle vCPU of a processor.
    pub(super) const fn idle(cpu: u16) -> Self {
        Self { domain: IDLE, vcpu: cpu }
    }

    pub(super) const fn is_idle(self) -> bool {
        self.domain == IDLE
    }

    /// The key by which events are put in order.
    pub(super) const fn key(self) -> u32 {
        (self.domain as u32) << 16 | self.vcpu as u32
    }

    pub(super) const fn who(self) -> Vcpu {
        Vcpu { vm: Some(self.domain as u32), number: Some(self.vcpu as u32), thread: None }
    }
}

/// The key of the vCPU of unknown domain that stands for whatever runs on a processor.
pub(super) const fn unknown_key(cpu: u16) -> u32 {
    UNKNOWN | cpu as u32
}

/// That vCPU.
pub(super) const fn unknown(cpu: u16) -> Vcpu {
    Vcpu { vm: None, number: Some(cpu as u32), thread: None }
}

/// The knowledge about the vCPU on a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nothing yet: the first scheduler event will tell who it was.
    #[default]
    Awaited,
    /// Nothing, or that it has just left.
    Unknown,
    /// It is known, except that the scheduler may have been switching when the recorder, having lost records,
    /// found it there.
    Likely(DomainVcpu),
    Known(DomainVcpu),
}

/// A processor of the recording.
#[derive(Debug, Default)]
pub(super) struct Processor {
    /// The last ticks that a record had; zero before the first.
    pub(super) ticks: u64,
    pub(super) owner: Owner,
    /// The key of the owner's events, of the processor's own where it is unknown.
    pub(super) key: u32,
    /// The ticks since when records are missing, until the next record tells until when.
    pub(super) missing_since: Option<u64>,
    /// It had a window since the last gap in the recording.
    pub(super) walked: bool,
    /// The record before was one of a vCPU that left or entered.
    pub(super) switching: bool,
    /// Events from before it was known whose they are.
    pub(super) held: Vec<Event>,
}

/// The content of a runstate record: `trace_runstate_change` and `trace_continue_running` of `xen/common/sched/core.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunstateChange {
    /// It runs here and goes on running.
    Continues,
    /// It began to run here.
    Enters,
    /// It ran here until now; whether it could run on.
    Leaves {
        runnable: bool,
    },
    /// It woke up, to run anywhere.
    Wakes,
    Other,
}

/// Takes a record of a runstate apart; `None` when it makes no sense.
pub(super) fn change(record: &Record<'_>) -> Option<(DomainVcpu, RunstateChange)> {
    let word = record.word(0)?;
    let who = DomainVcpu::new(word >> 16, word & 0xffff)?;
    let (before, after) = (record.event >> 8 & 0xf, record.event >> 4 & 0xf);
    let change = match (record.event & 0xf, before, after) {
        (CONTINUE_RUNNING, ..) => RunstateChange::Continues,
        (RUNSTATE_CHANGE, _, RUNNING) => RunstateChange::Enters,
        (RUNSTATE_CHANGE, RUNNING, after) => RunstateChange::Leaves { runnable: after == RUNNABLE },
        (RUNSTATE_CHANGE, _, RUNNABLE) => RunstateChange::Wakes,
        (RUNSTATE_CHANGE, ..) => RunstateChange::Other,
        _ => return None,
    };
    Some((who, change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xentrace::record::Header;

    fn changed(event: u32, word: u32) -> Option<(DomainVcpu, RunstateChange)> {
        let bytes = [[0; 4], word.to_le_bytes()].concat();
        change(&Record::parse(Header(event | 1 << 28), &bytes).unwrap())
    }

    #[test]
    fn runstates() {
        let who = DomainVcpu { domain: 3, vcpu: 1 };
        for (event, is) in [
            (0x0002_1002, RunstateChange::Continues),
            (0x0002_1101, RunstateChange::Enters),
            (0x0002_1011, RunstateChange::Leaves { runnable: true }),
            (0x0002_1021, RunstateChange::Leaves { runnable: false }),
            (0x0002_1031, RunstateChange::Leaves { runnable: false }),
            (0x0002_1211, RunstateChange::Wakes),
            (0x0002_1311, RunstateChange::Wakes),
            (0x0002_1121, RunstateChange::Other),
        ] {
            assert_eq!(changed(event, 0x0003_0001), Some((who, is)), "{event:#x}");
        }
        assert_eq!(changed(0x0002_1003, 0x0003_0001), None);
        assert_eq!(changed(0x0002_1002, 0x8000_0001), None);
        assert!(changed(0x0002_1002, 0x7fff_0001).unwrap().0.is_idle());
    }

    #[test]
    fn no_two_have_the_same_key() {
        let domain = DomainVcpu::new(0x7fff, 0xffff).unwrap();
        assert_ne!(domain.key(), unknown_key(u16::MAX));
        assert_eq!(DomainVcpu::new(0x8000, 0), None);
        assert_eq!(DomainVcpu::new(0, 0x1_0000), None);
    }
}
