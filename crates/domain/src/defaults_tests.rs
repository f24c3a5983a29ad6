//! Tests of the rules on command lines.

use crate::{Accelerator, Definition, Irqchip, NoFiles, Text, TickPolicy, qemu};

fn vm(arguments: &str) -> Definition {
    let line = format!("qemu-system-x86_64 -accel kvm {arguments}");
    qemu::read(&Text::new("test", line), &NoFiles).expect("it is a command line")
}

#[test]
fn two_machine_types_and_tdx_alone_are_split_without_a_word() {
    let cases = [
        ("-M pc-q35-4.0", Irqchip::Split),
        ("-M pc-q35-4.0+pve0", Irqchip::Split),
        ("-M microvm", Irqchip::Split),
        ("-M q35,confidential-guest-support=c -object tdx-guest,id=c", Irqchip::Split),
        ("-M q35,confidential-guest-support=c -object sev-guest,id=c", Irqchip::Kernel),
        ("-M pc-q35-4.0.1", Irqchip::Kernel),
        ("-M pc-q35-3.1", Irqchip::Kernel),
        ("-M pc-i440fx-4.0", Irqchip::Kernel),
        ("-M q35", Irqchip::Kernel),
        ("", Irqchip::Kernel),
        ("-M q35,kernel-irqchip=off", Irqchip::UserSpace),
        ("-M pc-q35-4.0,kernel_irqchip=on", Irqchip::Kernel),
    ];
    for (arguments, expected) in cases {
        assert_eq!(vm(arguments).irqchip_in_force(), expected, "{arguments}");
    }
    let translated = Text::new("test", "qemu-system-x86_64 -M q35,kernel-irqchip=split");
    let translated = qemu::read(&translated, &NoFiles).expect("it is a command line");
    assert_eq!(translated.accelerator_in_force(), Accelerator::Tcg);
    assert_eq!(translated.irqchip_in_force(), Irqchip::UserSpace);
}

#[test]
fn the_kernel_has_a_pit_where_it_has_all_and_the_machine_has_one() {
    assert_eq!(vm("-M q35").kernel_pit_in_force(), Some(TickPolicy::Delay));
    assert_eq!(vm("-M q35,pit=off").kernel_pit_in_force(), None);
    assert_eq!(vm("-M q35,kernel-irqchip=split").kernel_pit_in_force(), None);
    let discard = vm("-M q35 -global kvm-pit.lost_tick_policy=discard");
    assert_eq!(discard.kernel_pit_in_force(), Some(TickPolicy::Discard));
    let of_red_hat = ["pc-q35-rhel9.4.0", "pc-i440fx-rhel7.6.0"].map(|kind| vm(&format!("-M {kind}")));
    assert!(of_red_hat.iter().all(|vm| vm.is_of_red_hat() && !vm.has_hpet()));
    assert!(vm("-M pc-q35-9.2").has_hpet() && vm("-M pc-q35-rhel9.4.0,hpet=on").has_hpet());
    assert!(vm("-M q35").has_hpet() && !vm("-M q35,hpet=off").has_hpet() && !vm("-M microvm").has_hpet());
}

