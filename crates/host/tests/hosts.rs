//! Inspections of fake hosts.

use exits::XenGuestType;
use host::inspection::{DeviceKind, Inspection, IommuRegisters, OptionState, Role};
use host::{AbsenceKind, fake};

fn inspect(name: &str) -> Inspection {
    Inspection::read(&fake::host(name).unwrap()).unwrap()
}

#[test]
fn zen_2_with_a_pinned_vm() {
    let found = inspect("zen2");
    let svm = found.processor.svm.get().unwrap();
    assert!(svm.avic && svm.npt && svm.vgif && !svm.x2avic && !svm.vnmi);
    assert_eq!(svm.asids, Some(0x8000));
    assert_eq!(found.processor.svm.evidence[0].text, "0x0113bcff");
    assert_eq!(found.processor.erratum_1235.value, Ok(true));
    let vm_cr = found.processor.vm_cr.get().unwrap();
    assert!(!vm_cr.disabled && vm_cr.locked);
    assert_eq!(found.processor.feature_control.absence().unwrap().kind, AbsenceKind::NotApplicable);
    assert_eq!(found.processor.hypervisor.value, Ok(None));
    assert_eq!(found.kernel.arguments.get().unwrap().last("iommu"), Some(Some("pt")));
    assert_eq!(found.kernel.config.get().unwrap().option("CONFIG_KVM_AMD"), OptionState::Module);
    assert_eq!(found.log.evidence("Virtual APIC").unwrap().text, "AMD-Vi: Virtual APIC enabled");
    assert!(found.log.whole);
    assert_eq!(found.iommus.units.len(), 8);
    assert_eq!(found.iommus.groups.value, Ok(9));
    assert_eq!(found.iommus.remapped.value, Ok(true));
    assert_eq!(found.topology.isolated.get().unwrap().to_string(), "8-15");

    let vm = &found.running.vms.get().unwrap()[0];
    assert_eq!((vm.vm.name.as_str(), vm.threads.len()), ("web", 4));
    assert!(vm.libvirt.as_ref().unwrap().status.get().unwrap().contains("<domstatus"));
    let counters = vm.vm.counters(&fake::host("zen2").unwrap(), &["irq_window_exits"]);
    assert_eq!(counters["irq_window_exits"], 2_345_678);
    assert_eq!(found.running.defined.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["idle"]);

    let place = found.placements.iter().find(|place| place.cpu == 9).unwrap();
    let roles: Vec<Role> = place.occupants.iter().map(|one| one.role).collect();
    assert_eq!(roles, [Role::Vcpu(1), Role::Vhost]);
    assert!(place.occupants.iter().all(|one| one.pinned) && place.isolated && place.node == Some(1));
    assert_eq!(place.interrupts, [60]);
    let emulator = found.placements.iter().find(|place| place.cpu == 1).unwrap();
    assert_eq!((emulator.occupants[0].role, emulator.occupants[0].pinned), (Role::Emulator, false));
}

#[test]
fn zen_4_with_the_values_of_oracle() {
    let found = inspect("zen4");
    let svm = found.processor.svm.get().unwrap();
    assert!(svm.avic && svm.x2avic && svm.vnmi && !svm.x2avic_extended);
    assert_eq!(found.processor.online.get().unwrap().count(), 384);
    assert_eq!(found.processor.largest_apic_id.value, Ok(383));
    assert_eq!(found.processor.microcode.get().unwrap()["0xa101144"], 384);
    assert_eq!(found.processor.erratum_1235.value, Ok(false));
    assert_eq!(found.kernel.release.get().unwrap(), "5.15.0-204.146.1.el9uek.x86_64");
    let distribution = found.kernel.distribution.get().unwrap();
    assert_eq!((distribution.id.as_str(), distribution.version.as_deref()), ("ol", Some("9.3")));
    for unit in &found.iommus.units {
        let IommuRegisters::Amd(features) = &unit.registers else { panic!("{unit:?}") };
        assert!(features.get().unwrap().posts() && features.get().unwrap().x2apic);
        assert_eq!(features.evidence[0].text, "25bf732fa2295afe");
    }
    assert!(found.topology.nohz_full.get().unwrap().is_empty());
    assert_eq!(found.topology.siblings.len(), 2);
    let line = &found.kernel.modprobe[0];
    assert_eq!((line.line, line.module.as_str(), line.rest.as_str()), (2, "kvm_amd", "avic=1"));
    let vm = &found.running.vms.get().unwrap()[0];
    assert_eq!(vm.assigned, ["0000:a1:00.1"]);
    assert_eq!(found.interrupts.devices.get().unwrap()[0].kind, DeviceKind::Assigned);
}

