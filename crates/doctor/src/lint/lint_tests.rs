use super::cases::{self, amd, device, enlighten, feature, quiet, said};
use super::*;
use crate::Fix;
use domain::{CpuModel, DefinitionChange, DeviceKind, FeatureState, Irqchip, TickPolicy};
use exits::{CurePlace, InhibitReason, Isa};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn finding(rule: &str, vm: &Definition, host: &HostSide) -> Finding {
    lint(vm, host).into_iter().find(|finding| finding.rule == rule).unwrap()
}

fn fixes(finding: &Finding) -> bool {
    matches!(finding.state, State::Warn | State::Fail)
}

#[test]
fn every_rule_has_cases_that_fire_and_cases_that_do_not() {
    let cases = cases::all();
    let names: Vec<_> = rules().map(|rule| rule.name).collect();
    assert_eq!(names, cases.iter().map(|row| row.rule).collect::<Vec<_>>());
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for row in cases {
        assert!(!row.fires.is_empty() && !row.quiet.is_empty(), "{}", row.rule);
        for (number, (host, change)) in row.fires.iter().enumerate() {
            let mut vm = quiet();
            change(&mut vm);
            let finding = finding(row.rule, &vm, host);
            assert!(fixes(&finding), "{} {number}: {finding:?}", row.rule);
            // A finding has evidence and a fix.
            assert!(!finding.found.is_empty(), "{finding:?}");
            let absent = ["hyperv-stimer", "hyperv-time"].contains(&row.rule);
            assert!(absent || !finding.evidence.is_empty(), "{finding:?}");
            let emulated_with_wide_ids = row.rule == "x2apic" && finding.fixes.is_empty();
            assert!(emulated_with_wide_ids || !finding.fixes.is_empty(), "{finding:?}");
        }
        for (number, (host, change)) in row.quiet.iter().enumerate() {
            let mut vm = quiet();
            change(&mut vm);
            let finding = finding(row.rule, &vm, host);
            assert!(!fixes(&finding), "{} {number}: {finding:?}", row.rule);
        }
    }
}

#[test]
fn a_vm_in_order_has_nothing_to_fix() {
    for finding in lint(&quiet(), &HostSide::default()) {
        assert_eq!(finding.state, State::Pass, "{finding:?}");
    }
}

#[test]
fn a_pc_is_not_said_to_be_without_the_floppy_controller() {
    let mut vm = quiet();
    assert_eq!(finding("floppy", &vm, &HostSide::default()).found, "there is none");
    vm.machine.kind = Some(said("pc".to_owned(), "pc"));
    let found = finding("floppy", &vm, &HostSide::default()).found;
    assert_eq!(found, "there is none; pc always has the controller");
}

#[test]
fn rules_say_why_and_what_says_so_in_one_line() {
    for rule in rules() {
        assert!(rule.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte == b'2'));
        assert!((20..=130).contains(&rule.why.len()), "{}: {}", rule.name, rule.why.len());
        assert!(rule.source.len() > 10 && !rule.title.is_empty(), "{}", rule.name);
        assert!(!rule.why.contains('\n') && !rule.why.contains("  "), "{}", rule.name);
    }
}

#[test]
fn findings_that_stand_for_an_inhibit_reason_name_it_as_the_kernel_does() {
    let text = |rule, vm: &Definition, host: &HostSide| finding(rule, vm, host).found;
    let mut vm = quiet();
    vm.machine.irqchip = None;
    let pit = text("pit-lost-ticks", &vm, &HostSide::of_vendor(Isa::Svm));
    assert!(pit.contains(InhibitReason::PitReinject.name()), "{pit}");
    let x2apic = text("x2apic", &quiet(), &amd(Technology::Avic, 5, 15));
    assert!(x2apic.contains(InhibitReason::X2Apic.set_by()), "{x2apic}");
    enlighten(&mut vm, &["synic"]);
    assert!(text("hyperv-auto-eoi", &vm, &HostSide::default()).contains(InhibitReason::HyperV.name()));
}

