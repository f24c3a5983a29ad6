use super::*;
use crate::{Fact, Match, audit};
use exits::{HandlingTime, Vcpu};
use proptest::prelude::*;

const IO: ExitReason = ExitReason::vmx(30);
const HLT: ExitReason = ExitReason::vmx(12);
const SECOND: u64 = 1_000_000_000;

fn exits(count: u64, each_ns: u64) -> Exits {
    let mut handling = HandlingTime::new();
    (0..count).for_each(|_| handling.add(each_ns));
    Exits { count, handling }
}

fn port(port: u16) -> Access {
    Access::Port { port, direction: Direction::Write }
}

fn profile(reasons: &[(ExitReason, Exits)], accesses: &[(Access, Exits)]) -> Profile {
    let mut profile = Profile::new();
    let vcpu = profile.vcpu(Vcpu { vm: Some(7), number: Some(0), thread: Some(8) });
    vcpu.reasons.extend(reasons.iter().cloned());
    vcpu.accesses.extend(accesses.iter().cloned());
    profile
}

fn ids(vm: &VmAdvice<'_>) -> Vec<String> {
    vm.rows
        .iter()
        .map(|row| match row.of {
            Of::Device(device) => device.id.clone(),
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn ports_are_devices_and_the_costliest_comes_first() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let of = profile(
        &[(IO, exits(30, 1000)), (HLT, exits(5, 1_000_000))],
        &[(port(0x20), exits(10, 500)), (port(0x21), exits(10, 500)), (port(0x3f8), exits(5, 500))],
    );
    let advice = advise(&table, &of, SECOND, &BTreeMap::new());
    let vm = &advice.vms[0];
    assert_eq!(ids(vm), ["pic", "serial", "ports-not-recorded", "halt"]);
    assert_eq!(vm.rows.iter().map(|row| row.exits).collect::<Vec<_>>(), [20, 5, 5, 5]);
    assert_eq!((vm.exits, vm.time_ns, vm.sleep_ns), (35, 30_000, 5_000_000));
    assert_eq!(vm.rows[0].parts.len(), 2);
    // Sleep is no cost, so none of it can be saved.
    assert_eq!(vm.rows[3].at_most_ns(), 0);
    // A cure that only asks for a better recording saves nothing.
    assert_eq!((vm.rows[2].at_most_ns(), vm.at_most_ns()), (0, 25_000));
}

#[test]
fn exits_of_nested_guests_are_the_cost_of_nesting() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let l2 = |reason, to_l1| Access::Nested { reason, to_l1 };
    let (cpuid, hlt, vmrun) = (ExitReason::svm(0x72), ExitReason::svm(0x78), ExitReason::svm(0x80));
    let of = profile(
        &[(cpuid, exits(100, 1000)), (hlt, exits(10, 1000)), (vmrun, exits(90, 1000))],
        &[
            (l2(cpuid, false), exits(90, 1000)),
            (l2(hlt, false), Exits { count: 10, ..Exits::default() }),
            (l2(hlt, true), exits(10, 1000)),
        ],
    );
    let advice = advise(&table, &of, SECOND, &BTreeMap::new());
    let vm = &advice.vms[0];
    assert_eq!(ids(vm), ["nested", "cpuid"]);
    assert_eq!(vm.rows.iter().map(|row| row.exits).collect::<Vec<_>>(), [190, 10]);
    // A halt of L2 enters L1: no vCPU sleeps.
    assert_eq!((vm.exits, vm.time_ns, vm.sleep_ns), (200, 200_000, 0));
    assert!(vm.rows[0].parts.contains(&(cpuid, Part::Nested, 90, 90_000)), "{:?}", vm.rows[0].parts);
}

#[test]
fn what_a_hypervisor_in_the_vm_uses_is_not_what_the_vm_has() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let apic_write = ExitReason::vmx(56);
    let there = |accesses: &[(Access, Exits)]| {
        let reasons = [(ExitReason::vmx(7), exits(9, 1000)), (apic_write, exits(5, 1000))];
        let of = profile(&reasons, accesses);
        let advice = advise(&table, &of, SECOND, &BTreeMap::new());
        let cures = advice.vms[0].rows.iter().flat_map(|row| &row.cures);
        let ours: Vec<_> = cures.filter(|one| one.cure.id == "apicv-avic").map(|one| one.there).collect();
        assert!(!ours.is_empty());
        ours.contains(&true)
    };
    assert!(there(&[]));
    assert!(!there(&[(Access::Nested { reason: apic_write, to_l1: false }, exits(5, 1000))]));
}

