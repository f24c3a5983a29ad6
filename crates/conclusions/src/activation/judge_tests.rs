use super::*;
use crate::activation::{Controls, InhibitSeen};
use exits::{Inhibits, KernelVersion};

/// Numbers of Linux 6.12.
const BLOCKIRQ: u32 = 3;
const IRQWIN: u32 = 8;
const PIT_REINJ: u32 = 9;

const DELIVERS: Controls = Controls::Vmx { pin: 1 << 7, secondary: 1 << 9 | 1 << 4, tertiary: None };
const AVIC: Controls = Controls::Svm { int_ctl: 1 << 31 };
const X2AVIC: Controls = Controls::Svm { int_ctl: 3 << 30 };

fn vcpu(number: u32, active: Option<bool>, x2apic: bool, controls: Option<Controls>) -> VcpuState {
    VcpuState { number, active, in_kernel_apic: Some(true), x2apic: Some(x2apic), controls, posted_to: None }
}

fn state(mask: u64, vcpus: Vec<VcpuState>) -> VmState {
    VmState { inhibits: Some(Inhibits(mask)), irqchip: None, pit_reinjects: None, vcpus }
}

fn two(mask: u64, active: [bool; 2]) -> VmState {
    let vcpus = [0, 1].map(|number| vcpu(number, Some(active[number as usize]), true, Some(DELIVERS)));
    state(mask, vcpus.to_vec())
}

struct Seen<'a> {
    isa: Option<Isa>,
    enabled: Option<bool>,
    cpu_denies: bool,
    samples: Vec<VmState>,
    changes: &'a [InhibitSeen],
    signs: Option<ExitSigns>,
}

impl Default for Seen<'_> {
    fn default() -> Self {
        Self {
            isa: Some(Isa::Vmx),
            enabled: Some(true),
            cpu_denies: false,
            samples: Vec::new(),
            changes: &[],
            signs: None,
        }
    }
}

fn verdict(seen: &Seen<'_>) -> Activation {
    let numbering = InhibitNumbering::of_kernel(KernelVersion::new(6, 12));
    judge(&Evidence {
        isa: seen.isa,
        enabled: seen.enabled,
        cpu_denies: seen.cpu_denies,
        samples: &seen.samples,
        changes: seen.changes,
        signs: seen.signs.as_ref(),
        numbering: &numbering,
    })
}

fn names(activation: &Activation) -> Vec<&str> {
    activation.reasons.iter().map(|one| one.reason.map_or("?", InhibitReason::name)).collect()
}

#[test]
fn the_mask_and_the_vcpus_decide() {
    let table: [(u64, [bool; 2], Status, &[&str]); 6] = [
        (0, [true, true], Status::Active, &[]),
        (0, [true, false], Status::Partly, &[]),
        (0, [false, false], Status::Inhibited, &[]),
        (1 << PIT_REINJ, [false, false], Status::Inhibited, &["PIT_REINJ"]),
        // vCPUs that have not run since are still marked active.
        (1 << PIT_REINJ | 1 << BLOCKIRQ, [true, true], Status::Inhibited, &["BLOCKIRQ", "PIT_REINJ"]),
        (1 << 40, [false, false], Status::Inhibited, &["?"]),
    ];
    for (mask, active, status, reasons) in table {
        let judged = verdict(&Seen { samples: vec![two(mask, active)], ..Seen::default() });
        assert_eq!((judged.status, names(&judged)), (status, reasons.to_vec()), "{mask:#x} {active:?}");
        let mode = if status == Status::Inhibited { Mode::None } else { Mode::Apicv };
        assert_eq!(judged.mode, Some(mode));
        assert_eq!(judged.vcpus, 2);
        assert!(status != Status::Inhibited || judged.active_vcpus == 0, "{mask:#x} {active:?}");
    }
}

#[test]
fn idle_vcpus_are_named_and_no_reason_is_invented() {
    let judged = verdict(&Seen { samples: vec![two(0, [true, false])], ..Seen::default() });
    assert_eq!((judged.active_vcpus, judged.doubts), (1, vec![Doubt::InactiveVcpus(vec![1])]));
}

