//! The rows of one VM.

use std::collections::BTreeMap;

use super::already::{is_active, is_active_throughout};
use super::evidence::{Evidence, VMGEXIT, accesses, is_msr};
use super::kicks::{host_rate, is_interrupt, kicks};
use super::register::{Mode, Register, other_msr};
use super::row::Rows;
use super::share::time_of_part;
use super::split::{Piece, split};
use super::{Assumption, Part, PredictedRow, Range, Rule};
use exits::{Access, Direction, ExitLevels, ExitReason, Exits, HandlingTime, Hypervisor, Isa, VcpuExits};

/// Adds the rows of the VM with these vCPUs.
pub(super) fn predict_vm(
    vcpus: &[&VcpuExits],
    evidence: &Evidence,
    observed_ns: u64,
    assumption: &Assumption,
    rows: &mut Rows,
) {
    let ticks = if assumption.hypervisor == Hypervisor::Xen { 0 } else { assumption.host_tick_hz };
    let tick_hz = host_rate(vcpus, observed_ns, ticks);
    let mut add = |row: PredictedRow| {
        let why = if assumption.lacks_avic(row.reason.isa) {
            Some(Rule::NoAvicInXen)
        } else {
            evidence.has_sev.then_some(Rule::InhibitedBySev)
        };
        rows.add(match why {
            Some(rule) => kept(row, rule),
            None => row,
        });
    };
    let (mut reasons, mut by_access) = (BTreeMap::<ExitReason, Exits>::new(), BTreeMap::new());
    for vcpu in vcpus {
        let ExitLevels { l1, l2 } = vcpu.levels();
        for (reason, Exits { count, handling }) in l2 {
            let time_ns = handling.total_ns();
            add(row(reason, Part::Nested, Rule::Nested, count, time_ns, &handling, Range::NONE));
        }
        let (of_host, of_guest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            l1.into_iter().partition(|(reason, _)| is_interrupt(*reason));
        for (reason, exits) in of_guest {
            reasons.entry(reason).or_default().merge(&exits);
        }
        for (&reason, exits) in &of_host {
            let kicks = || kicks(vcpu, exits.count, evidence, observed_ns, tick_hz);
            add(interrupts(reason, exits, evidence, assumption, &kicks));
        }
        for (access, exits) in accesses(vcpu) {
            by_access.entry(access).or_insert_with(Exits::default).merge(exits);
        }
    }
    let vm = Vm { evidence, assumption, has_apic_access: reasons.contains_key(&ExitReason::vmx(44)) };
    for (&reason, exits) in &reasons {
        vm.reason(reason, exits, &by_access).into_iter().for_each(&mut add);
    }
}

/// The row if interrupt virtualization is not used, for the reason that `why` has: no exit is avoided.
fn kept(row: PredictedRow, why: Rule) -> PredictedRow {
    let rule = match row.rule {
        rule @ (Rule::Idle | Rule::Nested | Rule::NotTheApicPage | Rule::OtherRegister | Rule::Unrelated) => {
            rule
        }
        _ => why,
    };
    PredictedRow { rule, gone_exits: Range::NONE, gone_time_ns: Range::NONE, becomes: None, ..row }
}

fn interrupts(
    reason: ExitReason,
    exits: &Exits,
    evidence: &Evidence,
    assumption: &Assumption,
    kicks: &dyn Fn() -> Range,
) -> PredictedRow {
    let posted = reason.isa == Isa::Svm || assumption.apicv.posted_interrupts;
    let (rule, gone) = if posted && !is_active_throughout(evidence) {
        (Rule::Kick, kicks())
    } else {
        (Rule::HostInterrupt, Range::NONE)
    };
    row(reason, Part::Whole, rule, exits.count, exits.handling.total_ns(), &exits.handling, gone)
}

fn row(
    reason: ExitReason,
    part: Part,
    rule: Rule,
    exits: u64,
    time_ns: u64,
    times: &HandlingTime,
    gone_exits: Range,
) -> PredictedRow {
    let gone_time_ns = time_of_part(times, time_ns, gone_exits, exits);
    PredictedRow { reason, part, rule, exits, time_ns, gone_exits, gone_time_ns, becomes: None }
}

/// The facts of a VM that are common to the rows of all reasons.
struct Vm<'a> {
    evidence: &'a Evidence,
    assumption: &'a Assumption,
    has_apic_access: bool,
}

