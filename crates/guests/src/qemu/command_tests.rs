use super::super::network;
use super::*;
use crate::GuestPlan;
use crate::files::Keeper;

fn given(text: &str, index: u32) -> String {
    let GuestPlan::Qemu(plan) = toml::from_str(&format!("kind = \"qemu\"\n{text}")).unwrap() else {
        panic!("not QEMU")
    };
    let files = GuestFiles {
        compressed_kernel: "/image/vmlinuz".into(),
        kernel: "/image/vmlinux".into(),
        initial_ram_disk: "/study/initrd".into(),
        root: "/image,1/root".into(),
        without_agent: None,
        _kept_by: Keeper::default(),
    };
    let wiring = network::wiring(&plan, index);
    let words = arguments(&plan, index, &files, &wiring);
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_holds(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn a_definition_has_an_argument_a_line_and_is_the_same_in_every_process() {
    let text = "kind = \"qemu\"\nkernel_arguments = [\"idle=poll\"]\nnet = { backend = \"tap\" }";
    let GuestPlan::Qemu(plan) = toml::from_str(text).unwrap() else { panic!("not QEMU") };
    let lines = super::super::qemu_definition(&plan);
    assert_eq!(lines[0], "qemu-system-x86_64");
    for line in [
        "-nodefaults",
        "-machine q35",
        "-smp 1",
        "-append idle=poll",
        "-netdev tap,id=net,ifname=tap0,script=no,downscript=no",
    ] {
        assert!(lines.iter().any(|one| one == line), "{line} is not in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("rdinit")), "{lines:#?}");
}

#[test]
fn a_plain_guest_has_a_root_that_nobody_writes_and_its_agents_port() {
    let line = given("", 0);
    assert_holds(
        &line,
        &[
            "-machine q35 -accel kvm -cpu host -smp 1 -m 524288k",
            "readonly=on,file=/image,,1/root",
            "virtio-blk-pci,drive=root,serial=exitless-root",
            "virtserialport,chardev=agent,name=exitless",
            "-kernel /image/vmlinux -initrd /study/initrd",
            "exitless.modules=overlay,virtio_blk",
            "-- guest-agent",
        ],
    );
    assert!(!line.contains("netdev") && !line.contains("exitless.data"), "{line}");
}

#[test]
fn interrupt_controllers_and_timer_are_as_the_plan_says() {
    assert_holds(&given("irqchip = \"split\"\npit = \"off\"", 0), &["q35,kernel-irqchip=split,pit=off"]);
    let discard = given("irqchip = \"on\"\npit = \"discard\"", 0);
    assert_holds(&discard, &["kernel-irqchip=on", "-global kvm-pit.lost_tick_policy=discard"]);
}

#[test]
fn a_machine_without_pci_gets_devices_without_pci() {
    let line = given("machine = \"microvm\"\n[net]", 0);
    assert_holds(
        &line,
        &["virtio-blk-device,", "virtio-serial-device", "virtio-net-device,", "virtio_mmio,overlay"],
    );
    assert!(!line.contains("-pci"), "{line}");
    assert_holds(&given("machine = \"microvm,pcie=on\"", 0), &["virtio-blk-pci"]);
}

#[test]
fn each_bus_of_a_disk_has_its_device_and_its_drivers() {
    let fresh = given("[disk]\naio = \"native\"\ncache = \"none\"\niothread = true\nqueues = 2", 0);
    assert_holds(
        &fresh,
        &[
            "file=disk.raw,aio=native,cache=none",
            "-object iothread,id=io",
            "virtio-blk-pci,drive=data,serial=exitless-data,iothread=io,num-queues=2",
            "exitless.data=1",
        ],
    );
    assert_holds(&given("[disk]\nbus = \"virtio-scsi\"", 0), &["scsi-hd,bus=scsi.0", "virtio_scsi,sd_mod"]);
    assert_holds(&given("[disk]\nbus = \"ide\"", 0), &["ide-hd,bus=ide.0", "ahci,ata_piix,sd_mod"]);
    assert_holds(
        &given("[disk]\nbus = \"nvme\"\npath = \"/dev/vg/g{guest}\"", 3),
        &["nvme,", "file=/dev/vg/g3"],
    );
    assert!(!given("[disk]\nbus = \"none\"", 0).contains("data"));
    let slow = given("[disk]\niops = 500\nbandwidth = \"20M\"", 0);
    assert_holds(&slow, &["file=disk.raw,throttling.iops-total=500,throttling.bps-total=20971520"]);
}

#[test]
fn both_ends_of_a_network_have_addresses_that_no_other_guest_has() {
    let user = given("[net]", 1);
    assert_holds(&user, &["-netdev user,id=net", "exitless.network=10.0.2.15/24,10.0.2.2", "virtio_net"]);
    let vhost = given("[net]\nbackend = \"vhost\"\nqueues = 2", 64);
    assert_holds(
        &vhost,
        &[
            "script=no,downscript=no,vhost=on,queues=2",
            "mq=on,vectors=6",
            "exitless.network=198.18.1.2/30,198.18.1.1",
            "mac=52:54:00:18:00:40",
        ],
    );
    let socket = given("[net]\nbackend = \"vhost-user\"\nsocket = \"/run/net-{guest}\"", 2);
    assert_holds(&socket, &["memory-backend=memory", "socket,id=net,path=/run/net-2", "size=524288k"]);
    let served = given("[net]\nbackend = \"iocm\"", 2);
    assert_holds(&served, &["memory-backend=memory", "path=../iocm/net-2.sock", "198.18.0.10/30,198.18.0.9"]);
    assert_holds(&given("[net]\nbackend = \"bridge\"", 0), &["exitless.network=dhcp"]);
}

#[test]
fn without_kvm_the_cpu_is_what_the_emulator_can() {
    assert_holds(&given("accel = \"tcg\"", 0), &["-accel tcg,thread=single -cpu max"]);
}

#[test]
fn what_a_plan_adds_comes_last() {
    let line = given("kernel_arguments = [\"no-kvmapf\"]\narguments = [\"-rtc\", \"base=utc\"]", 0);
    assert!(line.ends_with("-rtc base=utc"), "{line}");
    assert_holds(&line, &["no-kvmapf -- guest-agent"]);
}