#[test]
fn a_passing_reason_in_some_samples_leaves_it_active() {
    let samples = vec![two(0, [true; 2]), two(1 << IRQWIN, [false; 2]), two(0, [true; 2])];
    let judged = verdict(&Seen { samples: samples.clone(), ..Seen::default() });
    assert_eq!(judged.status, Status::Active);
    let [Doubt::Passing(passing)] = &judged.doubts[..] else { panic!("{judged:?}") };
    assert_eq!((passing.reason, passing.samples), (Some(InhibitReason::IrqWindow), 1));

    let at_the_end = Seen { samples: samples[..2].to_vec(), ..Seen::default() };
    assert_eq!(verdict(&at_the_end).status, Status::Active);
    let always = Seen { samples: vec![samples[1].clone(); 3], ..Seen::default() };
    assert_eq!(names(&verdict(&always)), ["IRQWIN"]);
    let one_sample = verdict(&Seen { samples: vec![samples[1].clone()], ..Seen::default() });
    assert_eq!((one_sample.status, names(&one_sample)), (Status::Active, vec![]));
    assert!(matches!(&one_sample.doubts[..], [Doubt::Passing(_)]), "{one_sample:?}");
}

#[test]
fn all_samples_count_not_only_the_last() {
    let of = |samples: Vec<VmState>| verdict(&Seen { isa: Some(Isa::Svm), samples, ..Seen::default() });
    // Its controls lack x2AVIC while the vCPU runs a nested guest.
    let one = |active: bool| {
        let controls = if active { X2AVIC } else { Controls::Svm { int_ctl: 0 } };
        state(0, vec![vcpu(0, Some(active), true, Some(controls)), vcpu(1, Some(true), true, Some(X2AVIC))])
    };
    let nested = |last: bool| {
        let mut samples = vec![one(false); 9];
        samples.extend([one(!last), one(last)]);
        of(samples)
    };
    for judged in [nested(true), nested(false)] {
        assert_eq!((judged.status, judged.mode), (Status::Partly, Some(Mode::X2avic)));
        assert_eq!(judged.active_vcpus, 1);
        assert_eq!(judged.doubts, [Doubt::SometimesInactive { vcpus: vec![0], samples: 10 }]);
    }
    let window = |set: usize| {
        let samples =
            (0..11).map(|at| if at < set { two(1 << IRQWIN, [false; 2]) } else { two(0, [true; 2]) });
        of(samples.collect())
    };
    assert_eq!((window(10).status, window(10).active_vcpus), (Status::Partly, 0));
    assert_eq!((window(1).status, window(1).active_vcpus), (Status::Active, 2));
}

#[test]
fn a_vcpu_that_takes_up_a_cleared_reason_late_does_not_count() {
    let of = |inactive: usize, mask: Option<Inhibits>| {
        let samples = (0..11).map(|at| VmState { inhibits: mask, ..two(0, [true, at >= inactive]) });
        verdict(&Seen { isa: Some(Isa::Svm), samples: samples.collect(), ..Seen::default() })
    };
    let none = Some(Inhibits(0));
    for inactive in 0..=5 {
        let judged = of(inactive, none);
        assert_eq!(
            (judged.status, judged.active_vcpus, judged.doubts),
            (Status::Active, 2, vec![]),
            "{inactive}"
        );
    }
    assert_eq!(of(6, none).doubts, [Doubt::SometimesInactive { vcpus: vec![1], samples: 6 }]);
    // Without the mask, a reason of the VM may have come and gone.
    assert_eq!((of(6, None).status, of(6, None).doubts), (Status::Active, vec![]));
}

#[test]
fn a_reason_that_is_lifted_is_told_but_does_not_count() {
    let samples = vec![two(1 << PIT_REINJ, [false; 2]), two(0, [true; 2])];
    let judged = verdict(&Seen { samples, ..Seen::default() });
    assert_eq!(judged.status, Status::Active);
    assert!(
        matches!(&judged.doubts[..], [Doubt::Lifted(one)] if one.number == Some(PIT_REINJ)),
        "{judged:?}"
    );
}

