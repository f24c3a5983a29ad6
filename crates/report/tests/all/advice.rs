//! Tests of advice against snapshots.

use std::collections::{BTreeMap, BTreeSet};

use advice::{Advice, Cure, Fact, Facts, Others, Table, advise, advise_beside, audit};
use exits::{Access, Direction, ExitReason, Exits, HandlingTime, Profile, Span, Vcpu};
use report::advice::{AdviceView, json, terminal};
use traces::{Format, Options, Origin, Reading, Recordings};

const VIEW: AdviceView = AdviceView { width: 80, colour: false, top: 4 };

fn exits(count: u64, each_ns: u64) -> Exits {
    let mut handling = HandlingTime::new();
    (0..count).for_each(|_| handling.add(each_ns));
    Exits { count, handling }
}

/// Two VMs over two seconds: an old guest with a serial console, the PM timer as its clock source, and an unknown device;
/// and an idle guest.
fn recordings() -> Recordings {
    let mut profile = Profile::new();
    profile.span = Some(Span { first_ns: 0, last_ns: 2_000_000_000 });
    let old = profile.vcpu(Vcpu { vm: Some(10), number: Some(0), thread: Some(11) });
    let write = Direction::Write;
    old.reasons.insert(ExitReason::vmx(30), exits(9000, 20_000));
    old.reasons.insert(ExitReason::vmx(49), exits(400, 30_000));
    old.reasons.insert(ExitReason::vmx(12), exits(300, 1_000_000));
    old.accesses.insert(Access::Port { port: 0x3f8, direction: write }, exits(3000, 18_000));
    old.accesses.insert(Access::Port { port: 0x608, direction: Direction::Read }, exits(5900, 18_000));
    old.accesses.insert(Access::Port { port: 0x1234, direction: write }, exits(100, 18_000));
    old.accesses.insert(Access::Mmio { address: 0xfebc_0018, direction: write }, exits(400, 28_000));
    let resting = profile.vcpu(Vcpu { vm: Some(20), number: Some(0), thread: Some(21) });
    resting.reasons.insert(ExitReason::vmx(12), exits(20, 50_000_000));
    resting.reasons.insert(ExitReason::vmx(52), exits(20, 4000));
    profile.names.insert(10, "old".to_owned());
    profile.losses.lost_events = 7;
    profile.events.insert("kvm:kvm_exit".to_owned(), 9740);
    let mut recordings = Recordings::new(Options::default());
    let origin = Origin::new(Format::PerfData);
    recordings.add("made-up".to_owned(), Reading { profile, origin, damage: None, warnings: Vec::new() });
    recordings
}

fn facts() -> BTreeMap<u32, Facts> {
    let old = [Fact::I440fx, Fact::NicE1000, Fact::UsbPolled, Fact::KvmClock, Fact::IrqchipKernel];
    BTreeMap::from([(10, old.into_iter().collect())])
}

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn advice_in_80_columns() {
    let (table, recordings) = (Table::load(exits::Hypervisor::Kvm).unwrap(), recordings());
    let advice = advise(&table, &recordings.profile, recordings.observed_ns(), &facts());
    let text = terminal(&recordings, &advice, None, VIEW);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_vm_of_another_vmm_is_not_told_qemus_settings() {
    let one = exits(1, 1000);
    let mut profile = Profile::new();
    for vm in [10, 20] {
        let vcpu = profile.vcpu(Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm + 1) });
        vcpu.reasons.extend([30, 49].map(|code| (ExitReason::vmx(code), one.clone())));
        let serial = Access::Port { port: 0x3f8, direction: Direction::Write };
        let virtio = Access::Mmio { address: 0xc000_1050, direction: Direction::Write };
        vcpu.accesses.extend([serial, virtio].map(|access| (access, one.clone())));
    }
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let other = table.without_qemu();
    let others = Others { table: &other, vms: &BTreeSet::from([20]) };
    let advice = advise_beside(&table, others, &profile, 1_000_000_000, &BTreeMap::new());
    let of = |number| advice.vms.iter().find(|vm| vm.vm == Some(number)).unwrap();
    let cures = |number| of(number).rows.iter().flat_map(|row| &row.cures).map(|one| one.cure);
    let is_of_qemu = |cure: &Cure| cure.qemu.is_some() || cure.libvirt.is_some();
    assert!(cures(10).any(is_of_qemu) && !cures(20).any(is_of_qemu));

    let recordings = Recordings { profile, ..Recordings::default() };
    let text_of = |number| {
        let one = Advice { observed_ns: advice.observed_ns, vms: vec![of(number).clone()] };
        terminal(&recordings, &one, None, VIEW)
    };
    let wrong = ["\n      QEMU   ", "\n      XML    ", "info mtree", "PCI device", "--definition"];
    assert!(wrong.iter().all(|word| text_of(10).contains(word)), "{}", text_of(10));
    let text = text_of(20);
    assert!(!wrong.iter().any(|word| text.contains(word)), "{text}");
    assert!(text.contains("serial port") && text.contains("other VMMs than QEMU"), "{text}");
}

#[test]
fn an_idle_audit_in_80_columns() {
    let (table, recordings) = (Table::load(exits::Hypervisor::Kvm).unwrap(), recordings());
    let advice = advise(&table, &recordings.profile, recordings.observed_ns(), &facts());
    let audits: Vec<_> = advice.vms.iter().map(|vm| audit(vm, advice.observed_ns, 100.0)).collect();
    let text = terminal(&recordings, &advice, Some(&audits), VIEW);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn advice_for_programs() {
    let (table, recordings) = (Table::load(exits::Hypervisor::Kvm).unwrap(), recordings());
    let advice = advise(&table, &recordings.profile, recordings.observed_ns(), &facts());
    let audits: Vec<_> = advice.vms.iter().map(|vm| audit(vm, advice.observed_ns, 100.0)).collect();
    insta::assert_json_snapshot!(json(&recordings, &advice, Some(&audits)));
}

#[test]
fn no_exits_are_no_error() {
    let (table, recordings) = (Table::load(exits::Hypervisor::Kvm).unwrap(), Recordings::default());
    let advice = advise(&table, &recordings.profile, 0, &BTreeMap::new());
    assert!(terminal(&recordings, &advice, None, VIEW).contains("\n\nThere is no exit to advise on"));
    assert!(terminal(&recordings, &advice, Some(&[]), VIEW).contains("\n\nNo VM had an exit"));
}