#[test]
fn an_unknown_place_is_named_by_its_number() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let unknown = profile(&[(IO, exits(4, 1000))], &[(port(0x1234), exits(4, 500))]);
    let advice = advise(&table, &unknown, SECOND, &BTreeMap::new());
    let row = &advice.vms[0].rows[0];
    assert!(matches!(row.of, Of::UnknownAccess(Access::Port { port: 0x1234, .. })));
    assert_eq!((row.at_most_ns(), row.best()), (0, None));
    let unknown = profile(&[(ExitReason::vmx(9999), exits(4, 1000))], &[]);
    let advice = advise(&table, &unknown, SECOND, &BTreeMap::new());
    assert!(matches!(advice.vms[0].rows[0].of, Of::UnknownReason(_)));
}

#[test]
fn what_the_definition_has_is_not_advised() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let hpet = Access::Mmio { address: 0xfed0_00f0, direction: Direction::Read };
    let of = profile(&[(ExitReason::vmx(49), exits(4, 1000))], &[(hpet, exits(4, 500))]);
    let open = |facts: &[Fact]| -> Vec<String> {
        let facts = BTreeMap::from([(7, facts.iter().copied().collect())]);
        let advice = advise(&table, &of, SECOND, &facts);
        advice.vms[0].rows[0].open().map(|cure| cure.id.clone()).collect()
    };
    assert_eq!(open(&[]), ["hpet-off", "hv-stimer", "clocksource"]);
    assert_eq!(open(&[Fact::HypervStimer]), ["hpet-off", "clocksource"]);
    assert_eq!(open(&[Fact::NoHpet, Fact::HypervStimer]), ["clocksource"]);
}

#[test]
fn a_trust_domain_is_not_told_to_have_an_irqchip_that_qemu_refuses() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let ioapic = Access::Mmio { address: 0xfec0_0000, direction: Direction::Read };
    for (reason, access, cure) in [
        (IO, port(0x20), "irqchip-on"),
        (IO, port(0x40), "pit-in-kernel"),
        (ExitReason::vmx(48), ioapic, "irqchip-on"),
    ] {
        let of = profile(&[(reason, exits(4, 1000))], &[(access, exits(4, 500))]);
        let offered = |facts: &[Fact]| {
            let facts = BTreeMap::from([(7, facts.iter().copied().collect())]);
            let advice = advise(&table, &of, SECOND, &facts);
            advice.vms[0].rows[0].cures.iter().any(|cured| cured.cure.id == cure)
        };
        assert!(offered(&[]) && !offered(&[Fact::Tdx]), "{cure}");
    }
}

#[test]
fn a_vm_with_encrypted_memory_is_not_told_to_use_what_kvm_inhibits_for_it() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let msr = |number| Access::Msr { number, direction: Direction::Write };
    let vmgexit = (ExitReason::svm(0x403), exits(1, 1000));
    for (reason, number, cure) in [
        (ExitReason::svm(0x7c), 0x80b, "apicv-avic"),
        (ExitReason::svm(0x7c), 0x830, "ipi-virtualization"),
        (ExitReason::vmx(32), 0x830, "ipi-virtualization"),
    ] {
        let open = |others: &[(ExitReason, Exits)], facts: &[Fact]| {
            let reasons = [&[(reason, exits(9, 1000))], others].concat();
            let of = profile(&reasons, &[(msr(number), exits(9, 500))]);
            let facts = BTreeMap::from([(7, facts.iter().copied().collect())]);
            let advice = advise(&table, &of, SECOND, &facts);
            advice.vms[0].rows.iter().any(|row| row.open().any(|one| one.id == cure))
        };
        assert!(open(&[], &[]), "{cure}");
        if reason.isa == Isa::Svm {
            assert!(!open(&[], &[Fact::Sev]), "{cure}");
            // Without a definition, the exits show SEV-ES and SEV-SNP.
            assert!(!open(std::slice::from_ref(&vmgexit), &[]), "{cure}");
        } else {
            assert!(!open(&[], &[Fact::Tdx]), "{cure}");
        }
    }
}

