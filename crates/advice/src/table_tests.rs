use std::collections::BTreeSet;

use super::*;
use exits::{Direction, ExitReason, Virtualized};
use proptest::prelude::*;

fn table() -> Table {
    Table::load(exits::Hypervisor::Kvm).unwrap()
}

fn on_xen() -> Table {
    Table::load(Hypervisor::Xen).unwrap()
}

fn port(port: u16) -> Access {
    Access::Port { port, direction: Direction::Write }
}

fn mmio(address: u64) -> Access {
    Access::Mmio { address, direction: Direction::Read }
}

fn msr(number: u32) -> Access {
    Access::Msr { number, direction: Direction::Write }
}

/// The device that an access is to, given only these facts.
fn device(access: Access, facts: &[Fact]) -> String {
    let facts: Facts = facts.iter().copied().collect();
    table().of_access(access, Some(&facts)).map_or_else(|| "none".to_owned(), |device| device.id.clone())
}

#[test]
fn names_are_unique_and_nothing_is_empty() {
    let table = table();
    let mut seen = BTreeSet::new();
    for device in &table.devices {
        assert!(seen.insert(&device.id), "{} twice", device.id);
        assert!(!device.matches.is_empty() && !device.cures.is_empty(), "{}", device.id);
        for text in [&device.name, &device.what, &device.why] {
            assert!(!text.trim().is_empty() && !text.ends_with('.'), "{}: {text}", device.id);
        }
        assert!(device.name.chars().count() <= 40, "{} is too long for the table", device.name);
        let cures: BTreeSet<_> = device.cures.iter().map(|cure| &cure.id).collect();
        assert_eq!(cures.len(), device.cures.len(), "{}: two cures of one name", device.id);
    }
    let suspects: BTreeSet<_> = table.suspects.iter().map(|suspect| &suspect.id).collect();
    assert_eq!(suspects.len(), table.suspects.len());
    assert!(table.suspects.iter().all(|suspect| !suspect.when.is_empty() && !suspect.sources.is_empty()));
}

#[test]
fn what_all_commands_call_sleep_is_of_a_device_that_sleeps() {
    let table = table();
    for reason in ExitReason::known().filter(|reason| reason.is_sleep()) {
        assert!(table.of_reason(reason).is_some_and(|device| device.sleeps), "{reason}");
    }
}

#[test]
fn nobody_sleeps_in_mwait() {
    for name in ["MWAIT_INSTRUCTION", "MONITOR_INSTRUCTION", "mwait", "monitor"] {
        let reason: ExitReason = name.parse().unwrap();
        let table = table();
        let device = table.of_reason(reason).unwrap();
        assert_eq!((device.id.as_str(), device.sleeps), ("mwait", false), "{name}");
    }
}

#[test]
fn what_interrupt_virtualization_ends_for_certain_is_what_it_affects() {
    for device in table().devices {
        if !device.cures.iter().any(|cure| cure.id == "apicv-avic" && cure.effect == Effect::Gone) {
            continue;
        }
        for one in &device.matches {
            let Match::Reasons(names) = one else { continue };
            for name in names {
                let reason: ExitReason = name.parse().unwrap();
                let goes = reason.under_interrupt_virtualization();
                assert!(
                    matches!(goes, Some(Virtualized::Gone | Virtualized::Partly)),
                    "{}: {name}",
                    device.id
                );
            }
        }
    }
}

#[test]
fn each_cure_says_what_to_change_and_has_a_source() {
    for device in table().devices.into_iter().chain(on_xen().devices) {
        for cure in &device.cures {
            let name = format!("{}/{}", device.id, cure.id);
            let ways = [&cure.qemu, &cure.libvirt, &cure.xl, &cure.guest, &cure.host];
            assert!(ways.iter().any(|way| way.is_some()), "{name} says nothing to do");
            assert!(!cure.sources.is_empty(), "{name} has no source");
            let known = [
                "Linux ",
                "QEMU ",
                "Xen ",
                "Intel SDM ",
                "AMD64 APM ",
                "VIRTIO ",
                "libvirt ",
                "Microsoft Learn",
                "docs/",
                "prctl(2)",
                "EDK2 ",
            ];
            for source in &cure.sources {
                assert!(known.iter().any(|start| source.starts_with(start)), "{name}: {source}");
            }
        }
    }
}