#[test]
fn since_when_is_when_it_was_last_set() {
    let change = |after_ns, number, set| InhibitSeen { after_ns, set, number, mask: None };
    let changes = [
        change(5, BLOCKIRQ, true),
        // A request that does not change the reason.
        change(7, BLOCKIRQ, true),
        change(8, 4, false),
        change(10, BLOCKIRQ, false),
        change(20, BLOCKIRQ, true),
        // No number of a mask.
        change(21, u64::BITS, true),
    ];
    let samples = vec![two(0, [true; 2]), two(1 << BLOCKIRQ, [false; 2])];
    let judged = verdict(&Seen { samples, changes: &changes, ..Seen::default() });
    let [reason] = &judged.reasons[..] else { panic!("{judged:?}") };
    assert_eq!((reason.since_ns, reason.changes, reason.samples), (Some(20), 3, 1));
    assert!(judged.doubts.is_empty(), "{judged:?}");

    let before = vec![two(1 << BLOCKIRQ, [false; 2])];
    let judged = verdict(&Seen { samples: before, ..Seen::default() });
    assert_eq!(judged.reasons[0].since_ns, None);
}

#[test]
fn modes_of_amd() {
    let table = [
        (false, Some(AVIC), Mode::Avic),
        (true, Some(X2AVIC), Mode::X2avic),
        (true, Some(AVIC), Mode::HybridAvic),
        (true, None, Mode::Avic),
    ];
    for (x2apic, controls, mode) in table {
        let samples = vec![state(0, vec![vcpu(0, Some(true), x2apic, controls)])];
        let judged = verdict(&Seen { isa: Some(Isa::Svm), samples, ..Seen::default() });
        assert_eq!((judged.status, judged.mode), (Status::Active, Some(mode)));
    }
}

#[test]
fn evidence_that_does_not_fit_is_told() {
    let off = Controls::Svm { int_ctl: 0 };
    let samples = vec![state(0, vec![vcpu(3, Some(true), false, Some(off))])];
    let signs = Some(ExitSigns { windows: 4, ..ExitSigns::default() });
    let judged = verdict(&Seen { isa: Some(Isa::Svm), samples, signs, ..Seen::default() });
    assert_eq!(judged.doubts, [Doubt::ControlsDisagree(vec![3]), Doubt::WindowsSeen(4)]);

    let signs = Some(ExitSigns { eoi_induced: 2, ..ExitSigns::default() });
    let judged = verdict(&Seen { samples: vec![two(1 << PIT_REINJ, [false; 2])], signs, ..Seen::default() });
    assert_eq!(judged.doubts, [Doubt::OnlyWithItSeen(2)]);
}

#[test]
fn writes_of_cr8_that_exit_with_avic_active_are_a_fault_of_the_kernel() {
    let active = || vec![state(0, vec![vcpu(0, Some(true), false, Some(AVIC))])];
    let signs = Some(ExitSigns { exits: 900, cr8_writes: 800, ..ExitSigns::default() });
    let isa = Some(Isa::Svm);
    let judged = verdict(&Seen { isa, samples: active(), signs, ..Seen::default() });
    assert_eq!((judged.status, judged.doubts), (Status::Active, vec![Doubt::Cr8WritesSeen(800)]));
    // KVM has to intercept CR8 writes while AVIC is inhibited, even temporarily.
    let change = |after_ns, set| InhibitSeen { after_ns, set, number: IRQWIN, mask: None };
    let changes = [change(5, true), change(9, false)];
    let passing = Seen { isa, samples: active(), signs, changes: &changes, ..Seen::default() };
    assert!(!verdict(&passing).doubts.contains(&Doubt::Cr8WritesSeen(800)));
    let inhibited = vec![state(1 << PIT_REINJ, vec![vcpu(0, Some(false), false, None)])];
    let judged = verdict(&Seen { isa, samples: inhibited, signs, ..Seen::default() });
    assert_eq!((judged.status, judged.doubts), (Status::Inhibited, vec![]));
}