#[test]
fn no_fix_adds_an_enlightenment_that_kvm_refuses_or_that_inhibits_by_itself() {
    let on = |name: &str| DefinitionChange::HyperV(name.to_owned(), true);
    let all = ["relaxed", "vapic", "vpindex", "time", "synic", "stimer", "avic"];
    for count in 1..=all.len() {
        let mut vm = quiet();
        enlighten(&mut vm, &all[..count]);
        for finding in lint(&vm, &cases::uncounted(true)) {
            for fix in &finding.fixes {
                let Fix::Definition(changes) = fix else { continue };
                let adds = changes.contains(&on("avic")) || changes.contains(&on("synic"));
                assert!(!adds, "{count}: {finding:?}");
            }
        }
    }
}

#[test]
fn the_first_fix_of_the_pit_is_the_one_of_the_irqchip() {
    let mut vm = quiet();
    vm.machine.irqchip = None;
    let side = HostSide::of_vendor(Isa::Svm);
    let split = Fix::Definition(vec![DefinitionChange::Irqchip(Irqchip::Split)]);
    let fixes = [Fix::Definition(vec![DefinitionChange::PitTickPolicy(TickPolicy::Discard)]), split];
    assert_eq!(finding("pit-lost-ticks", &vm, &side).fixes, fixes);
    assert_eq!(finding("irqchip", &vm, &side).fixes, fixes);
    // The cures of the inhibit reason are the same changes in the same order.
    for (place, changes) in
        [(CurePlace::Qemu, ["discard", "split"]), (CurePlace::Libvirt, ["discard", "ioapic driver='qemu'"])]
    {
        let cures = InhibitReason::PitReinject.cures().iter().filter(|cure| cure.place == place);
        let cures: Vec<_> = cures.map(|cure| cure.change).collect();
        assert_eq!(cures.len(), 2, "{cures:?}");
        assert!(cures.iter().zip(changes).all(|(cure, change)| cure.contains(change)), "{cures:?}");
    }
}

#[test]
fn avic_before_linux_5_6_needs_a_split_irqchip_and_nothing_else() {
    let mut vm = quiet();
    vm.machine.irqchip = None;
    feature(&mut vm, "svm", FeatureState::On);
    let split = Fix::Definition(vec![DefinitionChange::Irqchip(Irqchip::Split)]);
    assert_eq!(finding("irqchip", &vm, &amd(Technology::Avic, 5, 4)).fixes, [split]);
    let findings = lint(&vm, &amd(Technology::Avic, 5, 4));
    let fired: Vec<_> = findings.iter().filter(|one| fixes(one)).map(|one| one.rule.as_str()).collect();
    assert_eq!(fired, ["irqchip"]);
}

#[test]
fn no_fix_splits_the_irqchip_under_an_rtc_that_catches_up() {
    let splits = |fix: &Fix| match fix {
        Fix::Definition(changes) => {
            changes.contains(&DefinitionChange::Irqchip(Irqchip::Split))
                || changes.contains(&DefinitionChange::InterruptRemapping)
        }
        _ => false,
    };
    let split = |vm: &Definition, host: &HostSide| {
        let findings = lint(vm, host);
        findings.iter().flat_map(|finding| &finding.fixes).any(splits)
    };
    let machines: [fn(&mut Definition); 3] = [
        |vm| vm.machine.irqchip = None,
        |vm| vm.machine.irqchip = Some(said(Irqchip::UserSpace, "kernel-irqchip=off")),
        |vm| {
            vm.machine.irqchip = None;
            vm.vcpus.count = Some(said(380, "-smp 380"));
        },
    ];
    for machine in machines {
        for host in [amd(Technology::Avic, 5, 4), amd(Technology::X2Avic, 6, 12)] {
            let mut vm = quiet();
            machine(&mut vm);
            assert!(split(&vm, &host));
            vm.timers.rtc = Some(said(TickPolicy::CatchUp, "driftfix=slew"));
            assert!(!split(&vm, &host), "{:?}", lint(&vm, &host));
            // Windows with synthetic timers does not tick by the RTC.
            let mut enlightened = vm.clone();
            enlighten(&mut enlightened, &["stimer"]);
            vm.timers.rtc = Some(said(TickPolicy::Discard, "driftfix=none"));
            assert!(split(&enlightened, &host) && split(&vm, &host));
        }
    }
    let mut vm = quiet();
    vm.machine.irqchip = None;
    vm.timers.rtc = Some(said(TickPolicy::CatchUp, "driftfix=slew"));
    let of = |major, minor| finding("irqchip", &vm, &amd(Technology::Avic, major, minor)).fixes;
    assert_eq!(of(6, 12), [Fix::Definition(vec![DefinitionChange::PitTickPolicy(TickPolicy::Discard)])]);
    let told = of(5, 4);
    let wanted = ["hv-stimer", "-rtc driftfix=none", "<timer name='rtc' tickpolicy='delay'/>"];
    assert!(
        matches!(&told[..], [Fix::Advice(text)] if wanted.iter().all(|one| text.contains(one))),
        "{told:?}"
    );
}