#[test]
fn calls_of_an_encrypted_guest_are_of_the_devices_that_it_accesses() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let (vmgexit, npf) = (ExitReason::svm(0x403), ExitReason::svm(0x400));
    let timer = Access::Msr { number: 0x6e0, direction: Direction::Write };
    let hpet = Access::Mmio { address: 0xfed0_00f0, direction: Direction::Read };
    let accesses = [(timer, exits(4, 500)), (port(0x3f8), exits(3, 500)), (hpet, exits(2, 500))];
    let of = profile(&[(vmgexit, exits(10, 1000)), (npf, exits(5, 1000))], &accesses);
    let advice = advise(&table, &of, SECOND, &BTreeMap::new());
    let vm = &advice.vms[0];
    let found: BTreeMap<String, u64> = ids(vm).into_iter().zip(vm.rows.iter().map(|row| row.exits)).collect();
    let wanted = [("guest-timer", 4), ("serial", 3), ("hpet", 2), ("vmgexit", 1), ("memory", 5)];
    assert_eq!(found, BTreeMap::from(wanted.map(|(id, exits)| (id.to_owned(), exits))));
}

/// An exit that `wanted` matches, with its access.
fn like(wanted: &Match) -> (ExitReason, Option<Access>) {
    let direction = Direction::Write;
    match wanted {
        Match::Ports([port, _]) => (IO, Some(Access::Port { port: *port, direction })),
        Match::Addresses([address, _]) => {
            (ExitReason::vmx(49), Some(Access::Mmio { address: *address, direction }))
        }
        Match::Notifications([address, _]) => {
            (ExitReason::vmx(49), Some(Access::FastMmio { address: *address }))
        }
        Match::Msrs([number, _]) => (ExitReason::vmx(32), Some(Access::Msr { number: *number, direction })),
        Match::Reasons(names) => {
            let named = |reason: &ExitReason| reason.name() == Some(names[0].as_str());
            (ExitReason::known().find(named).unwrap(), None)
        }
    }
}

/// Tests whether this cure is open if exits of its device and of `others` were seen.
fn is_open(table: &Table, device: &Device, cure: &Cure, others: &[&Match]) -> bool {
    let mut of = Profile::new();
    let vcpu = of.vcpu(Vcpu { vm: Some(7), number: Some(0), thread: Some(8) });
    let facts: Facts = device.when.iter().chain(&cure.when).copied().collect();
    for one in device.matches.iter().chain(others.iter().copied()) {
        let (reason, access) = like(one);
        vcpu.reasons.entry(reason).or_default().merge(&exits(4, 1000));
        if let Some(access) = access {
            vcpu.accesses.entry(access).or_default().merge(&exits(4, 500));
        }
    }
    let advice = advise(table, &of, SECOND, &BTreeMap::from([(7, facts)]));
    let row = advice.vms[0].rows.iter().find(|row| row.of == Of::Device(device));
    row.unwrap_or_else(|| panic!("no row of {}", device.id)).open().any(|one| one.id == cure.id)
}

#[test]
fn a_cure_is_offered_by_the_exits_that_ask_for_it_and_not_by_those_that_show_it_in_place() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let mut told = 0;
    for device in &table.devices {
        for cure in &device.cures {
            let name = format!("{}/{}", device.id, cure.id);
            for shows in &cure.there_seen {
                assert!(!is_open(&table, device, cure, &[shows]), "{name}: {shows:?}");
                told += 1;
            }
            for against in &cure.not_seen {
                assert!(!is_open(&table, device, cure, &[against]), "{name}: {against:?}");
            }
            for asks in &cure.when_seen {
                assert!(is_open(&table, device, cure, &[asks]), "{name}: {asks:?}");
                told += 1;
            }
        }
    }
    assert!(told > 20, "{told}");
}

#[test]
fn a_guest_that_arms_the_deadline_is_not_told_to_get_it() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let msr = |number| Access::Msr { number, direction: Direction::Write };
    let open = |accesses: &[(Access, Exits)]| -> Vec<String> {
        let of = profile(&[(ExitReason::vmx(32), exits(9, 1000))], accesses);
        let advice = advise(&table, &of, SECOND, &BTreeMap::new());
        let row = advice.vms[0]
            .rows
            .iter()
            .find(|row| matches!(row.of, Of::Device(one) if one.id == "guest-timer"));
        row.unwrap().open().map(|cure| cure.id.clone()).collect()
    };
    assert_eq!(open(&[(msr(0x838), exits(9, 500))]), ["nohz", "tsc-deadline", "timer-slack"]);
    assert_eq!(open(&[(msr(0x6e0), exits(9, 500))]), ["nohz", "timer-slack"]);
}