#[test]
fn no_change_is_told_without_what_it_needs() {
    let table = table();
    let cures = table.devices.iter().flat_map(|device| &device.cures);
    let told = cures.flat_map(|cure| [&cure.qemu, &cure.libvirt, &cure.host]).flatten();
    let told: Vec<&String> = told.chain(table.suspects.iter().map(|suspect| &suspect.change)).collect();
    for (word, needed) in [
        // libvirt refuses an I/O thread that is not declared, and a prefix that is not.
        (" iothread='", "<iothreads>"),
        ("<qemu:", "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"),
        // QEMU does not start (target/i386/kvm/kvm.c, kvm_hyperv_properties).
        ("hv-ipi", "hv-vpindex"),
        ("<ipi ", "<vpindex "),
        ("hv-tlbflush", "hv-vpindex"),
        ("<tlbflush ", "<vpindex "),
        ("hv-evmcs", "hv-vapic"),
        // A VM is watched, so that the module cannot be loaded again now.
        ("exitless enable", "a reboot (or --reload once no VM runs)"),
    ] {
        let with: Vec<_> = told.iter().filter(|text| text.contains(word)).collect();
        assert!(!with.is_empty(), "{word}");
        assert!(with.iter().all(|text| text.contains(needed)), "{word} without {needed}: {with:?}");
    }
    // A period is positive (docs/schemas/domaincommon.rng, memballoon).
    assert!(told.iter().all(|text| !text.contains("period='0'")));
}

#[test]
fn an_enlightened_vmcs_is_not_told_without_its_price() {
    let cures: Vec<Cure> = table().devices.into_iter().flat_map(|device| device.cures).collect();
    let told = cures.iter().flat_map(|cure| [&cure.qemu, &cure.libvirt]).flatten();
    let told: Vec<&String> = told.filter(|text| text.contains("evmcs")).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|text| text.contains("posted interrupts off")), "{told:?}");
}

#[test]
fn timers_of_viridian_are_to_be_tried_first() {
    let cures: Vec<Cure> = on_xen().devices.into_iter().flat_map(|device| device.cures).collect();
    let with = |text: &Option<String>| text.iter().any(|text| text.contains("stimer"));
    let timers: Vec<&Cure> = cures.iter().filter(|cure| with(&cure.xl)).collect();
    assert_eq!(timers.len(), 2);
    for cure in timers {
        assert!(cure.needs.iter().any(|needs| needs.contains("try")), "{}", cure.id);
    }
}

#[test]
fn what_ends_the_security_of_windows_is_not_told_without_a_word_of_it() {
    let all = table().devices.into_iter().chain(on_xen().devices).flat_map(|device| device.cures);
    let ends = |cure: &Cure| cure.guest.iter().any(|guest| guest.contains("hypervisorlaunchtype"));
    let cures: Vec<Cure> = all.filter(ends).collect();
    assert_eq!(cures.len(), 2);
    for cure in cures {
        assert!(cure.needs.iter().any(|needs| needs.contains("security")), "{}", cure.id);
    }
}

/// Cures that neither a definition nor exits can show to be in place.
const UNTOLD: [(&str, &str); 4] = [
    ("host-interrupt/isolated-cpus", "which of the host's interrupts an exit was for is in no event"),
    ("wbinvd/coherent-device", "KVM exits before it looks at the IOMMU"),
    ("host-interrupt/xen-intpost", "Xen's arguments are not known"),
    ("host-interrupt/xen-pinned", "which of the host's interrupts an exit was for is in no event"),
];