#[test]
fn without_kvm_nothing_is_judged() {
    let mut vm = quiet();
    vm.machine.accelerator = Some(said(domain::Accelerator::Tcg, "-accel tcg"));
    let findings = lint(&vm, &HostSide::default());
    assert_eq!(findings.iter().filter(|finding| fixes(finding)).count(), 1);
    assert!(findings.iter().skip(1).all(|finding| matches!(finding.state, State::Skip(_))));
}

#[test]
fn evidence_tells_lines_of_xml_and_quotes_arguments() {
    let mut vm = quiet();
    feature(&mut vm, "kvm", FeatureState::Off);
    let evidence = |vm: &Definition| finding("kvm-hidden", vm, &HostSide::default()).evidence[0].clone();
    assert_eq!((evidence(&vm).place, evidence(&vm).value), ("argument".to_owned(), "kvm=Off".to_owned()));
    vm.form = Form::Libvirt;
    assert_eq!(evidence(&vm).place, "line 1");
}

#[test]
fn an_interface_gets_a_queue_pair_for_each_vcpu_up_to_eight() {
    for (vcpus, queues) in [(4, 4), (8, 8), (16, 8)] {
        let mut vm = quiet();
        vm.vcpus.count = Some(said(vcpus, "-smp"));
        vm.devices.push(device(DeviceKind::Network, "virtio-net-pci"));
        let wanted = Fix::Definition(vec![DefinitionChange::Queues { device: 0, queues }]);
        assert_eq!(finding("network-queues", &vm, &HostSide::default()).fixes, [wanted]);
    }
}

#[test]
fn a_disk_without_ioeventfd_gets_no_io_thread() {
    let disk = |ioeventfd: &str| {
        let mut disk = device(DeviceKind::Disk, "virtio-blk-pci");
        disk.properties.push(("driver@ioeventfd".to_owned(), ioeventfd.to_owned()));
        disk
    };
    let mut vm = quiet();
    vm.devices = vec![disk("off"), disk("on")];
    let thread = DefinitionChange::IoThread { device: 1, iothread: "iothread1".to_owned() };
    let found = finding("disk-iothread", &vm, &HostSide::default());
    assert_eq!(found.fixes, [Fix::Definition(vec![thread])]);
    vm.devices.pop();
    let found = finding("disk-iothread", &vm, &HostSide::default());
    assert!(
        matches!(&found.fixes[..], [Fix::Advice(advice)] if advice.contains("ioeventfd=off")),
        "{found:?}"
    );
}

#[test]
fn a_disk_gets_no_io_thread_that_libvirt_does_not_know() {
    let mut vm = quiet();
    vm.vcpus.count = Some(said(1, "-smp"));
    vm.devices.push(device(DeviceKind::Disk, "virtio-blk-pci"));
    let thread = domain::IoThread { id: "iothread1".to_owned(), cpus: None, unknown_to_libvirt: true };
    vm.iothreads.push(thread);
    let new = DefinitionChange::IoThread { device: 0, iothread: "iothread2".to_owned() };
    assert_eq!(finding("disk-iothread", &vm, &HostSide::default()).fixes, [Fix::Definition(vec![new])]);
}