#[test]
fn a_guest_that_reads_counters_may_have_them_itself_on_kvm() {
    let msr = |number| Access::Msr { number, direction: Direction::Read };
    let open = |hypervisor, number| -> Vec<String> {
        let table = Table::load(hypervisor).unwrap();
        let of = profile(&[(ExitReason::vmx(31), exits(9, 1000))], &[(msr(number), exits(9, 500))]);
        let advice = advise(&table, &of, SECOND, &BTreeMap::new());
        advice.vms[0].rows[0].open().map(|cure| cure.id.clone()).collect()
    };
    for counter in [0xc1, 0x309, 0x4c2, 0xc001_0201] {
        let cures = open(exits::Hypervisor::Kvm, counter);
        assert_eq!(cures, ["no-watchdog", "pmu-off", "mediated-pmu"], "{counter:#x}");
    }
    // Event selectors exit with a mediated PMU, too.
    assert_eq!(open(exits::Hypervisor::Kvm, 0x186), ["no-watchdog", "pmu-off"]);
    assert_eq!(open(exits::Hypervisor::Xen, 0xc1), ["no-watchdog", "xen-no-vpmu"]);
}

#[test]
fn writes_of_cr8_with_avic_active_are_for_another_kernel() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let open = |reasons: &[(ExitReason, Exits)]| -> Vec<String> {
        let of = profile(reasons, &[]);
        let advice = advise(&table, &of, SECOND, &BTreeMap::new());
        advice.vms[0].rows[0].open().map(|cure| cure.id.clone()).collect()
    };
    let cr8 = (ExitReason::svm(0x18), exits(90, 1000));
    assert_eq!(open(std::slice::from_ref(&cr8)), ["apicv-avic"]);
    assert_eq!(open(&[cr8, (ExitReason::svm(0x401), exits(1, 1000))]), ["cr8-intercept"]);
}

#[test]
fn a_guest_whose_ipis_the_processor_sends_is_not_told_to_send_them_by_calls() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let icr = Access::Msr { number: 0x830, direction: Direction::Write };
    let open = |others: &[(ExitReason, Exits)]| -> Vec<String> {
        let reasons = [&[(ExitReason::svm(0x7c), exits(9, 1000))], others].concat();
        let of = profile(&reasons, &[(icr, exits(9, 500))]);
        let advice = advise(&table, &of, SECOND, &BTreeMap::new());
        let row = advice.vms[0].rows.iter().find(|row| matches!(row.of, Of::Device(one) if one.id == "ipi"));
        row.unwrap().open().map(|cure| cure.id.clone()).collect()
    };
    assert_eq!(open(&[]), ["ipi-virtualization", "pv-ipi", "pv-tlb-flush"]);
    assert_eq!(open(&[(ExitReason::svm(0x401), exits(1, 1000))]), ["pv-tlb-flush"]);
}

#[test]
fn nested_page_faults_without_an_address_may_be_notifications_on_amd_alone() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let open = |reason, accesses: &[(Access, Exits)]| -> Vec<String> {
        let of = profile(&[(reason, exits(9, 1000))], accesses);
        let advice = advise(&table, &of, SECOND, &BTreeMap::new());
        let row =
            advice.vms[0].rows.iter().find(|row| matches!(row.of, Of::Device(one) if one.id == "memory"));
        row.unwrap().open().map(|cure| cure.id.clone()).collect()
    };
    let npf = ExitReason::svm(0x400);
    assert_eq!(open(npf, &[]), ["huge-pages", "no-ksm", "iocm", "packed-and-event-index"]);
    // The event of notifications was recorded, so what is left is none.
    let notifications = [(Access::FastMmio { address: 0xfe00_3000 }, exits(4, 1000))];
    assert_eq!(open(npf, &notifications), ["huge-pages", "no-ksm"]);
    assert_eq!(open(ExitReason::vmx(48), &[]), ["huge-pages", "no-ksm"]);
}

#[test]
fn huge_pages_are_not_advised_to_a_guest_whose_memory_kvm_takes_elsewhere() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let of = profile(&[(ExitReason::vmx(48), exits(9, 1000))], &[]);
    let open = |facts: &[Fact]| -> Vec<String> {
        let facts = BTreeMap::from([(7, facts.iter().copied().collect())]);
        let advice = advise(&table, &of, SECOND, &facts);
        advice.vms[0].rows[0].open().map(|cure| cure.id.clone()).collect()
    };
    assert_eq!(open(&[Fact::NoMerge]), ["huge-pages"]);
    assert!(open(&[Fact::NoMerge, Fact::PrivateMemory]).is_empty());
}