#[test]
fn each_cure_that_leaves_exits_says_how_it_shows_that_it_is_in_place() {
    let mut untold = Vec::new();
    for device in table().devices.into_iter().chain(on_xen().devices) {
        for cure in &device.cures {
            // A cure that removes all exits is not in place if there are exits. A change in the guest is only visible
            // there. If the definition still has the device that the cure replaces, the cure is not in place.
            let leaves = matches!(cure.effect, Effect::Fewer | Effect::Cheaper);
            let outside = [&cure.qemu, &cure.libvirt, &cure.xl, &cure.host].iter().any(|way| way.is_some());
            let replaced = device.is_by_definition() && cure.apply.iter().any(replaces);
            let told = !cure.when.is_empty()
                || !cure.when_seen.is_empty()
                || !cure.there.is_empty()
                || !cure.there_seen.is_empty();
            if leaves && outside && !told && !replaced {
                untold.push(format!("{}/{}", device.id, cure.id));
            }
        }
    }
    let known: Vec<&str> = UNTOLD.iter().map(|(name, _)| *name).collect();
    assert_eq!(untold, known);
}

#[test]
fn a_change_in_the_guest_or_on_the_host_that_helps_alone_is_left_without_qemu() {
    let (all, others) = (table(), table().without_qemu());
    let cures = |table: &Table| -> Vec<Cure> {
        table.devices.iter().flat_map(|device| device.cures.iter().cloned()).collect()
    };
    let is_of_qemu = |cure: &Cure| cure.qemu.is_some() || cure.libvirt.is_some() || !cure.apply.is_empty();
    assert!(!cures(&others).iter().any(is_of_qemu));
    let alone: Vec<Cure> = cures(&all).into_iter().filter(|cure| cure.alone).collect();
    assert!(alone.iter().all(|cure| is_of_qemu(cure) && (cure.guest.is_some() || cure.host.is_some())));
    let of = |id: &str| others.devices.iter().find(|device| device.id == id).unwrap();
    let nested: Vec<&str> = of("nested").cures.iter().map(|cure| cure.id.as_str()).collect();
    assert_eq!(nested, ["vbs-off", "nested-help"]);
    assert!(alone.iter().all(|one| cures(&others).iter().any(|cure| cure.id == one.id)), "{alone:?}");
}

#[test]
fn processors_with_erratum_1235_are_not_told_to_send_ipis() {
    let table = table();
    let ipi = table.devices.iter().find(|device| device.id == "ipi").unwrap();
    let cure = ipi.cures.iter().find(|cure| cure.id == "ipi-virtualization").unwrap();
    let needs = cure.needs.as_ref().unwrap();
    assert!(needs.contains("not family 17h, not Hygon 18h"), "{needs}");
}

#[test]
fn only_another_machine_is_said_to_be_without_the_floppy_controller() {
    let table = table();
    let floppy = table.devices.iter().find(|device| device.id == "floppy").unwrap();
    for cure in floppy.cures.iter().filter(|cure| cure.effect == Effect::Gone) {
        assert!(!cure.qemu.iter().any(|qemu| qemu.contains("-nodefaults")), "{}", cure.id);
    }
}

#[test]
fn another_machine_is_not_told_without_what_it_needs() {
    let types = ["-machine q35", "-machine pc", "-machine microvm"];
    let mut seen = 0;
    for device in table().devices {
        for cure in device.cures {
            let machine = cure.qemu.as_ref().is_some_and(|qemu| types.iter().any(|one| qemu.contains(one)));
            assert!(!machine || cure.needs.is_some(), "{}/{}", device.id, cure.id);
            seen += u32::from(machine);
        }
    }
    assert!(seen > 2, "{seen}");
}

/// Linux asks by ports for the first 256 registers, whether memory shows them or not (`raw_pci_read` in
/// arch/x86/pci/common.c).
#[test]
fn no_machine_is_said_to_save_the_configuration_ports() {
    let table = table();
    let ports = table.devices.iter().find(|device| device.id == "pci-config").unwrap();
    assert!(ports.cures.iter().all(|cure| cure.qemu.is_none()), "{ports:?}");
}