#[test]
fn emulated_writes_that_an_active_state_avoids_are_told() {
    let doubts = |isa, controls, signs, changes: &[InhibitSeen]| {
        let samples = vec![state(0, vec![vcpu(0, Some(true), true, Some(controls))])];
        let judged =
            verdict(&Seen { isa: Some(isa), samples, signs: Some(signs), changes, ..Seen::default() });
        assert_eq!(judged.status, Status::Active);
        judged.doubts
    };
    let signs = ExitSigns { exits: 9000, eoi_writes: 4000, tpr_writes: 1, ..ExitSigns::default() };
    assert_eq!(doubts(Isa::Vmx, DELIVERS, signs, &[]), [Doubt::RegisterWritesSeen(4001)]);
    assert_eq!(doubts(Isa::Svm, X2AVIC, signs, &[]), [Doubt::RegisterWritesSeen(4001)]);
    // Without x2AVIC all registers of the x2APIC exit, and EOIs of level-triggered interrupts are handed back.
    assert!(doubts(Isa::Svm, AVIC, signs, &[]).is_empty());
    let level = ExitSigns { exits: 9000, eoi_writes: 4000, handed_back: 4000, ..ExitSigns::default() };
    assert!(doubts(Isa::Svm, X2AVIC, level, &[]).is_empty());
    let change = |after_ns, set| InhibitSeen { after_ns, set, number: IRQWIN, mask: None };
    let passing = doubts(Isa::Vmx, DELIVERS, signs, &[change(5, true), change(9, false)]);
    assert!(matches!(&passing[..], [Doubt::Passing(_)]), "{passing:?}");
}

#[test]
fn without_kvms_state_exits_decide_and_without_exits_the_parameter() {
    let exits = |windows, eoi_writes, handed_back| {
        Some(ExitSigns { exits: 100, windows, eoi_writes, handed_back, ..ExitSigns::default() })
    };
    let (vmx, svm) = (Some(Isa::Vmx), Some(Isa::Svm));
    let table = [
        (vmx, Some(true), exits(1, 9, 0), Status::Inhibited),
        (vmx, Some(true), exits(0, 0, 3), Status::Active),
        (vmx, Some(true), exits(0, 9, 3), Status::Partly),
        (vmx, Some(true), exits(0, 0, 0), Status::Unknown),
        (vmx, None, None, Status::Unknown),
        (vmx, Some(false), exits(0, 0, 3), Status::Inhibited),
        (svm, Some(true), exits(0, 9, 0), Status::Unknown),
        (svm, Some(true), exits(2, 9, 0), Status::Inhibited),
        (svm, Some(true), exits(0, 9, 5), Status::Active),
        (None, None, exits(0, 9, 5), Status::Unknown),
    ];
    for (isa, enabled, signs, status) in table {
        let judged = verdict(&Seen { isa, enabled, signs, ..Seen::default() });
        assert_eq!(judged.status, status, "{isa:?} {enabled:?} {signs:?}");
        assert_eq!(judged.doubts.is_empty(), status == Status::Unknown);
    }
    let judged = verdict(&Seen { enabled: Some(false), ..Seen::default() });
    assert_eq!(names(&judged), ["DISABLED"]);
}

#[test]
fn a_state_without_the_fields_is_as_none() {
    let unread = VmState {
        inhibits: None,
        irqchip: None,
        pit_reinjects: None,
        vcpus: vec![vcpu(0, None, false, None)],
    };
    let judged = verdict(&Seen { samples: vec![unread.clone()], ..Seen::default() });
    assert_eq!((judged.status, judged.vcpus), (Status::Unknown, 1));
    // Without the vCPUs' state, a mask with a bit set means inhibited, and an empty mask proves nothing.
    let mask = |mask| VmState { inhibits: Some(Inhibits(mask)), ..unread.clone() };
    let status = |mask_value| verdict(&Seen { samples: vec![mask(mask_value)], ..Seen::default() }).status;
    assert_eq!((status(1 << PIT_REINJ), status(0)), (Status::Inhibited, Status::Unknown));
}

#[test]
fn an_avic_that_the_cpu_denies_is_believed_by_its_exits_alone() {
    let samples = || vec![state(0, vec![vcpu(0, Some(true), false, Some(AVIC))])];
    let forced = |signs| {
        verdict(&Seen { isa: Some(Isa::Svm), cpu_denies: true, samples: samples(), signs, ..Seen::default() })
    };
    let judged = forced(Some(ExitSigns { exits: 9, ..ExitSigns::default() }));
    assert_eq!((judged.status, judged.doubts), (Status::Unknown, vec![Doubt::CpuDenies]));
    let shown = forced(Some(ExitSigns { incomplete_ipis: 1, ..ExitSigns::default() }));
    assert_eq!((shown.status, shown.mode), (Status::Active, Some(Mode::Avic)));
    let inhibited =
        Seen { cpu_denies: true, samples: vec![two(1 << PIT_REINJ, [false; 2])], ..Seen::default() };
    assert_eq!(verdict(&inhibited).status, Status::Inhibited);
}
