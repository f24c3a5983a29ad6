use super::*;
use proptest::prelude::*;

fn of(name: &str, line: &[&str], cgroup: &str) -> Management {
    let arguments: Vec<String> = line.iter().map(|&one| one.to_owned()).collect();
    Management::of(Vmm::Qemu, Some(name), &arguments, cgroup)
}

const UUID: &str = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0";

#[test]
fn proxmox_is_known_by_its_control_group_and_by_its_sockets() {
    let line = [
        "/usr/bin/kvm",
        "-id",
        "100",
        "-name",
        "web,debug-threads=on",
        "-pidfile",
        "/var/run/qemu-server/100.pid",
        "-smbios",
        "type=1,uuid=4DEA22B3-1d52-d8f3-2516-782e98ab3fa0",
    ];
    let found = of("web", &line, "0::/qemu.slice/100.scope\n");
    assert_eq!(found.manager, Manager::Proxmox);
    assert_eq!((found.vmid, found.vmid_confirmed, found.uuid.as_deref()), (Some(100), true, Some(UUID)));
    assert!(found.is_called(&UUID.to_uppercase()));
    let by_sockets = of("web", &line, "0::/user.slice\n");
    assert_eq!((by_sockets.vmid, by_sockets.vmid_confirmed), (Some(100), false), "anybody can write that");
    let own = "0::/user.slice/user-1000.slice/user@1000.service/qemu.slice/100.scope\n";
    let pretended = of("web", &["qemu", "-name", "web"], own);
    assert_eq!(
        (pretended.manager, pretended.vmid),
        (Manager::Qemu, None),
        "users name groups below their own"
    );
    for wrong in [["-id", "99"], ["-id", "+100"], ["-id", "1000000000"], ["-id", "100"]] {
        let line = ["kvm", wrong[0], wrong[1], "-pidfile", "/run/qemu-server/99.pid"];
        assert_eq!(of("web", &line, "0::/qemu.slice/x.scope\n").manager, Manager::Qemu, "{wrong:?}");
    }
}

const MONITOR: &str = "socket,id=charmonitor,path=/var/lib/libvirt/qemu/domain-3-web/monitor.sock";

#[test]
fn what_stands_above_libvirt_is_told_apart() {
    let nova = "type=1,manufacturer=OpenStack Foundation,product=OpenStack Nova,version=29.0.1,family=Virtual Machine";
    let ovirt =
        "type=1,manufacturer=oVirt,product=RHEL,version=9.2,uuid=4dea22b3-1d52-d8f3-2516-782e98ab3fa0";
    let kubevirt = "type=1,manufacturer=KubeVirt,product=None,family=KubeVirt";
    let table = [
        ("web", "", Manager::Libvirt),
        ("instance-0000001a", nova, Manager::Nova),
        ("instance-0000001a", "", Manager::Nova),
        ("instance-1a", "", Manager::Libvirt),
        ("db", ovirt, Manager::Ovirt),
        ("prod_web", kubevirt, Manager::KubeVirt),
    ];
    for (name, smbios, manager) in table {
        let mut line = vec!["qemu-kvm", "-name", name, "-uuid", UUID, "-chardev", MONITOR];
        if !smbios.is_empty() {
            line.extend(["-smbios", smbios]);
        }
        let found = of(name, &line, "0::/\n");
        assert_eq!((found.manager, found.libvirt_id), (manager, Some(3)), "{name} {smbios}");
        assert_eq!(found.uuid.as_deref(), Some(UUID));
        assert_eq!(found.is_domain(3), manager != Manager::KubeVirt, "each pod has a libvirt");
        assert_eq!(found.is_called("prod/web"), manager == Manager::KubeVirt);
    }
}

