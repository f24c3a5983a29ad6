use super::*;
use conclusions::activation::VcpuState;
use exits::{Inhibits, KernelVersion};
use std::fs;

fn state(reasons: &[InhibitReason], active: bool) -> VmState {
    let numbers = reasons.iter().map(|reason| 1 << numbering().number(*reason).unwrap());
    let vcpu = VcpuState {
        number: 0,
        active: Some(active),
        in_kernel_apic: Some(true),
        x2apic: None,
        controls: None,
        posted_to: None,
    };
    VmState { inhibits: Some(Inhibits(numbers.sum())), irqchip: None, pit_reinjects: None, vcpus: vec![vcpu] }
}

fn numbering() -> InhibitNumbering {
    InhibitNumbering::of_kernel(KernelVersion::new(6, 12))
}

fn judged(expected: Expected, reasons: &[InhibitReason], active: bool) -> Option<String> {
    judge(expected, &state(reasons, active), &numbering()).unwrap()
}

#[test]
fn the_reason_that_was_asked_for_must_hold() {
    let pit = Expected::Inhibited(InhibitReason::PitReinject);
    assert_eq!(judged(pit, &[InhibitReason::PitReinject], false), None);
    let why = judged(pit, &[InhibitReason::Absent], false).unwrap();
    assert!(why.contains("PIT_REINJ should inhibit") && why.contains("in force: ABSENT"), "{why}");
    assert!(judged(pit, &[], true).unwrap().contains("in force: none"));
}

#[test]
fn what_must_be_active_may_be_inhibited_in_passing_only() {
    assert_eq!(judged(Expected::Active, &[], true), None);
    assert_eq!(judged(Expected::Active, &[InhibitReason::IrqWindow], false), None);
    assert!(judged(Expected::Active, &[InhibitReason::Absent], false).is_some());
    let why = judged(Expected::Active, &[InhibitReason::HyperV, InhibitReason::IrqWindow], false).unwrap();
    assert!(why.ends_with("inhibited by HYPERV"), "{why}");
}

#[test]
fn what_must_be_off_is_not_active() {
    assert_eq!(judged(Expected::Off, &[InhibitReason::Disabled], false), None);
    assert!(judged(Expected::Off, &[], true).unwrap().contains("active for 1 vCPU"));
}

#[test]
fn what_the_kernel_does_not_tell_is_no_contradiction() {
    let unknown = VmState { inhibits: None, ..state(&[], true) };
    assert!(judge(Expected::Active, &unknown, &numbering()).is_err());
    let unnumbered = InhibitNumbering::of_kernel(KernelVersion::new(0, 0));
    assert!(judge(Expected::Inhibited(InhibitReason::PitReinject), &state(&[], true), &unnumbered).is_err());
}

fn level(text: &str) -> Level {
    toml::from_str(&format!("name = \"x\"\n{text}")).unwrap()
}

#[test]
fn what_is_expected_follows_from_the_levels() {
    for (text, wanted) in [
        ("inhibit = \"pit-reinject\"", Some(Expected::Inhibited(InhibitReason::PitReinject))),
        ("inhibit = \"none\"", Some(Expected::Active)),
        ("module_parameters = { kvm_amd = { avic = true } }", Some(Expected::Active)),
        (
            "inhibit = \"pit-reinject\"\nmodule_parameters = { kvm_amd = { avic = true } }",
            Some(Expected::Inhibited(InhibitReason::PitReinject)),
        ),
        ("module_parameters = { kvm_intel = { enable_apicv = \"N\" } }", Some(Expected::Off)),
        ("module_parameters = { kvm_amd = { avic = \"auto\" } }", None),
        ("guests = { vcpus = 2 }", None),
    ] {
        assert_eq!(expected(&[&level("guests = {}"), &level(text)]), wanted, "{text}");
    }
}

#[test]
fn a_value_that_changed_during_the_run_is_a_contradiction() {
    let root = tempfile::tempdir().unwrap();
    host::fake::unpack("== /proc/sys/kernel/numa_balancing\n1\n", root.path()).unwrap();
    let level = level("kernel_settings = { \"kernel.numa_balancing\" = 0, \"kernel.gone\" = 1 }");
    let found = in_force(root.path(), &[&level], &[]);
    assert!(found.contradictions[0].contains("numa_balancing is 1 during the run"), "{found:?}");
    assert!(found.unverified[0].contains("kernel/gone cannot be read"), "{found:?}");
    fs::write(root.path().join("proc/sys/kernel/numa_balancing"), "0\n").unwrap();
    assert!(in_force(root.path(), &[&level], &[]).contradictions.is_empty());
}

#[test]
fn a_frequency_that_changed_during_the_run_is_a_contradiction() {
    let root = tempfile::tempdir().unwrap();
    let home = "/sys/devices/system/cpu/cpu1/cpufreq";
    let text = format!(
        "== {home}/scaling_governor\nuserspace\n== {home}/scaling_min_freq\n1200000\n== {home}/scaling_max_freq\n1200000\n"
    );
    host::fake::unpack(&text, root.path()).unwrap();
    let level = level("frequency = { cpus = \"1\", governor = \"userspace\", maximum = \"1200MHz\" }");
    assert_eq!(in_force(root.path(), &[&level], &[]), InForce::default());
    fs::write(root.path().join("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq"), "2700000\n").unwrap();
    let found = in_force(root.path(), &[&level], &[]);
    let what = "The highest frequency of CPU 1 is 2700000kHz during the run; its level sets 1200MHz";
    assert_eq!(found.contradictions, [what]);
    fs::remove_dir_all(root.path().join("sys")).unwrap();
    let found = in_force(root.path(), &[&level], &[]);
    assert!(found.unverified[0].starts_with("Frequencies cannot be read: "), "{found:?}");
}

#[test]
fn a_way_that_the_processor_does_not_have_is_a_contradiction() {
    let root = tempfile::tempdir().unwrap();
    host::fake::unpack("== /sys/module/kvm_intel/\n== /proc/stat\ncpu 1 2 3 4\n", root.path()).unwrap();
    let found = in_force(root.path(), &[&level("inhibit = \"pit-reinject\"")], &[]);
    assert!(found.contradictions[0].contains("no inhibit reason PIT_REINJ"), "{found:?}");
    let guest = SampledGuest { name: "web".to_owned(), process: 4000 };
    let found = in_force(root.path(), &[&level("inhibit = \"none\"")], &[guest]);
    assert!(found.unverified[0].contains("guest web has no VM"), "{found:?}");
}
