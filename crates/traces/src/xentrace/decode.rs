//! Decodes records into events of vCPUs.

use exits::{ExitReason, Isa};

use super::event::{
    ENTRY_EXIT, HANDLER, IOMEM, IOPORT, LOST_RECORDS, MSR_READ, MSR_WRITE, NESTED, RUNSTATES, SCHEDULER,
    SCHEDULER_BEFORE, SVM_EXIT, SWITCH, VMENTRY, VMX_EXIT, WIDE, WRITE,
};
use super::isa::can_be_vmx;
use super::owner::{DomainVcpu, change};
use super::placement::Placement;
use super::record::Record;
use super::tally::Tally;
use crate::event::{Event, Kind};

/// The page of the local APIC, unless the guest has moved it.
const APIC_PAGE: u64 = 0xfee0_0000;

/// The instruction set of exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reasons {
    /// The instruction set of exits whose event does not determine it.
    pub(super) isa: Isa,
    /// The user has set it, so ignore the event.
    pub(super) forced: bool,
}

/// Counts of what was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) exits: u64,
    pub(super) entries: u64,
    /// Exits whose event does not determine the instruction set.
    pub(super) unsaid: u64,
    /// Exits that were decoded as VMX, but whose code VMX does not have.
    pub(super) not_vmx: u64,
    /// Records of interest that could not be decoded.
    pub(super) undecoded: u64,
}

/// Converts records to events.
pub(super) struct Decoder {
    pub(super) placement: Placement,
    reasons: Reasons,
    pub(super) tally: Tally,
    pub(super) found: Found,
}

impl Decoder {
    pub(super) fn new(placement: Placement, reasons: Reasons) -> Self {
        Self { placement, reasons, tally: Tally::default(), found: Found::default() }
    }

    /// Decodes the next record of the current window.
    #[inline(always)]
    pub(super) fn record(&mut self, record: &Record<'_>) {
        self.tally.add(record.event);
        self.placement.ticks(record.ticks);
        match record.event >> 12 {
            ENTRY_EXIT => self.entry_or_exit(record),
            HANDLER => self.handler(record),
            RUNSTATES => match change(record) {
                Some((who, change)) => self.placement.runstate(who, change),
                None => self.undecoded(),
            },
            SCHEDULER | SCHEDULER_BEFORE if record.event & 0xfff == SWITCH => self.switch(record),
            _ if record.event == LOST_RECORDS => self.lost_records(record),
            _ => {}
        }
    }

    fn undecoded(&mut self) {
        self.found.undecoded += 1;
    }

    #[inline(always)]
    fn entry_or_exit(&mut self, record: &Record<'_>) {
        let kind = record.event & 0xfff & !WIDE & !NESTED;
        if kind == VMENTRY {
            self.found.entries += 1;
            self.placement.push(Kind::Entry, Event::NO_NUMBER, 0);
        } else if kind == VMX_EXIT || kind == SVM_EXIT {
            let wide = record.event & WIDE != 0;
            let rip = if wide { record.pair(1) } else { record.word(1).map(u64::from) };
            let (Some(code), Some(rip)) = (record.word(0), rip) else { return self.undecoded() };
            let reason = self.reason(kind, code, record.event & NESTED != 0);
            self.found.exits += 1;
            self.placement.push(Kind::Exit, Event::exit(reason), rip);
        }
    }

    fn reason(&mut self, kind: u32, code: u32, nested: bool) -> ExitReason {
        let isa = if self.reasons.forced {
            self.reasons.isa
        } else if kind == SVM_EXIT || nested {
            // Only SVM sets the flag for nested guests.
            Isa::Svm
        } else {
            self.found.unsaid += 1;
            self.reasons.isa
        };
        self.found.not_vmx += u64::from(isa == Isa::Vmx && !can_be_vmx(code));
        ExitReason { isa, code }
    }

    #[inline(always)]
    fn handler(&mut self, record: &Record<'_>) {
        let write = record.event & WRITE != 0;
        match record.event & 0xfff & !WIDE & !WRITE {
            number @ (MSR_READ | MSR_WRITE) => {
                let (Some(msr), Some(content)) = (record.word(0), record.pair(1)) else {
                    return self.undecoded();
                };
                let kind = if number == MSR_READ { Kind::MsrRead } else { Kind::MsrWrite };
                self.access(kind, u64::from(msr), content);
            }
            IOPORT => {
                let Some(port) = record.word(0) else { return self.undecoded() };
                let kind = if write { Kind::PortWrite } else { Kind::PortRead };
                // The data of string instructions is not recorded.
                self.access(kind, u64::from(port), u64::from(record.word(1).unwrap_or(0)));
            }
            IOMEM => self.memory(record, write),
            _ => {}
        }
    }

    /// `hvmtrace_io_assist` of `xen/arch/x86/hvm/emulate.c`: the address, and the data in as many words as the
    /// address has, unless it is that of a string instruction; before Xen 4.14 always in one word.
    fn memory(&mut self, record: &Record<'_>, write: bool) {
        let wide = record.event & WIDE != 0;
        let address = if wide { record.pair(0) } else { record.word(0).map(u64::from) };
        let Some(address) = address else { return self.undecoded() };
        let first = if wide { 2 } else { 1 };
        let content = record.pair(first).or(record.word(first).map(u64::from)).unwrap_or(0);
        let register = address & 0xfff;
        let (kind, value) = match (address - register == APIC_PAGE, write) {
            (true, false) => (Kind::ApicRead, register),
            (true, true) => (Kind::ApicWrite, register),
            (false, false) => (Kind::MmioRead, address),
            (false, true) => (Kind::MmioWrite, address),
        };
        self.access(kind, value, content);
    }

    /// A handler's record has no ticks; it follows the exit that it belongs to.
    fn access(&mut self, kind: Kind, value: u64, extra: u64) {
        if self.placement.has_time() {
            self.placement.push(kind, value, extra);
        }
    }

    fn switch(&mut self, record: &Record<'_>) {
        let vcpu = |number| DomainVcpu::new(record.word(number)?, record.word(number + 1)?);
        let (from, to) = (vcpu(0), vcpu(2));
        self.placement.switch(from, to);
    }

    /// `insert_lost_records` of `xen/common/trace.c`: the number of lost records, the vCPU that was running when
    /// recording resumed, and the time of the first loss.
    fn lost_records(&mut self, record: &Record<'_>) {
        let who = record.word(1).and_then(|word| DomainVcpu::new(word & 0xffff, word >> 16));
        self.placement.lost_records(u64::from(record.word(0).unwrap_or(0)), record.pair(2), who);
    }
}