#[test]
fn what_is_said_of_xen_names_no_setting_of_another_hypervisor() {
    let (kvm, xen) = (table(), on_xen());
    assert!(
        xen.suspects.is_empty()
            && kvm.devices.iter().flat_map(|one| &one.cures).all(|cure| cure.xl.is_none())
    );
    for device in &xen.devices {
        for cure in &device.cures {
            let name = format!("{}/{}", device.id, cure.id);
            assert!(cure.qemu.is_none() && cure.libvirt.is_none() && cure.apply.is_empty(), "{name}");
            let outside = cure.xl.is_some() || cure.host.is_some();
            assert!(!outside || cure.sources.iter().any(|source| source.starts_with("Xen ")), "{name}");
            let texts = [&cure.xl, &cure.guest, &cure.host, &cure.needs].into_iter().flatten();
            for text in texts.chain(&cure.sources).chain([&cure.does]) {
                assert!(!text.to_lowercase().contains("kvm") && !text.contains("--reload"), "{name}: {text}");
            }
        }
    }
    let others = ["kvm", "avic", "eventfd", "mtree", "command line", "if=", "hv-", "libvirt"];
    for device in xen.devices.iter().filter(|device| !OF_OTHERS.contains(&device.id.as_str())) {
        for text in [&device.name, &device.what, &device.why].into_iter().chain(&device.wakes) {
            let lower = text.to_lowercase();
            assert!(others.iter().all(|other| !lower.contains(other)), "{}: {text}", device.id);
        }
    }
}

/// Devices of KVM only, or of a hypervisor in the guest.
const OF_OTHERS: [&str; 3] = ["nested", "kvm-msrs", "kvmvapic"];

#[test]
fn an_ept_misconfiguration_is_a_notification_on_kvm_and_a_memory_type_on_xen() {
    let said = |table: &Table| {
        let device = table.of_reason(ExitReason::vmx(49)).unwrap();
        (device.name.clone(), device.wakes.clone().unwrap())
    };
    assert_eq!(said(&table()), ("virtio notification".to_owned(), "virtio".to_owned()));
    assert_eq!(said(&on_xen()), ("memory types".to_owned(), "migration".to_owned()));
}

#[test]
fn xen_is_told_names_of_disks_that_it_does_not_emulate_and_no_usb_beside_usbversion() {
    let xen = on_xen();
    let cures = || xen.devices.iter().flat_map(|device| &device.cures);
    let of_disks: Vec<&Cure> = cures().filter(|cure| cure.xl.iter().any(|xl| xl.contains("vdev="))).collect();
    assert_eq!(of_disks.len(), 5);
    for cure in of_disks {
        let xl = cure.xl.as_ref().unwrap();
        assert!(["vdev=xvde", "vdev=xvdg"].iter().any(|vdev| xl.contains(vdev)), "{xl}");
        assert!(!xl.contains("xvda") && xl.contains("xen_platform_pci = 1"), "{xl}");
        assert!(cure.sources.iter().any(|source| source.ends_with("libxl_dm.c")), "{xl}");
    }
    let usb = cures().find(|cure| cure.xl.iter().any(|xl| xl.contains("usbversion"))).unwrap();
    assert!(usb.xl.iter().any(|xl| xl.starts_with("no usb and usbdevice;")) && usb.needs.is_some());
}

fn replaces(action: &crate::Action) -> bool {
    matches!(action, crate::Action::Model { .. })
}

#[test]
fn every_range_is_in_order_and_every_reason_has_that_name() {
    let known: BTreeSet<&str> = ExitReason::known().filter_map(ExitReason::name).collect();
    for device in table().devices.into_iter().chain(on_xen().devices) {
        let of_cures = device
            .cures
            .iter()
            .flat_map(|cure| [&cure.when_seen, &cure.not_seen, &cure.there_seen])
            .flatten();
        for one in device.matches.iter().chain(of_cures) {
            let sound = match one {
                Match::Ports([first, last]) => first <= last,
                Match::Addresses([first, last]) | Match::Notifications([first, last]) => first <= last,
                Match::Msrs([first, last]) => first <= last,
                Match::Reasons(names) => {
                    for name in names {
                        assert!(known.contains(name.as_str()), "{}: no reason {name}", device.id);
                    }
                    !names.is_empty()
                }
            };
            assert!(sound, "{}: {one:?}", device.id);
        }
    }
}