#[test]
fn incus_and_lxd_are_known_by_the_board() {
    let of_board = |smbios: &str| {
        let line =
            ["qemu-system-x86_64", "-name", "web", "-uuid", UUID, "-readconfig", "x", "-smbios", smbios];
        of("web", &line, "0::/\n")
    };
    let incus = of_board("type=2,manufacturer=LinuxContainers,product=Incus");
    assert_eq!((incus.manager, incus.uuid.as_deref()), (Manager::Incus, Some(UUID)));
    assert_eq!(incus.evidence, ["-smbios type=2,product=Incus"]);
    let lxd = of_board("type=2,manufacturer=Canonical Ltd.,product=LXD");
    assert_eq!((lxd.manager, lxd.manager.is_vmm()), (Manager::Lxd, false));
    assert_eq!(of_board("type=1,product=LXD").manager, Manager::Qemu);
}

#[test]
fn the_control_group_gives_libvirts_id_and_tells_a_pod() {
    let group = "0::/machine.slice/machine-qemu\\x2d17\\x2dweb.scope/libvirt/emulator\n";
    let found = of("web", &["qemu", "-chardev", MONITOR], group);
    assert_eq!((found.libvirt_id, found.libvirt_id_confirmed), (Some(17), true));
    let found = of("web", &["qemu", "-chardev", MONITOR], "0::/user.slice\n");
    assert_eq!((found.libvirt_id, found.libvirt_id_confirmed), (Some(3), false), "anybody can write that");
    let pod = "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n";
    assert_eq!(of("prod_web.a", &["qemu", "-chardev", MONITOR], pod).manager, Manager::KubeVirt);
    assert_eq!(
        of("Prod_web", &["qemu", "-chardev", MONITOR], pod).manager,
        Manager::Libvirt,
        "no name of Kubernetes"
    );
    assert_eq!(
        of("prod_web", &["qemu"], pod).manager,
        Manager::Qemu,
        "a QEMU in a pod is not yet KubeVirt's"
    );
}

#[test]
fn other_vmms_are_their_own_managers() {
    let line = |words: &str| -> Vec<String> { words.split(' ').map(str::to_owned).collect() };
    let arguments = line(&format!("cloud-hypervisor --platform num_pci_segments=1,uuid={UUID}"));
    let found = Management::of(Vmm::CloudHypervisor, None, &arguments, "");
    assert_eq!((found.manager, found.uuid.as_deref()), (Manager::CloudHypervisor, Some(UUID)));
    let of = |vmm| Management::of(vmm, None, &line("x -id 100"), "0::/qemu.slice/100.scope").manager;
    assert_eq!(
        [Vmm::Crosvm, Vmm::Firecracker, Vmm::Other].map(of),
        [Manager::Crosvm, Manager::Firecracker, Manager::Other]
    );
}

proptest! {
    /// No command line that a user can write leads to a malformed name.
    #[test]
    fn hostile_command_lines_give_well_formed_names(
        words in prop::collection::vec("(-id|-uuid|-smbios|-name|type=1,manufacturer=KubeVirt|[\\x00-\\x7f/_,=$`;é-]{0,40}|/run/qemu-server/[0-9]{1,12}\\.|/domain-[0-9+-]{0,12}-)", 0..12),
        name in "[a-z_.$/;-]{0,20}",
        cgroup in "(0::/qemu.slice/[0-9+x]{0,12}\\.scope|kubepods|0::/machine.slice/machine-qemu\\\\x2d[0-9+]{0,12}\\\\x2d)\n?",
    ) {
        let arguments: Vec<String> = std::iter::once("qemu".to_owned()).chain(words).collect();
        let found = Management::of(Vmm::Qemu, Some(&name), &arguments, &cgroup);
        prop_assert!(found.vmid.is_none_or(|vmid| VMIDS.contains(&vmid)));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        prop_assert!(found.uuid.as_deref().is_none_or(plain));
        if let Some((space, name)) = &found.namespaced {
            prop_assert!(plain(space) && plain(name) && !space.is_empty() && !name.is_empty());
        }
    }
}
