//! The vCPU that runs on a processor.

use exits::Vcpu;

use super::event::{CONTINUE_RUNNING, RUNNABLE, RUNNING, RUNSTATE_CHANGE};
use super::record::Record;
use crate::event::Event;

/// `DOMID_IDLE` of `xen/include/public/xen.h`: a domain with a vCPU for each CPU.
const IDLE: u16 = 0x7fff;
/// Above all domains; `xenalyze` has a default domain for this.
const UNKNOWN: u32 = 0x8000 << 16;

/// A vCPU of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DomainVcpu {
    pub(super) domain: u16,
    pub(super) vcpu: u16,
}

impl DomainVcpu {
    /// The vCPU with the numbers in a record; `None` if no domain has this number.
    pub(super) fn new(domain: u32, vcpu: u32) -> Option<Self> {
        let (domain, vcpu) = (u16::try_from(domain).ok()?, u16::try_from(vcpu).ok()?);
        (domain <= IDLE).then_some(Self { domain, vcpu })
    }

    /// The idle vCPU of a CPU.
    pub(super) const fn idle(cpu: u16) -> Self {
        Self { domain: IDLE, vcpu: cpu }
    }

    pub(super) const fn is_idle(self) -> bool {
        self.domain == IDLE
    }

    /// The key of its events in the assembly.
    pub(super) const fn key(self) -> u32 {
        (self.domain as u32) << 16 | self.vcpu as u32
    }

    pub(super) const fn who(self) -> Vcpu {
        Vcpu { vm: Some(self.domain as u32), number: Some(self.vcpu as u32), thread: None }
    }
}

/// The key of the events of an unknown vCPU on a CPU.
pub(super) const fn unknown_key(cpu: u16) -> u32 {
    UNKNOWN | cpu as u32
}

/// The vCPU that stands for unknown ones on a CPU.
pub(super) const fn unknown(cpu: u16) -> Vcpu {
    Vcpu { vm: None, number: Some(cpu as u32), thread: None }
}

/// The vCPU that runs on a CPU, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// Not known yet: the first scheduler event will tell.
    #[default]
    Awaited,
    /// Not known, or a vCPU has just left the CPU.
    Unknown,
    /// The vCPU that was running when recording resumed after a loss; the scheduler may have been switching at that
    /// moment.
    Likely(DomainVcpu),
    Known(DomainVcpu),
}

/// A CPU of the recording.
#[derive(Debug, Default)]
pub(super) struct Processor {
    /// The ticks of the last record; zero before the first one.
    pub(super) ticks: u64,
    pub(super) owner: Owner,
    /// The key of the owner's events, or of the CPU's unknown vCPU.
    pub(super) key: u32,
    /// The ticks from which on records are missing; the next record ends the gap.
    pub(super) missing_since: Option<u64>,
    /// It had a window since the last gap in the recording.
    pub(super) walked: bool,
    /// The previous record was that of a vCPU that left or entered.
    pub(super) switching: bool,
    /// Events that wait until the owner is known.
    pub(super) held: Vec<Event>,
}

/// The contents of a runstate record: `trace_runstate_change` and `trace_continue_running` of
/// `xen/common/sched/core.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunstateChange {
    /// It runs on this CPU and continues.
    Continues,
    /// It starts to run on this CPU.
    Enters,
    /// It stops running on this CPU; `runnable` if it was preempted.
    Leaves {
        runnable: bool,
    },
    /// It was woken and can run on any CPU.
    Wakes,
    Other,
}

/// Parses a runstate record; `None` if it is invalid.
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