#[test]
fn a_notification_with_its_address_is_of_its_device() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let notification = Access::FastMmio { address: 0xfe00_3000 };
    for reason in [ExitReason::svm(0x400), ExitReason::vmx(49)] {
        let of = profile(&[(reason, exits(9, 1000))], &[(notification, exits(9, 1000))]);
        let of_vm = |facts: &BTreeMap<u32, Facts>| ids(&advise(&table, &of, SECOND, facts).vms[0]);
        // An emulated card has no such address, whatever window it is in.
        let known = BTreeMap::from([(7, [Fact::VirtioPci, Fact::NicE1000].into_iter().collect())]);
        assert_eq!(of_vm(&known), ["virtio-pci"]);
        // Without a definition it is a notification, though of no known device.
        assert_eq!(of_vm(&BTreeMap::new()), ["virtio-fast-notify"]);
    }
}

#[test]
fn nested_paging_is_for_cr3_alone_and_saves_nothing_of_cr0() {
    for hypervisor in [exits::Hypervisor::Kvm, exits::Hypervisor::Xen] {
        let table = Table::load(hypervisor).unwrap();
        let paging = if hypervisor == exits::Hypervisor::Xen { "xen-hap" } else { "nested-paging" };
        let open = |name: &str| -> (Vec<String>, u64) {
            let of = profile(&[(name.parse().unwrap(), exits(9, 1000))], &[]);
            let advice = advise(&table, &of, SECOND, &BTreeMap::new());
            let row = &advice.vms[0].rows[0];
            (row.open().map(|cure| cure.id.clone()).collect(), row.at_most_ns())
        };
        assert_eq!(open("read_cr0"), (vec![], 0));
        assert_eq!(open("write_cr3"), (vec![paging.to_owned()], 9000));
        assert_eq!(open("CR_ACCESS"), (vec![paging.to_owned()], 9000));
        assert_eq!(open("write_dr7"), (vec!["no-breakpoints".to_owned()], 9000));
        // A single access of another register does not make those of CR0 savable.
        let some = |name: &str, count| (name.parse::<ExitReason>().unwrap(), exits(count, 1000));
        let of = profile(&[some("read_cr0", 99), some("write_cr3", 1), some("write_dr7", 1)], &[]);
        assert_eq!(advise(&table, &of, SECOND, &BTreeMap::new()).vms[0].at_most_ns(), 2000);
    }
}

#[test]
fn cures_for_other_machines_are_left_out() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let of = profile(&[(IO, exits(4, 1000))], &[(port(0x70), exits(4, 500))]);
    let has = |facts: &[Fact]| {
        let facts = BTreeMap::from([(7, facts.iter().copied().collect())]);
        let advice = advise(&table, &of, SECOND, &facts);
        advice.vms[0].rows[0].cures.iter().any(|one| one.cure.id == "microvm-no-rtc")
    };
    assert!(has(&[Fact::Microvm]) && !has(&[Fact::Q35]));
}

#[test]
fn suspects_follow_from_the_definition_alone() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let of = profile(&[(HLT, exits(4, 1000))], &[]);
    let facts = BTreeMap::from([(7, [Fact::UsbPolled].into_iter().collect())]);
    let with = advise(&table, &of, SECOND, &facts);
    assert_eq!(with.vms[0].suspects.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["usb-tablet"]);
    assert!(advise(&table, &of, SECOND, &BTreeMap::new()).vms[0].suspects.is_empty());
}

#[test]
fn a_vm_at_rest_is_judged_by_its_exits() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let of = profile(&[(IO, exits(90, 1000)), (HLT, exits(20, 1000))], &[(port(0x608), exits(90, 500))]);
    let advice = advise(&table, &of, SECOND, &BTreeMap::new());
    let judged = |budget| audit(&advice.vms[0], advice.observed_ns, budget);
    assert!(judged(110.0).is_within() && !judged(109.0).is_within());
    let audit = judged(100.0);
    assert_eq!((audit.exits_per_second, audit.sleeps_per_second), (110.0, 20.0));
    assert_eq!(audit.sources[0].wakes, Some("clock of the guest"));
    assert_eq!(crate::audit(&advice.vms[0], 0, 1.0).exits_per_second, 0.0);
}