#[test]
fn machine_types_have_families_and_versions() {
    assert_eq!(vm("-M pc-q35-8.2").machine_version(), Some((8, 2)));
    assert_eq!(vm("-M pc-i440fx-9.0+pve0").machine_version(), Some((9, 0)));
    assert_eq!(vm("-M pc-q35-4.0.1").machine_version(), Some((4, 0)));
    assert_eq!(vm("-M pc-q35-rhel9.4.0").machine_version(), Some((8, 2)));
    assert_eq!(vm("-M pc-i440fx-rhel7.6.0").machine_version(), Some((2, 12)));
    assert_eq!(vm("-M pc-q35-focal-hpb").machine_version(), Some((4, 2)));
    assert_eq!(vm("-M pc-q35-eoan-hpb").machine_version(), Some((4, 0)));
    assert_eq!(vm("-M pc-i440fx-trusty").machine_version(), Some((2, 0)));
    assert_eq!(vm("-M pc-i440fx-resolute").machine_version(), Some((10, 2)));
    assert_eq!(vm("-M pc-q35-rhel9.8.0").machine_version(), Some((9, 1)));
    assert_eq!(vm("-M pc-q35-rhel10.2.0").machine_version(), Some((9, 1)));
    assert_eq!(vm("-M pc-1.0-precise").machine_version(), Some((1, 0)));
    assert_eq!(vm("-M pc-i440fx-1.5-saucy").machine_version(), Some((1, 5)));
    for unknown in ["-M pc-q35-rhel99.0.0", "-M pc-i440fx-nosuch-hpb", "-M q35", ""] {
        assert_eq!(vm(unknown).machine_version(), None, "{unknown}");
    }
    assert!(vm("-M q35+pve0").is_q35() && vm("-M pc-q35-noble").is_q35() && !vm("-M pc").is_q35());
    assert!(vm("").is_i440fx() && vm("-M pc+pve0").is_i440fx() && vm("-M pc-1.3").is_i440fx());
    assert!(!vm("-M isapc").is_i440fx() && !vm("-M virt").is_i440fx());
    let arm = Text::new("test", "qemu-system-aarch64 -m 1G");
    let arm = qemu::read(&arm, &NoFiles).expect("it is a command line");
    assert!(!arm.is_i440fx() && arm.devices.is_empty(), "no PC's devices on other machines");
}

#[test]
fn features_follow_the_irqchip_unless_they_are_said() {
    assert!(vm("").x2apic_in_force());
    assert!(!vm("-M q35,kernel-irqchip=off").x2apic_in_force());
    assert!(!vm("-cpu host,-x2apic").x2apic_in_force());
    let wide = |arguments: &str| vm(arguments).extended_destinations_in_force();
    assert!(wide("-M q35,kernel-irqchip=split") && !wide("-M q35"));
    assert!(wide("-M q35,confidential-guest-support=c -object tdx-guest,id=c -cpu host"));
    assert!(!wide("-M pc-q35-5.1,kernel-irqchip=split") && wide("-M pc-q35-5.2,kernel-irqchip=split"));
    assert!(
        !wide("-M pc-q35-rhel8.2.0,kernel-irqchip=split") && wide("-M pc-q35-jammy,kernel-irqchip=split")
    );
    assert!(!wide("-M pc-q35-eoan,kernel-irqchip=split") && !wide("-M pc-q35-nosuch,kernel-irqchip=split"));
    assert!(!wide("-M q35,kernel-irqchip=split -cpu host,kvm=off"));
    assert!(wide("-M q35 -cpu host,kvm-msi-ext-dest-id=on"));
    let passed = vm("-cpu host,hv-passthrough,hv-avic=off");
    assert!(passed.hyperv("synic") && !passed.hyperv("avic") && passed.passes_host_cpu());
    assert!(!vm("-cpu EPYC").hyperv("synic") && !vm("-cpu EPYC").passes_host_cpu());
}

#[test]
fn vcpus_are_said_or_the_product_of_the_topology() {
    let counts = |arguments: &str| (vm(arguments).vcpus_in_force(), vm(arguments).most_vcpus());
    assert_eq!(counts(""), (1, 1));
    assert_eq!(counts("-smp 4"), (4, 4));
    assert_eq!(counts("-smp cpus=4,maxcpus=8"), (4, 8));
    assert_eq!(counts("-smp sockets=2,dies=2,cores=3,threads=2"), (24, 24));
    assert_eq!(counts("-smp sockets=2 -smp cores=4"), (8, 8));
    assert_eq!(counts("-smp maxcpus=8"), (8, 8));
    assert_eq!(counts("-smp maxcpus=8,sockets=2"), (8, 8));
    assert_eq!(counts("-M q35,smp.cpus=6"), (6, 6));
    assert_eq!(counts("-smp 4294967295,sockets=4294967295,cores=2"), (u32::MAX, u32::MAX));
}