#[test]
fn apicv_of_the_first_and_of_a_late_generation() {
    let first = inspect("ivy-bridge");
    let vmx = first.processor.vmx.get().unwrap();
    assert_eq!((vmx.apicv(), vmx.ipi_virtualization, vmx.x2apic_mode), (Some(true), Some(false), Some(true)));
    assert_eq!(first.processor.vmx.evidence[0].place, "MSR 480h");
    let IommuRegisters::Intel(registers) = &first.iommus.units[0].registers else { panic!() };
    let registers = registers.get().unwrap();
    assert_eq!((registers.posts, registers.interrupt_remapping), (false, Some(true)));
    assert!(first.processor.feature_control.get().unwrap().vmx);
    assert!(first.running.vms.get().unwrap().is_empty());

    let late = inspect("sapphire-rapids");
    let vmx = late.processor.vmx.get().unwrap();
    assert_eq!((vmx.apicv(), vmx.ipi_virtualization), (Some(true), Some(true)));
    let IommuRegisters::Intel(registers) = &late.iommus.units[3].registers else { panic!() };
    assert!(registers.get().unwrap().posts);
    assert_eq!(late.interrupts.posted, Some(22));
    let names: Vec<&str> = late.running.vms.get().unwrap().iter().map(|one| one.vm.name.as_str()).collect();
    assert_eq!(names, ["db", "f1"]);
}

#[test]
fn registers_that_nobody_kept_leave_the_flags() {
    let text = fake::HOSTS.iter().find(|(name, _)| *name == "sapphire-rapids").unwrap().1;
    let found = Inspection::read(&fake::root(&format!("{text}\n== /exitless/msr\n"))).unwrap();
    let vmx = found.processor.vmx.get().unwrap();
    assert_eq!((vmx.apicv(), vmx.ipi_virtualization, vmx.x2apic_mode), (Some(true), Some(true), None));
    assert!(found.processor.vmx.evidence[0].text.starts_with("vmx flags: vnmi"));
}

#[test]
fn a_guest_and_a_container_say_what_is_in_the_way() {
    let guest = inspect("guest");
    assert_eq!(guest.processor.hypervisor.value, Ok(Some("KVMKVMKVM".to_owned())));
    assert_eq!(guest.processor.vmx.absence().unwrap().kind, AbsenceKind::NotApplicable);
    assert!(guest.kvm.opened.absence().unwrap().why.contains("without nested virtualization"));
    assert!(guest.iommus.units.is_empty() && guest.iommus.remapped.value == Ok(false));
    assert_eq!(guest.iommus.tables.dmar.value, Ok(false));
    assert!(guest.xen.is_none());

    let container = inspect("container");
    assert!(!container.processor.svm.get().unwrap().avic);
    assert!(container.kvm.opened.absence().unwrap().why.contains("--device /dev/kvm"));
    assert_eq!(container.kvm.vendor_module, Some("kvm_amd"));
    assert_eq!(container.running.unreadable, 1);
    assert_eq!(container.processor.vm_cr.absence().unwrap().kind, AbsenceKind::NotThere);
    assert_eq!(container.log.lines.absence().unwrap().kind, AbsenceKind::Denied);
    assert_eq!(container.kernel.lockdown.absence().unwrap().kind, AbsenceKind::Denied);
    assert!(container.kernel.config.absence().unwrap().why.contains("/boot/config-6.5.0-41-generic"));
    let IommuRegisters::Amd(features) = &container.iommus.units[0].registers else { panic!() };
    assert_eq!(features.get().unwrap().second, Some(0));
}

