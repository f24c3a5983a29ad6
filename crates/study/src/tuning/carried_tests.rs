use domain::NoFiles;

use super::*;

const PLAN: &str = r#"
name = "small"
title = "A small tuning"
question = "What helps?"
[guests]
kind = "qemu"
disk = { bus = "virtio-blk" }
net = { model = "virtio-net", backend = "tap" }
[[workloads]]
name = "compute"
tool = "sysbench"
test = "cpu"
[samples]
accesses = true
[tune.advised]
"#;

const XML: &str = "<domain type='kvm'>
  <name>old</name>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
  </os>
  <features>
    <acpi/>
    <ioapic driver='qemu'/>
  </features>
  <cpu mode='host-passthrough'/>
  <devices>
    <!-- two alike -->
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <source file='/var/lib/one.img'/>
      <target dev='hda' bus='ide'/>
    </disk>
    <disk type='file' device='cdrom'>
      <target dev='hdc' bus='ide'/>
    </disk>
    <interface type='bridge'>
      <source bridge='br0'/>
      <model type='e1000'/>
    </interface>
  </devices>
</domain>
";

fn plan() -> TuningPlan {
    TuningPlan::read(PLAN, "small.toml").unwrap()
}

fn read(text: &Text) -> Definition {
    domain::libvirt::read(text, &NoFiles).unwrap()
}

fn like(text: &str) -> (TuningPlan, Vec<String>) {
    plan().like(&read(&Text::new("old.xml", text)), "old.xml").unwrap()
}

fn guests(plan: &TuningPlan) -> &QemuPlan {
    match &plan.base.guests {
        GuestPlan::Qemu(plan) => plan,
        _ => panic!("not QEMU"),
    }
}

#[test]
fn guests_get_the_devices_of_the_definition() {
    let (plan, notes) = like(XML);
    let guests = guests(&plan);
    assert_eq!((guests.machine.as_str(), guests.irqchip), ("pc", Some(Irqchip::Split)));
    assert_eq!(guests.disk().unwrap().bus, DiskBus::Ide);
    assert_eq!(guests.net().unwrap().model, NetModel::Vmxnet3);
    assert!(notes[0].contains("no driver for e1000; vmxnet3 replaces it"), "{notes:?}");
    let modern = XML.replace("machine='pc'", "machine='q35'").replace("bus='ide'", "bus='virtio'");
    let modern = modern.replace("model type='e1000'", "model type='virtio'").replace("hda", "vda");
    let (plan, _) = like(&modern);
    let guests = super::tests::guests(&plan);
    assert_eq!(guests.machine, "q35");
    assert_eq!(guests.disk().unwrap().bus, DiskBus::VirtioBlk);
    assert_eq!(guests.net().unwrap().model, NetModel::VirtioNet);
    assert_eq!(guests.net().unwrap().backend, NetBackend::Vhost, "libvirt's choice");
    let (plan, _) =
        like(&modern.replace("<model type='virtio'/>", "<model type='virtio'/><driver name='qemu'/>"));
    assert_eq!(super::tests::guests(&plan).net().unwrap().backend, NetBackend::Tap);
}

#[test]
fn enlightenments_with_a_value_are_no_switches() {
    let hyperv = "<hyperv><relaxed state='on'/><spinlocks state='on' retries='8191'/>\
                  <vendor_id state='on' value='Nvidia'/></hyperv>";
    let (plan, _) = like(&XML.replace("<acpi/>", &format!("<acpi/>{hyperv}")));
    assert_eq!(super::tests::guests(&plan).cpu.as_deref(), Some("host,hv-relaxed=on"));
}

#[test]
fn kept_changes_are_made_in_the_xml_and_nothing_besides() {
    let (plan, _) = like(XML);
    let over = "irqchip = \"on\"\nmachine = \"pc,hpet=off\"\ndisk = { bus = \"virtio-blk\", iothread = true, aio = \"native\" }\n\
                net = { model = \"virtio-net\", backend = \"vhost\" }\nkernel_arguments = [\"quiet\"]";
    let after = plan.base.guests.with([&over.parse().unwrap()]).unwrap();
    let text = Text::new("old.xml", XML);
    let carried = carried(&plan.base.guests, &after, &text, &NoFiles, Form::Libvirt).unwrap();
    for part in [
        "<driver name='qemu' type='raw' cache='none' iothread='1' io='native'/>",
        "<target dev='vda' bus='virtio'/>",
        "<target dev='hdc' bus='ide'/>",
        "<model type='virtio'/>",
        "<ioapic driver='kvm'/>",
        "<timer name='hpet' present='no'/>",
        "<iothreads>1</iothreads>",
        "<!-- two alike -->",
    ] {
        assert!(carried.text.contains(part), "{part} is not in\n{}\n{:?}", carried.text, carried.left);
    }
    let left = ["guests.kernel_arguments became [\"quiet\"]; a definition has no such change."];
    assert_eq!(carried.left, left);
    assert!(carried.notes.iter().any(|note| note.contains("needs the driver")), "{:?}", carried.notes);
    // Guests that resemble the tuned definition are equal to the tuned guests.
    let (again, _) = like(&carried.text);
    let again = guests(&again);
    assert_eq!(again.machine, "pc,hpet=off");
    assert!(again.disk().unwrap().iothread && again.irqchip.is_none());
}