proptest! {
    #[test]
    fn rows_sum_up_to_what_was_seen(
        counts in proptest::collection::vec((any::<bool>(), 0u32..0x410, 0u64..50, 0u64..9000), 0..12),
        accesses in proptest::collection::vec((0u8..3, any::<u64>(), 0u64..50, 0u64..9000), 0..12),
    ) {
        let table = Table::load(exits::Hypervisor::Kvm).unwrap();
        let reasons: Vec<_> = counts.iter().map(|&(vmx, code, count, ns)| {
            (if vmx { ExitReason::vmx(code % 80) } else { ExitReason::svm(code) }, exits(count, ns))
        }).collect();
        let accesses: Vec<_> = accesses.iter().map(|&(kind, wide, count, ns)| {
            let direction = Direction::Write;
            let access = match kind {
                0 => Access::Port { port: wide as u16, direction },
                1 => Access::Mmio { address: wide, direction },
                _ => Access::Msr { number: wide as u32, direction },
            };
            (access, exits(count, ns))
        }).collect();
        let of = profile(&reasons, &accesses);
        let advice = advise(&table, &of, SECOND, &BTreeMap::new());
        let total: u64 = of.total();
        let time: u64 = of.reasons().values().map(|exits| exits.handling.total_ns()).sum();
        let seen: u64 = advice.vms.iter().map(|vm| vm.exits).sum();
        let spent: u64 = advice.vms.iter().map(|vm| vm.time_ns + vm.sleep_ns).sum();
        prop_assert_eq!(seen, total);
        // The time of a reason with a count of 0 is in no row.
        prop_assert!(spent <= time);
        prop_assert!(advice.vms.iter().all(|vm| vm.at_most_ns() <= vm.time_ns));
    }
}

#[test]
fn messages_of_timers_have_another_cure_than_registers_of_the_apic() {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let open = |number: u32, facts: &[Fact]| -> Vec<String> {
        let access = Access::Msr { number, direction: Direction::Write };
        let of = profile(&[(ExitReason::vmx(32), exits(9, 1000))], &[(access, exits(9, 900))]);
        let facts = BTreeMap::from([(7, facts.iter().copied().collect())]);
        let advice = advise(&table, &of, SECOND, &facts);
        assert_eq!(ids(&advice.vms[0]), ["hyperv-synic"]);
        advice.vms[0].rows[0].open().map(|cure| cure.id.clone()).collect()
    };
    let (eoi, eom, control) = (0x4000_0070, 0x4000_0084, 0x4000_0080);
    assert_eq!(open(eoi, &[]), ["hv-avic"]);
    assert_eq!(open(eom, &[Fact::HypervAvic]), ["hv-stimer-direct"]);
    assert!(open(eom, &[Fact::HypervStimerDirect]).is_empty());
    assert!(open(control, &[]).is_empty());
}

#[test]
fn on_xen_the_processor_decides_about_the_cure() {
    let table = Table::load(exits::Hypervisor::Xen).unwrap();
    // EOIs by the x2APIC, and those of Windows by viridian's register.
    for (number, name) in [(0x80b, "eoi"), (0x4000_0070, "hyperv-synic")] {
        let eoi = Access::Msr { number, direction: Direction::Write };
        let cures = |reasons: &[ExitReason]| {
            let reasons: Vec<_> = reasons.iter().map(|&reason| (reason, exits(9, 1000))).collect();
            let of = profile(&reasons, &[(eoi, exits(9, 900))]);
            let advice = advise(&table, &of, SECOND, &BTreeMap::new());
            let is_eoi = |row: &&DeviceExits<'_>| matches!(row.of, Of::Device(device) if device.id == name);
            let row = advice.vms[0].rows.iter().find(is_eoi).unwrap();
            (row.open().map(|cure| cure.id.clone()).collect::<Vec<_>>(), row.best())
        };
        assert_eq!(cures(&[ExitReason::vmx(32)]), (vec!["xen-apicv".to_owned()], Some(Effect::Fewer)));
        assert_eq!(cures(&[ExitReason::svm(0x7c)]), (vec!["xen-no-avic".to_owned()], None));
        // EOI_INDUCED exits show that APICv is active.
        assert_eq!(cures(&[ExitReason::vmx(32), ExitReason::vmx(45)]), (vec![], None));
    }
}