#[test]
fn lockdown_and_xen() {
    let locked = inspect("lockdown");
    assert_eq!(locked.kernel.lockdown.get().unwrap(), "confidentiality");
    assert!(locked.kernel.arguments.get().unwrap().has_word("intremap", "nopost"));
    let vm = &locked.running.vms.get().unwrap()[0];
    assert!(vm.vm.debugfs.is_empty());
    assert_eq!(vm.threads.last().unwrap().role, Role::Vhost);

    let found = inspect("xen-dom0");
    let xen = found.xen.unwrap();
    assert_eq!(xen.control.value, Ok(true));
    assert_eq!(xen.version.get().unwrap(), "4.17.5");
    let log = xen.log.get().unwrap();
    assert!(log.has("Virtual Interrupt Delivery") && log.has("Posted Interrupt Processing"));
    assert_eq!(log.posted_interrupts.as_deref(), Some("not enabled"));
    assert_eq!(xen.info.get().unwrap().field("xen_scheduler"), Some("credit2"));
    assert_eq!(xen.domains.get().unwrap()[1].name, "win");
    assert_eq!((log.iommu, log.interrupt_remapping), (Some(true), Some(true)));
    assert_eq!(xen.assignable.get().unwrap(), &["0000:3b:10.0", "0000:3b:10.2"]);
    let of = |function: &host::PciFunction| function.role.clone();
    assert_eq!(of(&xen.functions[0]), host::FunctionRole::Virtual { of: "0000:3b:00.0".to_owned() });
    assert_eq!(xen.functions[0].driver.as_deref(), Some("pciback"));
    assert_eq!(xen.functions.len(), 3, "{:?}", xen.functions);
    assert_eq!(xen.frequencies.get().unwrap()[0].governor.as_deref(), Some("performance"));
    assert_eq!(xen.guest_type.get().unwrap(), "PV");
}

#[test]
fn the_laboratory_of_xen_as_it_answered() {
    let xen = inspect("xen-lab").xen.unwrap();
    let domains = xen.domains.get().unwrap();
    let told: Vec<_> = domains.iter().map(|one| (one.name.as_str(), one.guest_type)).collect();
    let expected = [
        ("Domain-0", Some(XenGuestType::Pv)),
        ("pvh", Some(XenGuestType::Pvh)),
        ("hvm", Some(XenGuestType::Hvm)),
    ];
    assert_eq!(told, expected);
    let log = xen.log.get().unwrap();
    assert_eq!(
        (log.features.as_slice(), log.iommu),
        (&["Nested Page Tables (NPT)".to_owned()][..], Some(false))
    );
    assert_eq!((log.interrupt_remapping, log.posted_interrupts.as_deref()), (None, None));
    assert!(xen.vcpus.get().unwrap().iter().all(|vcpu| vcpu.hard.is_none() && vcpu.cpu.is_some()));
    assert_eq!(xen.vcpus.get().unwrap().len(), 4);
    assert_eq!(xen.pools.get().unwrap()[0].scheduler, "credit2");
    assert!(xen.assignable.get().unwrap().is_empty() && xen.frequencies.get().unwrap().is_empty());
}

#[test]
fn no_directory_is_no_host() {
    let root = host::Root::directory(std::path::Path::new("/no/such/directory"));
    let error = Inspection::read(&root).unwrap_err().to_string();
    assert!(error.contains("/no/such/directory"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let found = Inspection::read(&host::Root::directory(empty.path())).unwrap();
    assert_eq!(found.processor.first.absence().unwrap().kind, AbsenceKind::NotThere);
    assert!(found.running.vms.absence().is_some() && !found.live);
}