#[test]
fn without_a_kept_change_no_byte_differs() {
    let (plan, _) = like(XML);
    let text = Text::new("old.xml", XML);
    let same = carried(&plan.base.guests, &plan.base.guests, &text, &NoFiles, Form::Libvirt).unwrap();
    assert_eq!((same.text.as_str(), same.left), (XML, Vec::new()));
}

#[test]
fn what_a_kept_change_removes_is_told() {
    let line = |more: &str| {
        format!(
            "qemu-system-x86_64 -accel kvm -M q35,kernel-irqchip=on -global kvm-pit.lost_tick_policy=discard \
             -cpu host,pmu=off,kvmclock=off,hv-time=on,hv-vpindex=on,hv-synic=on,hv-stimer=on,hv-stimer-direct=on \
             -object iothread,id=io {more}"
        )
    };
    let devices = "-drive if=none,id=d,file=a.img -device virtio-blk-pci,drive=d,iothread=io \
                   -netdev tap,id=n -device virtio-net-pci,netdev=n";
    let left = |more: &str, over: &str| {
        let text = Text::new("a command line", line(more));
        let (plan, _) = plan().like(&domain::qemu::read(&text, &NoFiles).unwrap(), "it").unwrap();
        let after = plan.base.guests.with([&over.parse().unwrap()]).unwrap();
        carried(&plan.base.guests, &after, &text, &NoFiles, Form::Qemu).unwrap()
    };
    for (over, told) in [
        ("disk = { iothread = false }", "guests.disk.iothread became false"),
        ("disk = { bus = \"none\", iothread = false }", "guests.disk.bus became \"none\""),
        ("net = { model = \"none\" }", "guests.net.model became \"none\""),
        ("pit = \"on\"", "guests.pit became \"on\""),
        ("cpu = \"host,kvmclock=off,hv-time=on\"", "guests.cpu became \"host,kvmclock=off,hv-time=on\""),
    ] {
        let carried = left(devices, over);
        assert!(carried.left[0].starts_with(told), "{over}: {carried:?}");
    }
    // Changes that a definition has, although they remove something.
    let carried = left(devices, "cpu = \"host,pmu=off\"");
    assert_eq!(carried.left, Vec::<String>::new());
    let is_on = |word: &str| word.starts_with("hv-") && word.ends_with("=on");
    assert!(
        !carried.text.split([',', ' ']).any(is_on) && !carried.text.contains("kvmclock=off"),
        "{carried:?}"
    );
    // The definition has no disk, and QEMU's default interface.
    let carried = left("", "disk = { bus = \"ide\" }\nnet = { backend = \"vhost\" }");
    assert!(carried.left[0].starts_with("guests.disk.bus became \"ide\""), "{carried:?}");
    assert!(carried.left[1].starts_with("e1000e cannot have vhost."), "{carried:?}");
}

#[test]
fn a_command_line_is_tuned_as_well() {
    let line = "qemu-system-x86_64 -accel kvm -M q35 -cpu host -drive if=none,id=d,file=a.img \
                -device virtio-blk-pci,drive=d -netdev tap,id=n -device virtio-net-pci,netdev=n";
    let text = Text::new("a command line", line);
    let (plan, _) = plan().like(&domain::qemu::read(&text, &NoFiles).unwrap(), "it").unwrap();
    let over = "cpu = \"host,pmu=off\"\nnet = { backend = \"vhost\" }".parse().unwrap();
    let after = plan.base.guests.with([&over]).unwrap();
    let carried = carried(&plan.base.guests, &after, &text, &NoFiles, Form::Qemu).unwrap();
    assert!(carried.text.contains("vhost=on") && carried.text.contains("pmu=off"), "{carried:?}");
    assert_eq!(carried.left, Vec::<String>::new());
}