impl Vm<'_> {
    fn reason(
        &self,
        reason: ExitReason,
        exits: &Exits,
        by_access: &BTreeMap<Access, Exits>,
    ) -> Vec<PredictedRow> {
        let whole = |rule: Rule, part: f64| {
            let gone = Range::exactly(exits.count as f64 * part);
            let (time_ns, times) = (exits.handling.total_ns(), &exits.handling);
            vec![row(reason, Part::Whole, rule, exits.count, time_ns, times, gone)]
        };
        if is_msr(reason, None) {
            let ours = by_access.iter().filter(|(access, _)| {
                matches!(access, Access::Msr { direction, .. } if is_msr(reason, Some(*direction)))
            });
            // Both forms of the instruction have the same events. Attribute these to the older form.
            let shared = matches!((reason.isa, reason.code), (Isa::Vmx, 84 | 85));
            let ours = ours.filter(|_| !shared).map(|(&access, exits)| (access, exits)).collect::<Vec<_>>();
            return self.pieces(reason, split(exits, &ours, true));
        }
        if self.may_be_the_page(reason) {
            let page = by_access.iter().filter(|(access, _)| {
                Register::of(**access).is_some_and(|register| register.mode == Mode::Xapic)
            });
            let page: Vec<_> = page.map(|(&access, exits)| (access, exits)).collect();
            return self.pieces(reason, split(exits, &page, false));
        }
        match (reason.isa, reason.code) {
            // With interrupt virtualization, windows are only needed for interrupts of a PIC.
            (Isa::Vmx, 7) | (Isa::Svm, 0x64) => vec![self.window(reason, exits)],
            (Isa::Vmx, 43) | (Isa::Svm, 0x08) => whole(Rule::TaskPriority, 1.0),
            (Isa::Svm, 0x18) => vec![self.cr8_writes(reason, exits)],
            (Isa::Vmx, 45 | 56) | (Isa::Svm, 0x401 | 0x402) => whole(Rule::LeftByHardware, 0.0),
            (Isa::Vmx, 52) => vec![self.timer_fires(reason, exits)],
            (Isa::Vmx, 8) | (Isa::Svm, 0x74) => whole(Rule::NmiWindow, 0.0),
            _ if reason.is_sleep() => whole(Rule::Idle, 0.0),
            (Isa::Vmx, 48 | 49) | (Isa::Svm, 0x400) => whole(Rule::NotTheApicPage, 0.0),
            _ if reason == VMGEXIT => whole(Rule::InhibitedBySev, 0.0),
            _ => whole(Rule::Unrelated, 0.0),
        }
    }

    /// Interrupt windows. Xen still needs them for guests with one callback vector for all vCPUs.
    fn window(&self, reason: ExitReason, exits: &Exits) -> PredictedRow {
        let whole = exits.count as f64;
        let low = if self.assumption.hypervisor == Hypervisor::Xen { 0.0 } else { whole };
        let (time_ns, times) = (exits.handling.total_ns(), &exits.handling);
        let gone = Range::within(low, whole, whole, whole);
        row(reason, Part::Whole, Rule::InterruptWindow, exits.count, time_ns, times, gone)
    }

    /// Exits by the preemption timer. KVM posts the timer's interrupts instead if APICv is active and the guest halts
    /// without exits, unless `pi_inject_timer` is off (`kvm_can_use_hv_timer` in `arch/x86/kvm/lapic.c`).
    fn timer_fires(&self, reason: ExitReason, exits: &Exits) -> PredictedRow {
        let of_kvm = self.assumption.hypervisor == Hypervisor::Kvm;
        let may_be_posted = of_kvm && self.evidence.halts == 0 && !is_active_throughout(self.evidence);
        let whole = exits.count as f64;
        let (rule, gone) = if may_be_posted {
            (Rule::TimerMayBePosted, Range::within(0.0, 0.0, whole, whole))
        } else {
            (Rule::TimerFires, Range::NONE)
        };
        row(reason, Part::Whole, rule, exits.count, exits.handling.total_ns(), &exits.handling, gone)
    }

    /// Writes to CR8: the processor does not need these exits, but KVM may keep the intercept.
    fn cr8_writes(&self, reason: ExitReason, exits: &Exits) -> PredictedRow {
        let whole = exits.count as f64;
        let (rule, gone) = match self.assumption.avic.keeps_cr8_intercept {
            // They occurred although AVIC was active.
            _ if is_active_throughout(self.evidence) => (Rule::Cr8Intercept, Range::NONE),
            Some(false) => (Rule::TaskPriority, Range::exactly(whole)),
            None if !is_active(self.evidence) => {
                (Rule::Cr8Intercept, Range::within(0.0, whole, whole, whole))
            }
            Some(true) | None => (Rule::Cr8Intercept, Range::within(0.0, 0.0, whole, whole)),
        };
        let (time_ns, times) = (exits.handling.total_ns(), &exits.handling);
        row(reason, Part::Whole, rule, exits.count, time_ns, times, gone)
    }

    /// Tests whether exits of this reason may be accesses to the APIC page: APIC_ACCESS exits, and MMIO faults (EPT
    /// misconfigurations and nested page faults) if the APIC page is emulated as MMIO.
    fn may_be_the_page(&self, reason: ExitReason) -> bool {
        let x2apic_only = self.evidence.x2apic > 0 && self.evidence.xapic == 0;
        match (reason.isa, reason.code) {
            (Isa::Vmx, 44) => true,
            (Isa::Vmx, 49) => self.evidence.xapic > 0 && !self.has_apic_access,
            (Isa::Svm, 0x400) => self.evidence.xapic > 0 || !(x2apic_only || self.evidence.page_recorded),
            _ => false,
        }
    }

    fn pieces(&self, reason: ExitReason, pieces: Vec<Piece<'_>>) -> Vec<PredictedRow> {
        let alone = pieces.len() == 1;
        let rows = pieces.into_iter().map(|Piece { part, exits, time_ns, times }| {
            let (part, rule, becomes) = match part {
                Part::Access(access) => self.access(reason, access),
                _ => (if alone { Part::Whole } else { Part::Rest }, self.rule_of_rest(reason), None),
            };
            let gone = match part {
                Part::Access(access) if rule == Rule::HyperVRegister => {
                    self.gone_to_apic(reason, access, exits)
                }
                _ => self.gone(reason, rule, exits),
            };
            PredictedRow { becomes, ..row(reason, part, rule, exits, time_ns, times, gone) }
        });
        rows.collect()
    }

    fn access(&self, reason: ExitReason, access: Access) -> (Part, Rule, Option<ExitReason>) {
        match (Register::of(access), access) {
            (Some(register), _) => {
                let fate = register.fate(reason.isa, self.assumption);
                let Register { offset, direction, mode } = register;
                let shown = match mode {
                    Mode::Xapic => Access::Apic { register: offset, direction },
                    Mode::X2apic => access,
                };
                (Part::Access(shown), fate.rule, fate.becomes.filter(|&becomes| becomes != reason))
            }
            (None, Access::Msr { number, direction }) => match other_msr(number) {
                Rule::TimerArm if direction == Direction::Read => (Part::Rest, Rule::OtherRegister, None),
                Rule::OtherRegister => (Part::Rest, Rule::OtherRegister, None),
                rule => {
                    let fate =
                        self.in_place_of(reason, access).map(|own| own.fate(reason.isa, self.assumption));
                    (Part::Access(access), rule, fate.and_then(|fate| fate.becomes))
                }
            },
            (None, _) => (Part::Rest, self.rule_of_rest(reason), None),
        }
    }

    /// The rule of exits without an event. An MMIO fault without an event was not an access to the APIC.
    fn rule_of_rest(&self, reason: ExitReason) -> Rule {
        let fault = matches!((reason.isa, reason.code), (Isa::Vmx, 49) | (Isa::Svm, 0x400));
        if fault && (self.evidence.page_recorded || self.evidence.xapic > 0) {
            Rule::NotTheApicPage
        } else {
            Rule::NotSplit
        }
    }

    /// The register of its own APIC that a guest uses with APICv in place of Hyper-V's. Xen then no longer recommends
    /// Hyper-V's (`cpuid_viridian_leaves` in `xen/arch/x86/hvm/viridian/viridian.c`), KVM does.
    fn in_place_of(&self, reason: ExitReason, access: Access) -> Option<Register> {
        let leaves = self.assumption.hypervisor == Hypervisor::Xen && reason.isa == Isa::Vmx;
        Register::of_hyper_v(access).filter(|_| leaves && !is_active_throughout(self.evidence))
    }

    /// The number of accesses to one of Hyper-V's registers that would be avoided. A domain that was saved before keeps to
    /// these registers until it starts anew, so it may be none.
    fn gone_to_apic(&self, reason: ExitReason, access: Access, exits: u64) -> Range {
        self.in_place_of(reason, access).map_or(Range::NONE, |own| {
            let rule = own.fate(reason.isa, self.assumption).rule;
            Range { low: 0.0, ..self.gone(reason, rule, exits) }
        })
    }

    /// The number of `exits` that would be avoided.
    fn gone(&self, reason: ExitReason, rule: Rule, exits: u64) -> Range {
        let (whole, evidence) = (exits as f64, self.evidence);
        match rule {
            Rule::TaskPriority | Rule::SelfIpi | Rule::RegisterRead | Rule::IcrHigh => Range::exactly(whole),
            Rule::Eoi => {
                // Any EOI may be of a level-triggered interrupt: IPIs and timers can be fewer than the writes that send or
                // arm them.
                let level = evidence.acknowledged.map_or(whole, |seen| seen as f64);
                let ticks = self.ends_of_timers();
                Range::within(whole - level - ticks, whole - ticks, whole, whole)
            }
            Rule::X2avicIntercept if self.assumption.avic.passes_served_msrs.is_none() => {
                Range::within(0.0, whole, whole, whole)
            }
            // Nothing in a recording tells IPIs to oneself from others; they are few.
            Rule::IpiUnlessToOneself => Range::within(0.0, 0.0, whole, whole),
            // Multicast, broadcast and NMI IPIs still exit. Linux guests of KVM send to one target at a time.
            Rule::IpiByProcessor => Range::within(0.0, whole, whole, whole),
            Rule::IpiToRunning => {
                // IPIs to halted vCPUs still exit. Each halt ends with one interrupt, which may be an IPI.
                let to_halted = whole.min(evidence.halts as f64);
                Range::within(whole - to_halted, whole - to_halted / 2.0, whole, whole)
            }
            Rule::NotSplit => self.not_split(reason, whole),
            _ => Range::NONE,
        }
    }

    /// EOIs of the guest's timers, for which Xen requests EOI-induced exits. KVM does not. Many timers are armed again
    /// before they expire; those that do interrupt the host or end a sleep.
    fn ends_of_timers(&self) -> f64 {
        match self.assumption.hypervisor {
            Hypervisor::Kvm => 0.0,
            Hypervisor::Xen => self.evidence.timer_arms.min(self.evidence.may_be_timers) as f64,
        }
    }

    /// The avoided exits among accesses to unknown registers: between none and all.
    fn not_split(&self, reason: ExitReason, whole: f64) -> Range {
        if is_active_throughout(self.evidence) {
            return Range::NONE;
        }
        let x2apic_stays = reason.isa == Isa::Svm && reason.code == 0x7c && !self.assumption.avic.x2apic;
        if x2apic_stays {
            return Range::NONE;
        }
        // Most faults are accesses to memory and devices, and most MSR reads are not of the APIC's registers.
        let seldom = [ExitReason::svm(0x400), ExitReason::vmx(31), ExitReason::vmx(84)].contains(&reason);
        // An exit by an access to the APIC page without an event is an EOI.
        let ends_alone = reason == ExitReason::vmx(44) && self.evidence.page_recorded;
        let expected = match (seldom, ends_alone) {
            (true, _) => 0.0,
            (_, true) => whole - self.ends_of_timers(),
            _ => whole / 2.0,
        };
        let ends = self.evidence.all_eois.map_or(whole, |eois| eois as f64);
        let writes = is_msr(reason, Some(Direction::Write)) && reason.isa == Isa::Vmx;
        let ipis = self.assumption.apicv.ipi_virtualization;
        // Without IPI virtualization, nearly all avoided writes are EOIs.
        let high = if writes && !ipis { whole.min(ends) } else { whole };
        let expected = self.evidence.likely_eois.filter(|_| writes && !ipis).unwrap_or(expected);
        Range::within(0.0, expected, high, whole)
    }
}