/// Tests whether one exit can match both patterns.
fn overlap(one: &Match, other: &Match) -> bool {
    fn meet<T: PartialOrd>([a, b]: &[T; 2], [c, d]: &[T; 2]) -> bool {
        a <= d && c <= b
    }
    match (one, other) {
        (Match::Ports(one), Match::Ports(other)) => meet(one, other),
        (Match::Addresses(one), Match::Addresses(other))
        | (Match::Notifications(one), Match::Notifications(other)) => meet(one, other),
        (Match::Msrs(one), Match::Msrs(other)) => meet(one, other),
        (Match::Reasons(one), Match::Reasons(other)) => one.iter().any(|name| other.contains(name)),
        _ => false,
    }
}

#[test]
fn devices_that_share_a_place_have_an_order() {
    let devices = table().devices;
    for (at, one) in devices.iter().enumerate() {
        for other in &devices[at + 1..] {
            let both = one.matches.iter().any(|a| other.matches.iter().any(|b| overlap(a, b)));
            assert!(!both || one.order != other.order, "{} and {}", one.id, other.id);
        }
        let within = one.matches.iter().enumerate();
        let twice = within.flat_map(|(n, a)| one.matches[n + 1..].iter().map(move |b| (a, b)));
        assert!(twice.into_iter().all(|(a, b)| !overlap(a, b)), "{} has a place twice", one.id);
    }
}

#[test]
fn known_places_are_found() {
    // The addresses are from QEMU 7.2's `info mtree -f` for pc, q35 and microvm.
    let ports = [
        (0x20, "pic"),
        (0xa1, "pic"),
        (0x4d0, "pic"),
        (0x40, "pit"),
        (0x43, "pit"),
        (0x61, "pit"),
        (0x70, "rtc"),
        (0x71, "rtc"),
        (0x60, "i8042"),
        (0x64, "i8042"),
        (0x80, "io-delay"),
        (0x1f0, "ide"),
        (0x3f6, "ide"),
        (0x177, "ide"),
        (0x3f1, "floppy"),
        (0x3f7, "floppy"),
        (0x3f8, "serial"),
        (0x2ff, "serial"),
        (0x378, "parallel"),
        (0x3c9, "vga"),
        (0x1ce, "vga"),
        (0x1cf, "vga"),
        (0xe9, "debug-port"),
        (0x402, "debug-port"),
        (0xcf8, "pci-config"),
        (0xcfc, "pci-config"),
        (0x510, "fw-cfg"),
        (0x514, "fw-cfg"),
        (0x5658, "vmport"),
        (0x505, "pvpanic"),
        (0x600, "acpi"),
        (0x604, "acpi"),
        (0x608, "pm-timer"),
        (0xb008, "pm-timer"),
        (0xae00, "acpi"),
        (0xafe0, "acpi"),
        (0xb2, "acpi"),
        (0x220, "isa-sound"),
        (0x388, "isa-sound"),
        (0x0, "dma"),
        (0x81, "dma"),
        (0xc100, "pci-ports"),
        (0x9999, "pci-ports"),
        (0x1234, "none"),
    ];
    for (number, wanted) in ports {
        assert_eq!(device(port(number), &[]), wanted, "port {number:#x}");
    }
    let addresses = [
        (0xfed0_00f0, "hpet"),
        (0xfec0_0000, "ioapic"),
        (0xfee0_00b0, "xapic"),
        (0xa_0000, "vga"),
        (0xb_8000, "vga"),
        (0xbf_fff, "vga"),
        (0xfed4_0000, "tpm"),
        (0xfebd_1000, "pci-memory"),
        (0x38_0000_0000, "pci-memory"),
        (0xc_0000, "none"),
        (0xffff_0000, "none"),
    ];
    for (address, wanted) in addresses {
        assert_eq!(device(mmio(address), &[]), wanted, "address {address:#x}");
    }
    let msrs = [
        (0x6e0, "guest-timer"),
        (0x838, "guest-timer"),
        (0x80b, "eoi"),
        (0x830, "ipi"),
        (0x808, "x2apic-other"),
        (0x48, "spec-ctrl"),
        (0xc1, "pmu"),
        (0x30c, "pmu"),
        (0x38f, "pmu"),
        (0x4c1, "pmu"),
        (0x4c8, "pmu"),
        (0xc000_0303, "pmu"),
        (0x27f, "processor-setup"),
        (0x280, "machine-check"),
        (0x29f, "machine-check"),
        (0x2ff, "processor-setup"),
        (0x4000_00b1, "hyperv-timer"),
        (0x4000_0020, "hyperv-clock"),
        (0x4000_0070, "hyperv-synic"),
        (0x4000_0021, "hyperv-msrs"),
        (0x4b56_4d02, "kvm-msrs"),
        (0x1b, "x2apic-other"),
        (0x7fff_0000, "none"),
    ];
    for (number, wanted) in msrs {
        assert_eq!(device(msr(number), &[]), wanted, "MSR {number:#x}");
    }
}

