use super::*;
use domain::{NoFiles, Text};

fn facts(arguments: &str) -> Facts {
    let text = Text::new("a test", format!("qemu-system-x86_64 {arguments}").into_bytes());
    Facts::of(&domain::qemu::read(&text, &NoFiles).unwrap())
}

#[test]
fn what_is_said_and_what_holds_without_a_word() {
    let plain = facts("-accel kvm -M q35 -display none");
    assert!(plain.all(&[Fact::Q35, Fact::KvmClock, Fact::IrqchipKernel, Fact::PvEoi]));
    assert!(!plain.has(Fact::NoHpet) && !plain.has(Fact::NoVmport) && !plain.has(Fact::CpuPm));
    let tuned = facts(
        "-accel kvm -M pc,hpet=off,vmport=off,kernel-irqchip=split -overcommit cpu-pm=on \
         -cpu host,kvmclock=off,kvm-pv-eoi=off,hv-time,hv-stimer,hv-synic,hv-vpindex,hv-avic,pmu=off,+invtsc",
    );
    assert!(tuned.all(&[Fact::I440fx, Fact::NoHpet, Fact::NoVmport, Fact::CpuPm, Fact::HypervTime]));
    assert!(tuned.all(&[Fact::HypervStimer, Fact::HypervAvic, Fact::NoPmu, Fact::Invtsc]));
    assert!(!tuned.has(Fact::KvmClock) && !tuned.has(Fact::PvEoi) && !tuned.has(Fact::IrqchipKernel));
}

#[test]
fn a_trust_domain_has_a_split_irqchip_and_no_pic() {
    let tdx =
        facts("-accel kvm -M q35,confidential-guest-support=c -object tdx-guest,id=c -cpu host -nodefaults");
    assert!(tdx.all(&[Fact::Tdx, Fact::NoPic]) && !tdx.has(Fact::IrqchipKernel) && !tdx.has(Fact::Sev));
    let sev = facts("-accel kvm -M q35,confidential-guest-support=c -object sev-guest,id=c -nodefaults");
    assert!(!sev.has(Fact::Tdx) && !sev.has(Fact::NoPic) && sev.all(&[Fact::IrqchipKernel, Fact::Sev]));
    assert!(!facts("-accel kvm -M q35 -nodefaults").has(Fact::Sev));
}

#[test]
fn encrypted_memory_is_not_merged_and_that_of_tdx_and_snp_is_private() {
    let of = |object: &str| {
        let facts = facts(&format!("-accel kvm -M q35,confidential-guest-support=c -object {object},id=c"));
        (facts.has(Fact::NoMerge), facts.has(Fact::PrivateMemory))
    };
    assert_eq!(
        ["tdx-guest", "sev-snp-guest", "sev-guest"].map(of),
        [(true, true), (true, true), (true, false)]
    );
    let plain = facts("-accel kvm -M q35");
    assert!(!plain.has(Fact::NoMerge) && !plain.has(Fact::PrivateMemory));
}

#[test]
fn devices_are_those_of_the_arguments() {
    let old = facts("-accel kvm -M pc -usb -device usb-tablet -device e1000 -device rtl8139 -vga std");
    assert!(old.all(&[Fact::UsbPolled, Fact::NicE1000, Fact::NicRtl8139, Fact::Display]));
    assert!(!old.has(Fact::VirtioPci) && !old.has(Fact::VirtioGpu));
    let new = facts(
        "-accel kvm -M q35 -nodefaults -device qemu-xhci -device usb-tablet -device virtio-vga \
         -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n -device virtio-balloon-pci \
         -device virtio-blk-pci,drive=d,ioeventfd=off -drive if=none,id=d,file=a.img",
    );
    assert!(new.all(&[Fact::UsbXhci, Fact::VirtioPci, Fact::VirtioGpu, Fact::Balloon, Fact::IoeventfdOff]));
    assert!(!new.has(Fact::UsbPolled) && !new.has(Fact::VirtioNetInVmm) && !new.has(Fact::NicE1000));
    assert!(facts("-accel kvm -M q35 -device igb").has(Fact::NicE1000));
}

#[test]
fn what_libvirt_chooses_is_in_place() {
    let facts = |kind: &str, cpu: &str, interface: &str| {
        let xml = format!(
            "<domain type='{kind}'><os><type machine='q35'>hvm</type></os><cpu mode='{cpu}'/><devices>\
             <interface {interface}</interface></devices></domain>"
        );
        Facts::of(&domain::libvirt::read(&Text::new("a test", xml), &NoFiles).unwrap())
    };
    let bridge = "type='bridge'><source bridge='br0'/><model type='virtio'/>";
    let kvm = facts("kvm", "host-model", bridge);
    assert!(kvm.has(Fact::HostCpu) && !kvm.has(Fact::VirtioNetInVmm));
    let told = facts("kvm", "host-passthrough", &format!("{bridge}<driver name='qemu'/>"));
    assert!(told.all(&[Fact::HostCpu, Fact::VirtioNetInVmm]));
    let tcg = facts("qemu", "maximum", bridge);
    assert!(tcg.has(Fact::VirtioNetInVmm) && !tcg.has(Fact::HostCpu));
    let plain = facts("kvm", "custom", "type='user'><model type='virtio'/>");
    assert!(plain.has(Fact::VirtioNetInVmm) && !plain.has(Fact::HostCpu));
}

#[test]
fn a_microvm_has_no_pci_devices() {
    let facts = facts(
        "-accel kvm -M microvm,pic=off -device virtio-blk-device,drive=d -drive if=none,id=d,file=a.img",
    );
    assert!(facts.all(&[Fact::Microvm, Fact::NoPic, Fact::NoHpet, Fact::NoVmport]));
    assert!(!facts.has(Fact::VirtioPci));
}