#[test]
fn an_apic_id_without_room_is_told_with_both_limits() {
    let told = |vcpus: u32, host: &HostSide| {
        let mut vm = quiet();
        vm.vcpus.count = Some(said(vcpus, "-smp"));
        let finding = finding("apic-id", &vm, host);
        assert!(finding.evidence.iter().any(|one| one.place.contains("PHYSICAL_ID_TOO_BIG")), "{finding:?}");
        finding.found
    };
    let avic = amd(Technology::Avic, 6, 12);
    let both = "APIC ID 379 is too large for AVIC (limit 254); x2AVIC allows 511";
    assert_eq!([told(380, &avic), told(380, &HostSide::default())], [both, both]);
    let old = HostSide { largest_apic_id: Some(254), ..amd(Technology::X2Avic, 5, 15) };
    assert_eq!(told(380, &old), both);
    let beyond = "APIC ID 599 is too large for AVIC (limit 254), and for x2AVIC (limit 511)";
    assert_eq!(told(600, &avic), beyond);
    assert_eq!(told(600, &amd(Technology::X2Avic, 6, 12)), "APIC ID 599 is too large for x2AVIC (limit 511)");
}

#[test]
fn x2apic_is_not_taken_from_vcpus_that_cannot_start_without_it() {
    for host in [amd(Technology::X2Avic, 5, 15), amd(Technology::Avic, 6, 12)] {
        let mut vm = quiet();
        vm.vcpus.count = Some(said(380, "-smp"));
        let finding = finding("x2apic", &vm, &host);
        assert!(fixes(&finding), "{finding:?}");
        assert!(!finding.fixes.iter().any(|fix| matches!(fix, Fix::Definition(_))), "{finding:?}");
    }
}

#[test]
fn devices_of_a_kind_are_one_finding_with_one_change_each() {
    let mut vm = quiet();
    for number in 0..5 {
        let mut disk = device(DeviceKind::Disk, "ide-hd");
        disk.id = Some(format!("disk{number}"));
        vm.devices.push(disk);
    }
    let finding = finding("emulated-disk", &vm, &HostSide::default());
    assert_eq!(finding.found, "ide-hd (disk0), ide-hd (disk1) and 3 others");
    assert_eq!(finding.evidence.len(), 5);
    let [Fix::Definition(changes)] = &finding.fixes[..] else { panic!("{finding:?}") };
    let last = DefinitionChange::DeviceModel { device: 4, model: "virtio-blk-pci".to_owned() };
    assert_eq!((changes.len(), &changes[4]), (5, &last));
}

#[test]
fn sections_hold_the_same_findings_in_the_same_order() {
    let mut vm = quiet();
    vm.machine.irqchip = None;
    let sections = lint_by_group(&vm, &HostSide::default());
    let together: Vec<_> = sections.into_iter().flat_map(|section| section.findings).collect();
    assert_eq!(together, lint(&vm, &HostSide::default()));
}

proptest! {
    #[test]
    fn any_definition_is_judged_without_a_panic(
        cores: u32, threads: u32, dies: u32, count: u32, cpus in "[0-9,^-]{0,12}", machine in "\\PC{0,20}"
    ) {
        let mut vm = quiet();
        vm.vcpus.count = Some(said(count, "-smp"));
        vm.vcpus.cores = Some(said(cores, "cores"));
        vm.vcpus.threads = Some(said(threads, "threads"));
        vm.vcpus.dies = Some(said(dies, "dies"));
        vm.machine.kind = Some(said(machine, "-machine"));
        vm.machine.irqchip = None;
        vm.vcpu_pins = vec![said((0, cpus.clone()), "pin"), said((1, cpus.clone()), "pin")];
        vm.emulator_cpus = Some(said(cpus, "emulator"));
        vm.cpu.model = Some(said(CpuModel::Maximum, "-cpu max"));
        prop_assert_eq!(lint(&vm, &HostSide::default()).len(), rules().count());
    }
}