#[test]
fn a_definition_tells_devices_apart_that_share_addresses() {
    let address = mmio(0xfebc_0018);
    assert_eq!(device(address, &[Fact::NicE1000]), "nic-e1000");
    assert_eq!(device(address, &[Fact::VirtioPci]), "virtio-pci");
    assert_eq!(device(address, &[Fact::VirtioPci, Fact::NicE1000]), "nic-e1000");
    assert_eq!(device(mmio(0xfeb0_0050), &[Fact::Microvm]), "virtio-mmio");
    assert_eq!(device(mmio(0xfeb0_0050), &[]), "pci-memory");
    assert_eq!(device(mmio(0xb000_8000), &[Fact::Q35, Fact::NicE1000]), "ecam");
    assert_eq!(device(port(0xc010), &[Fact::NicRtl8139]), "nic-rtl8139");
    assert_eq!(table().of_access(address, None).unwrap().id, "pci-memory");
    // Only 64-bit BARs are above 4 GiB.
    let (above, old) = (
        mmio(0x38_0000_3000),
        [Fact::DiskAhci, Fact::NicE1000, Fact::NicRtl8139, Fact::NicVmxnet3, Fact::UsbPolled],
    );
    assert_eq!(device(above, &old), "pci-memory");
    assert_eq!(device(above, &[&old[..], &[Fact::Assigned]].concat()), "assigned");
    assert_eq!(device(above, &[&old[..], &[Fact::Assigned, Fact::VirtioPci]].concat()), "virtio-pci");
}

#[test]
fn a_device_of_the_host_is_not_taken_for_an_emulated_one_of_the_same_model() {
    let bar = |id: &str| Bar {
        address: "00:03.0".to_owned(),
        id: id.to_owned(),
        vendor: 0x8086,
        device: 0x2922,
        class: 0x106,
        number: 5,
        is_ports: false,
        start: 0xfebc_1000,
        size: 0x1000,
    };
    let arguments = b"qemu-system-x86_64 -accel kvm -M q35 -device vfio-pci,host=0000:00:17.0,id=hostdev0";
    let text = domain::Text::new("a test", &arguments[..]);
    let facts = Facts::of(&domain::qemu::read(&text, &domain::NoFiles).unwrap());
    for (id, wanted) in [("hostdev0", "assigned"), ("sata0", "ahci")] {
        let facts = facts.clone().with_bars(vec![bar(id)]);
        let table = table();
        let found = table.of_access(mmio(0xfebc_1018), Some(&facts)).unwrap();
        assert_eq!(found.id, wanted);
        assert_eq!(found.cures.iter().any(|cure| cure.id == "virtio-blk"), id == "sata0", "{id}");
    }
}