#[test]
fn what_shows_that_a_cure_is_in_place_is_read() {
    let plain = facts("-accel kvm -M pc -cpu qemu64 -device virtio-net-pci");
    for fact in [Fact::PollControl, Fact::PvUnhalt, Fact::PvIpi, Fact::NoMerge, Fact::MemoryLocked] {
        assert!(!plain.has(fact), "{fact:?}");
    }
    assert!(!plain.has(Fact::PvTlbFlush));
    // A machine without -nodefaults has a CD drive.
    assert!(plain.has(Fact::CdDrive) && !plain.has(Fact::PackedRings));
    let host = facts("-accel kvm -M q35,mem-merge=off -cpu host -overcommit mem-lock=on -nodefaults");
    assert!(host.all(&[Fact::PollControl, Fact::PvUnhalt, Fact::PvIpi, Fact::NoMerge, Fact::MemoryLocked]));
    assert!(host.has(Fact::PvTlbFlush));
    assert!(!host.has(Fact::CdDrive) && !host.has(Fact::VirtioInOtherProcess));
    let tuned = facts(
        "-accel kvm -M q35 -cpu qemu64,+kvm-pv-ipi,kvm-pv-unhalt=on -nodefaults \
         -chardev socket,id=c,path=/run/a.sock -device vhost-user-blk-pci,chardev=c \
         -chardev socket,id=n,path=/run/n.sock -netdev vhost-user,id=v,chardev=n \
         -device virtio-net-pci,netdev=v,packed=on",
    );
    assert!(tuned.all(&[Fact::PvIpi, Fact::PvUnhalt, Fact::VirtioInOtherProcess, Fact::PackedRings]));
    assert!(!tuned.has(Fact::PollControl));
}

#[test]
fn a_guest_that_does_not_detect_kvm_is_offered_none_of_its_features() {
    let paravirtual =
        [Fact::KvmClock, Fact::PvEoi, Fact::PollControl, Fact::PvUnhalt, Fact::PvIpi, Fact::PvTlbFlush];
    assert!(facts("-accel kvm -M q35 -cpu host").all(&paravirtual));
    for hidden in ["hypervisor=off", "kvm=off", "hypervisor=off,+kvm-pv-ipi"] {
        let facts = facts(&format!("-accel kvm -M q35 -cpu host,{hidden}"));
        assert!(paravirtual.iter().all(|&fact| !facts.has(fact)), "{hidden}: {facts:?}");
    }
}

#[test]
fn an_enlightened_guest_has_the_paravirtual_methods_of_hyper_v_alone() {
    let methods = [Fact::PvEoi, Fact::PvIpi, Fact::PvTlbFlush, Fact::PvUnhalt];
    let has = |cpu: &str| {
        let facts = facts(&format!("-accel kvm -M q35 -cpu {cpu}"));
        methods.map(|method| facts.has(method))
    };
    assert_eq!(has("host"), [true; 4]);
    assert_eq!(has("host,hv-crash"), [true; 4]);
    assert_eq!(has("host,hv-vendor-id=other"), [true; 4]);
    assert_eq!(has("host,hv-relaxed"), [false; 4]);
    assert_eq!(has("host,hv-relaxed,hv-vpindex,hv-ipi"), [false, true, false, false]);
    assert_eq!(has("Skylake-Server,hv-vapic,hv-spinlocks=0xfff"), [true, false, false, true]);
    assert_eq!(has("host,hv-passthrough"), [true; 4]);
    assert!(facts("-accel kvm -M q35 -cpu host,hv-vapic").has(Fact::HypervVapic));
}

#[test]
fn memory_and_devices_of_libvirt_are_read_as_those_of_qemu() {
    let facts_of = |parts: &str| {
        let text = Text::new("a test", format!("<domain type='kvm'>{parts}</domain>").into_bytes());
        Facts::of(&domain::libvirt::read(&text, &NoFiles).unwrap())
    };
    let disk = |driver: &str| {
        format!("<devices><disk><driver {driver}/><target dev='vda' bus='virtio'/></disk></devices>")
    };
    let memory = "<memoryBacking><hugepages/><nosharepages/><locked/></memoryBacking>\
                  <features><pmu state='off'/></features>";
    let tuned = facts_of(&format!("{memory}{}", disk("packed='on' ioeventfd='off'")));
    let wanted = [
        Fact::HugePages,
        Fact::NoMerge,
        Fact::MemoryLocked,
        Fact::NoPmu,
        Fact::PackedRings,
        Fact::IoeventfdOff,
    ];
    assert!(tuned.all(&wanted), "{tuned:?}");
    let plain = facts_of(&disk("name='qemu'"));
    assert!(wanted.iter().all(|&fact| !plain.has(fact)), "{plain:?}");
    let ipis = "<features><kvm><pv-ipi state='on'/></kvm></features>";
    assert!(!facts_of(&format!("{ipis}<cpu mode='host-model'/>")).has(Fact::PvIpi));
    assert!(facts_of(&format!("{ipis}<cpu mode='host-passthrough'/>")).has(Fact::PvIpi));
    // The cure's own line.
    let cured = facts("-accel kvm -object memory-backend-memfd,id=m,size=1G,hugetlb=on -M memory-backend=m");
    assert!(cured.has(Fact::HugePages));
    assert!(!facts("-accel kvm -m 1G -mem-path /dev/shm").has(Fact::HugePages));
}
