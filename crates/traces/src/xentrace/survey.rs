//! A survey of the beginning of a recording, for facts about all of it.

use exits::Isa;

use super::clock::Comparison;
use super::event::{
    ENTRY_EXIT, HANDLER, NESTED, RUNSTATES, SCHEDULER, SVM_EXIT, SWITCH, SWITCH_INFCONT, SWITCH_INFPREV,
    VMX_EXIT, WIDE,
};
use super::isa::Evidence;
use super::owner::{DomainVcpu, RunstateChange, change};
use super::record::Record;
use super::records::{Item, Records};
use crate::input::Failure;

/// Class and subclass: bits 27:12 of an event.
const fn class(event: u32) -> u32 {
    event >> 12
}

/// Facts that are needed before the first event is decoded.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// True if there are scheduler events of each kind.
    pub(super) runstates: bool,
    pub(super) switches: bool,
    /// The evidence for the instruction set of exits whose event does not determine it.
    pub(super) evidence: Evidence,
    /// The estimated TSC frequency.
    pub(super) hz: Option<u64>,
}

/// The last exit of a CPU, and when its vCPU began to run.
#[derive(Debug, Clone, Copy, Default)]
struct Latest {
    exit: Option<u32>,
    began: Option<(DomainVcpu, u64)>,
}

impl Survey {
    /// Surveys the first bytes of a recording.
    pub(super) fn of(start: &[u8]) -> Self {
        let mut records = Records::new(Box::new(std::io::Cursor::new(start.to_vec())), Failure::default());
        let mut survey = Self::default();
        let mut comparison = Comparison::default();
        let mut processors = std::collections::BTreeMap::<u16, Latest>::new();
        let mut cpu = 0;
        while let Some(item) = records.next() {
            match item {
                Item::Window(window) => cpu = window.cpu,
                Item::Gap { .. } => processors.clear(),
                Item::Pause => {}
                Item::Record(record) => {
                    survey.record(&record, processors.entry(cpu).or_default(), &mut comparison);
                }
            }
        }
        survey.hz = comparison.frequency();
        survey
    }

    fn record(&mut self, record: &Record<'_>, latest: &mut Latest, comparison: &mut Comparison) {
        match class(record.event) {
            RUNSTATES => {
                self.runstates = true;
                if let Some((who, RunstateChange::Enters)) = change(record) {
                    latest.began = record.ticks.map(|ticks| (who, ticks));
                }
            }
            SCHEDULER => self.scheduler(record, latest, comparison),
            ENTRY_EXIT => {
                let exit = record.event & 0xfff & !WIDE & !NESTED;
                if exit == VMX_EXIT || exit == SVM_EXIT {
                    latest.exit = record.word(0).filter(|_| exit == VMX_EXIT);
                    latest.exit.into_iter().for_each(|code| self.evidence.exit(code));
                } else {
                    latest.exit = None;
                }
            }
            HANDLER => {
                if let Some(code) = latest.exit {
                    self.evidence.handler(record.event, code, record.len());
                }
            }
            _ => {}
        }
    }

    fn scheduler(&mut self, record: &Record<'_>, latest: &Latest, comparison: &mut Comparison) {
        // The vCPU and its running time; Xen before 4.9 omits the vCPU.
        let (vcpu, ran) = match (record.event & 0xfff, record.len()) {
            (SWITCH, _) => {
                self.switches = true;
                return;
            }
            (SWITCH_INFPREV, 2) => (None, record.word(1)),
            (SWITCH_INFPREV, 3) | (SWITCH_INFCONT, 4) => (record.word(1), record.word(2)),
            _ => return,
        };
        let (Some((who, began)), Some(domain), Some(ran), Some(ticks)) =
            (latest.began, record.word(0), ran, record.ticks)
        else {
            return;
        };
        if u32::from(who.domain) == domain && vcpu.is_none_or(|vcpu| vcpu == u32::from(who.vcpu)) {
            comparison.add(ran, ticks.saturating_sub(began));
        }
    }

    /// The instruction set of exits whose event does not determine it, and whether it is doubtful.
    pub(super) fn isa(&self) -> (Isa, bool) {
        // Without evidence, VMX as in xenalyze.
        let verdict = self.evidence.verdict();
        (verdict.unwrap_or(Isa::Vmx), verdict.is_none() || self.evidence.is_weak())
    }
}