#[test]
fn a_pci_device_is_named_by_the_register_that_an_address_falls_in() {
    let bar = |vendor, device, class, start| Bar {
        address: "00:03.0".to_owned(),
        id: "net0".to_owned(),
        vendor,
        device,
        class,
        number: 0,
        is_ports: false,
        start,
        size: 0x1000,
    };
    let definition: Facts = [Fact::NicE1000, Fact::VirtioPci].into_iter().collect();
    let facts = definition.with_bars(vec![
        bar(0x1af4, 0x1041, 0x200, 0xfebc_0000),
        bar(0x8086, 0x2922, 0x106, 0xfebc_1000),
        bar(0x1b36, 0x0010, 0x108, 0xfebc_2000),
    ]);
    let of = |address| table().of_access(mmio(address), Some(&facts)).map(|device| device.id.clone());
    // Without the BARs, the definition alone would attribute the first to the e1000.
    assert_eq!(of(0xfebc_0018).as_deref(), Some("virtio-pci"));
    assert_eq!(of(0xfebc_1018).as_deref(), Some("ahci"));
    assert_eq!(of(0xfebc_2018).as_deref(), Some("pci-memory"));
    assert_eq!(of(0xfebc_5000).as_deref(), Some("nic-e1000"));
    let notified = |address| {
        table().of_access(Access::FastMmio { address }, Some(&facts)).map(|device| device.id.clone())
    };
    // The second one's ID tells nothing of it, and the last one is in no BAR.
    assert_eq!(notified(0xfebc_0018).as_deref(), Some("virtio-pci"));
    assert_eq!(notified(0xfebc_2018).as_deref(), Some("virtio-fast-notify"));
    assert_eq!(notified(0xfebc_5000).as_deref(), Some("virtio-pci"));
    // QEMU's hw/net/e1000.c, e1000_devices.
    for model in [0x100e, 0x100c, 0x100f] {
        let facts = Facts::default().with_bars(vec![bar(0x8086, model, 0x200, 0xfebc_0000)]);
        let table = table();
        let device = table.of_access(mmio(0xfebc_0018), Some(&facts)).map(|device| device.id.as_str());
        assert_eq!(device, Some("nic-e1000"), "{model:x}");
    }
}

#[test]
fn no_vm_on_svm_is_told_to_have_a_pit_that_inhibits_avic_or_notifications_that_cost_more() {
    let vmx_only: Vec<String> = table()
        .devices
        .iter()
        .flat_map(|device| device.cures.iter().map(move |cure| (device, cure)))
        .filter(|(_, cure)| {
            let irqchip = crate::Action::Irqchip(domain::Irqchip::Kernel);
            cure.apply.contains(&irqchip) || cure.qemu.iter().any(|qemu| qemu.contains("disable-legacy=on"))
        })
        .map(|(device, cure)| {
            assert_eq!(cure.isa, Some(Isa::Vmx), "{}/{}", device.id, cure.id);
            format!("{}/{}", device.id, cure.id)
        })
        .collect();
    assert_eq!(vmx_only.len(), 4, "{vmx_only:?}");
}

#[test]
fn names_of_pci_devices_are_of_one_device_each_and_have_their_form() {
    let mut seen = BTreeSet::new();
    for device in table().devices {
        for name in &device.pci {
            assert!(seen.insert(name.clone()), "{name} twice");
            let (first, second) = name.split_once(':').unwrap();
            let is_number = |text: &str| text.len() == 4 && u16::from_str_radix(text, 16).is_ok();
            let sound = (first == "class" || is_number(first)) && (is_number(second) || second.is_empty());
            assert!(sound, "{}: {name}", device.id);
        }
    }
}

#[test]
fn every_name_of_a_reason_that_can_be_common_is_known() {
    let table = table();
    let common = [1, 7, 10, 12, 28, 30, 31, 32, 40, 44, 45, 48, 49, 52, 54, 56];
    for code in common {
        assert!(table.of_reason(ExitReason::vmx(code)).is_some(), "{}", ExitReason::vmx(code));
    }
    for code in [0x60, 0x64, 0x72, 0x77, 0x78, 0x7b, 0x7c, 0x89, 0x400, 0x401, 0x402] {
        assert!(table.of_reason(ExitReason::svm(code)).is_some(), "{}", ExitReason::svm(code));
    }
    assert!(table.of_reason(ExitReason::vmx(9999)).is_none());
}

proptest! {
    #[test]
    fn no_access_panics_and_each_has_at_most_one_device(port in any::<u16>(), address in any::<u64>(), number in any::<u32>()) {
        let table = table();
        for access in [super::tests::port(port), mmio(address), msr(number)] {
            let found = table.of_access(access, None);
            if let Some(device) = found {
                prop_assert!(device.when.is_empty());
                prop_assert!(device.matches.iter().any(|one| one.has_access(access)));
            }
        }
    }
}
