use super::*;
use crate::{Accelerator, Backend, CpuModel, DeviceKind, FeatureState, Irqchip, NoFiles, TickPolicy};
use proptest::prelude::*;

pub(super) fn read_text(text: &str) -> Definition {
    read(&Text::new("test.xml", text), &NoFiles).unwrap()
}

/// A domain with these parts.
fn domain(parts: &str) -> Definition {
    read_text(&format!("<domain type='kvm'>\n{parts}\n</domain>"))
}

fn devices(parts: &str) -> Definition {
    domain(&format!("<os><type machine='pc-q35-9.2'>hvm</type></os><devices>{parts}</devices>"))
}

#[test]
fn every_value_stands_at_its_place() {
    let text = "<domain type='kvm'>\n  <os>\n    <type machine=\"pc-q35-9.2\">hvm</type>\n  </os>\n  \
                <vcpu current='2'>4</vcpu>\n  <features>\n    <ioapic driver='qemu'/>\n  </features>\n</domain>";
    let definition = read_text(text);
    let kind = definition.machine.kind.unwrap();
    assert_eq!((kind.value.as_str(), kind.place.line), ("pc-q35-9.2", 3));
    assert_eq!(&text[kind.place.start..kind.place.end], "pc-q35-9.2");
    assert_eq!(kind.place.text, "machine=\"pc-q35-9.2\"");
    let irqchip = definition.machine.irqchip.unwrap();
    assert_eq!((irqchip.value, irqchip.place.line), (Irqchip::Split, 7));
    assert_eq!(&text[irqchip.place.start..irqchip.place.end], "qemu");
    assert_eq!(definition.machine.accelerator.unwrap().value, Accelerator::Kvm);
    assert_eq!(definition.vcpus.count.unwrap().value, 2);
    let maximum = definition.vcpus.maximum.unwrap();
    assert_eq!((maximum.value, maximum.place.text.as_str()), (4, "<vcpu current='2'>4</vcpu>"));
}

#[test]
fn memory_has_units() {
    for (written, mebibytes) in [
        ("<memory>4194304</memory>", 4096),
        ("<memory unit='GiB'>3</memory>", 3072),
        ("<memory unit='G'>3</memory>", 3072),
        ("<memory unit='MB'>1048576</memory>", 1_000_000),
        ("<memory unit='bytes'>1073741824</memory>", 1024),
    ] {
        assert_eq!(domain(written).memory_mib.unwrap().value, mebibytes, "{written}");
    }
    let odd = domain("<memory unit='furlong'>3</memory>");
    assert!(
        odd.memory_mib.is_none() && odd.doubts[0].starts_with("Line 2: <memory unit='furlong'>3"),
        "{odd:?}"
    );
    assert!(domain("<memory unit='EiB'>18446744073709551615</memory>").memory_mib.is_none());
}

#[test]
fn timers_say_what_becomes_of_lost_ticks() {
    let definition = domain(
        "<clock offset='localtime'><timer name='pit' tickpolicy='discard'/><timer name='rtc' tickpolicy='catchup'/>\
         <timer name='hpet' present='no'/><timer name='hypervclock' present='yes'/>\
         <timer name='tsc' frequency='2400000000'/></clock>",
    );
    assert_eq!(definition.timers.pit.unwrap().value, TickPolicy::Discard);
    assert_eq!(definition.timers.rtc.unwrap().value, TickPolicy::CatchUp);
    assert!(!definition.timers.hpet.unwrap().value);
    assert!(definition.timers.hyperv_clock.unwrap().value);
    assert!(definition.cpu.hyperv.features["time"].value);
    assert_eq!(definition.cpu.properties[0].value, ("tsc-frequency".into(), "2400000000".into()));
}

#[test]
fn a_pit_is_there_even_if_the_timer_denies_it() {
    let pit = |policy: &str| {
        domain(&format!("<clock><timer name='pit' present='no' tickpolicy='{policy}'/></clock>"))
    };
    for (policy, known) in [("delay", TickPolicy::Delay), ("discard", TickPolicy::Discard)] {
        let definition = pit(policy);
        assert!(definition.machine.pit.is_none() && definition.doubts.is_empty(), "{definition:?}");
        assert_eq!(definition.kernel_pit_in_force(), Some(known));
    }
}

#[test]
fn enlightenments_have_qemus_names() {
    let definition = domain(
        "<features><hyperv mode='custom'><synic state='on'/><stimer state='on'><direct state='on'/></stimer>\
         <emsr_bitmap state='off'/><spinlocks state='on' retries='8191'/><vendor_id state='on' value='x'/>\
         <tlbflush state='on'><extended state='on'/></tlbflush></hyperv><kvm><hidden state='on'/></kvm></features>",
    );
    let on = |name: &str| definition.cpu.hyperv.features[name].value;
    assert!(on("synic") && on("stimer") && on("stimer-direct") && on("tlbflush-ext") && !on("emsr-bitmap"));
    assert_eq!(definition.cpu.properties[0].value, ("hv-spinlocks".into(), "8191".into()));
    assert_eq!(definition.cpu.feature("kvm"), Some(FeatureState::Off));
    assert!(definition.cpu.hyperv.passthrough.is_none());
    for mode in ["passthrough", "host-model"] {
        let all = domain(&format!("<features><hyperv mode='{mode}'/></features>"));
        assert!(all.cpu.hyperv.passthrough.unwrap().value, "{mode}");
        assert!(all.doubts.is_empty(), "{mode}");
    }
}

#[test]
fn states_that_libvirt_does_not_pass_on_are_those_of_the_cpu_model() {
    let read = |cpu: &str, kvm: &str| {
        let cpu = domain(&format!("<features><kvm><{kvm}/></kvm></features><cpu {cpu}</cpu>")).cpu;
        (cpu.feature("kvm-pv-ipi"), cpu.feature("kvm-poll-control"))
    };
    let (named, host) = ("mode='custom'><model>EPYC</model>", "mode='host-passthrough'>");
    let (on, off) = (Some(FeatureState::On), Some(FeatureState::Off));
    for (cpu, kvm, wanted) in [
        (named, "pv-ipi state='on'", (None, None)),
        (named, "pv-ipi state='off'", (off, None)),
        (host, "pv-ipi state='on'", (on, None)),
        (host, "pv-ipi state='off'", (off, None)),
        (named, "poll-control state='on'", (None, on)),
        (named, "poll-control state='off'", (None, off)),
        (host, "poll-control state='on'", (None, on)),
        (host, "poll-control state='off'", (None, None)),
    ] {
        assert_eq!(read(cpu, kvm), wanted, "{cpu} {kvm}");
    }
}

#[test]
fn the_processor_has_a_model_features_and_a_topology() {
    let definition = domain(
        "<cpu mode='custom' match='exact'><model fallback='forbid'>EPYC-Genoa</model>\
         <topology sockets='2' dies='1' cores='4' threads='2'/><feature policy='require' name='x2apic'/>\
         <feature policy='disable' name='svm'/><feature policy='optional' name='cmp_legacy'/></cpu>",
    );
    assert_eq!(definition.cpu.model.as_ref().unwrap().value, CpuModel::Named("EPYC-Genoa".into()));
    assert_eq!(definition.cpu.feature("x2apic"), Some(FeatureState::On));
    assert_eq!(definition.cpu.feature("svm"), Some(FeatureState::Off));
    assert_eq!(definition.cpu.feature("cmp-legacy"), Some(FeatureState::Optional));
    assert_eq!(definition.vcpus.cores.unwrap().value, 4);
    let host = domain("<cpu mode='host-passthrough' migratable='off'/>");
    assert_eq!(host.cpu.model.unwrap().value, CpuModel::Host);
}

#[test]
fn devices_have_qemus_models() {
    let definition = devices(
        "<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none' io='native' queues='4' \
         iothread='2'/><source file='/d.qcow2'/><target dev='vda' bus='virtio'/></disk>\
         <disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>\
         <disk type='block' device='lun'><source dev='/dev/sdq'/><target dev='sdb' bus='scsi'/></disk>\
         <interface type='bridge'><source bridge='br0'/><model type='virtio'/><driver name='vhost' queues='8'/></interface>\
         <interface type='network'><source network='default'/><model type='e1000e'/></interface>\
         <interface type='user'><model type='virtio-transitional'/></interface>\
         <hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0' bus='0x3' slot='0x0' \
         function='0x1'/></source></hostdev>\
         <video><model type='qxl' primary='yes'/></video><video><model type='qxl'/></video>\
         <video><model type='virtio'/></video>\
         <controller type='usb' model='ich9-ehci1'/><controller type='sata' index='0'/>\
         <controller type='pci' model='pcie-root'/><controller type='pci' model='pcie-root-port'/>\
         <controller type='scsi' model='virtio-scsi'><driver queues='4' iothread='1'/></controller>\
         <filesystem type='mount'><driver type='virtiofs'/><source dir='/srv'/></filesystem>\
         <memballoon model='none'/><vsock model='virtio'/>\
         <serial type='pty'/><console type='pty'><target type='serial'/></console>",
    );
    let models: Vec<&str> = definition.devices.iter().map(|device| device.model.as_str()).collect();
    let expected = [
        "virtio-blk-pci",
        "ide-cd",
        "scsi-block",
        "virtio-net-pci",
        "e1000e",
        "virtio-net-pci-transitional",
        "vfio-pci",
        "qxl-vga",
        "qxl",
        "virtio-gpu-pci",
        "ich9-usb-ehci1",
        "pcie-root-port",
        "virtio-scsi-pci",
        "vhost-user-fs-pci",
        "vhost-vsock-pci",
        "isa-serial",
    ];
    assert_eq!(models, expected);
    let disk = &definition.devices[0];
    assert_eq!(disk.queues.as_ref().unwrap().value, 4);
    assert_eq!(disk.aio.as_ref().unwrap().value, "native");
    assert_eq!(disk.cache.as_ref().unwrap().value, "none");
    assert_eq!(disk.iothreads[0].value, "iothread2");
    assert_eq!(disk.source.as_ref().unwrap().value, "/d.qcow2");
    assert_eq!(disk.id.as_deref(), Some("vda"));
    assert!(disk.properties.contains(&("driver@type".into(), "qcow2".into())));
    assert_eq!(definition.devices[3].backend.as_ref().unwrap().value, Backend::Vhost);
    assert_eq!(definition.devices[4].backend, None);
    assert_eq!(definition.devices[5].backend.as_ref().unwrap().value, Backend::Vmm);
    assert_eq!(definition.devices[6].source.as_ref().unwrap().value, "0000:03:00.1");
    assert_eq!(definition.devices[6].kind, DeviceKind::Assigned);
    assert_eq!(definition.devices[12].queues.as_ref().unwrap().value, 4);
    assert_eq!(definition.devices[13].backend.as_ref().unwrap().value, Backend::VhostUser);
}

#[test]
fn threads_and_pins() {
    let definition = domain(
        "<vcpu placement='static' cpuset='8-11'>3</vcpu><iothreads>3</iothreads>\
         <iothreadids><iothread id='7'><poll max='1'/></iothread><iothread id='1'/></iothreadids>\
         <cputune><vcpupin vcpu='1' cpuset='4'/><emulatorpin cpuset='0-1'/>\
         <iothreadpin iothread='7' cpuset='2'/></cputune>",
    );
    let threads: Vec<_> = definition.iothreads.iter().map(|thread| thread.id.as_str()).collect();
    assert_eq!(threads, ["iothread7", "iothread1", "iothread2"]);
    assert_eq!(definition.iothreads[0].cpus.as_ref().unwrap().value, "2");
    assert_eq!(definition.iothreads[1].cpus.as_ref().unwrap().value, "8-11");
    assert_eq!(definition.emulator_cpus.unwrap().value, "0-1");
    let pins: Vec<_> = definition.vcpu_pins.iter().map(|pin| (pin.value.0, pin.value.1.as_str())).collect();
    assert_eq!(pins, [(1, "4"), (0, "8-11"), (2, "8-11")]);
}

#[test]
fn numbers_beyond_all_machines_cost_nothing() {
    let definition = domain("<vcpu cpuset='0'>4294967295</vcpu><iothreads>4294967295</iothreads>");
    assert_eq!(definition.vcpu_pins.len(), 4096);
    assert!(definition.iothreads.is_empty());
    assert!(definition.doubts[0].contains("more threads"), "{:?}", definition.doubts);
}

#[test]
fn another_architecture_is_read_from_what_names_it() {
    let other = |text: &str| domain(text).other_architecture.map(|set| set.value);
    assert_eq!(
        other("<os><type arch='s390x' machine='s390-ccw-virtio'>hvm</type></os>").as_deref(),
        Some("s390x")
    );
    let program = "<devices><emulator>/usr/bin/qemu-system-riscv64</emulator></devices>";
    assert_eq!(other(program).as_deref(), Some("riscv64"));
    assert_eq!(other("<os><type arch='i686' machine='pc'>hvm</type></os>"), None);
    assert_eq!(other("<os><type machine='pc'>hvm</type></os>"), None);
}

#[test]
fn encryption_and_shared_disks_are_read() {
    let vm = domain(
        "<launchSecurity type='sev-snp'><policy>0x30000</policy></launchSecurity><devices><disk type='file'>\
         <driver name='qemu'/><source file='/a'/><target dev='vda' bus='virtio'/><shareable/></disk></devices>",
    );
    assert_eq!(vm.machine.encryption.unwrap().value, "sev-snp");
    assert_eq!(vm.devices[0].cache.as_ref().unwrap().value, "none");
    assert_eq!(vm.devices[0].resource.as_deref(), Some("file"));
}

#[test]
fn shared_memory_is_read_from_its_access_and_its_source() {
    let shared = |text: &str| domain(text).shared_memory.map(|set| set.value);
    assert_eq!(shared("<memoryBacking><access mode='shared'/></memoryBacking>"), Some(true));
    assert_eq!(shared("<memoryBacking><source type='memfd'/></memoryBacking>"), Some(true));
    for device in [
        "<disk type='vhostuser'/>",
        "<disk type='vhostvdpa'/>",
        "<filesystem><driver type='virtiofs'/></filesystem>",
    ] {
        let with = |access: &str| {
            let backing = format!("<memoryBacking><source type='memfd'/>{access}</memoryBacking>");
            shared(&format!("{backing}<devices>{device}</devices>"))
        };
        assert_eq!(with(""), None, "libvirt refuses {device}");
        assert_eq!(with("<access mode='shared'/>"), Some(true));
    }
    let private = "<memoryBacking><source type='memfd'/><access mode='private'/></memoryBacking>";
    assert_eq!(shared(private), Some(false));
    assert_eq!(shared("<memoryBacking><source type='file'/><hugepages/></memoryBacking>"), None);
    let cells = |second: &str| {
        format!("<cpu><numa><cell memAccess='shared'/><cell memAccess='{second}'/></numa></cpu>")
    };
    assert_eq!(shared(&cells("shared")), Some(true));
    assert_eq!(shared(&cells("private")), Some(false));
    let cells = |first: &str, second: &str, access: &str| {
        let access = format!("<memoryBacking><access mode='{access}'/></memoryBacking>");
        shared(&format!("<cpu><numa><cell {first}/><cell {second}/></numa></cpu>{access}"))
    };
    assert_eq!(cells("", "memAccess='private'", "shared"), Some(false));
    assert_eq!(cells("memAccess='shared'", "", "shared"), Some(true));
    assert_eq!(cells("memAccess='shared'", "", "private"), Some(false));
    assert_eq!(shared("<cpu><numa><cell memAccess='shared'/><cell/></numa></cpu>"), None);
    let arguments = ["-object", "memory-backend-memfd,id=m,size=1G", "-machine", "memory-backend=m"];
    let arguments: String = arguments.map(|argument| format!("<q:arg value='{argument}'/>")).concat();
    let namespace = "xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'";
    assert_eq!(shared(&format!("<q:commandline {namespace}>{arguments}</q:commandline>")), Some(true));
}

#[test]
fn huge_pages_and_pages_that_stay_are_read() {
    let vm = domain("<memoryBacking><hugepages/><nosharepages/><locked/></memoryBacking>");
    assert!(vm.huge_pages.unwrap().value);
    assert_eq!(vm.machine.properties[0].value, ("mem-merge".to_owned(), "off".to_owned()));
    assert_eq!(vm.other[0].value, ("memoryBacking/locked".to_owned(), String::new()));
    let vm = domain("<memoryBacking><source type='memfd'/></memoryBacking>");
    assert_eq!((vm.huge_pages, vm.machine.properties, vm.other), (None, Vec::new(), Vec::new()));
}

#[test]
fn iommus_are_read() {
    let definition = devices(
        "<iommu model='intel'><driver intremap='on' caching_mode='on' eim='off' iotlb='on'/></iommu>",
    );
    let iommu = &definition.iommus[0];
    assert_eq!(iommu.model, "intel-iommu");
    assert!(iommu.interrupt_remapping.as_ref().unwrap().value);
    assert!(!iommu.extended_interrupt_mode.as_ref().unwrap().value);
}

#[test]
fn domains_are_found_in_what_libvirt_wraps_around_them() {
    let inner = "<domain type='kvm'><name>a</name></domain>";
    for wrapper in ["domstatus", "domainsnapshot"] {
        let text = format!("<!-- x --><{wrapper} state='running'><name>s</name>{inner}</{wrapper}>");
        assert_eq!(read_text(&text).name.unwrap().value, "a");
    }
    let refused = |text: &str| read(&Text::new("a.xml", text), &NoFiles).unwrap_err().to_string();
    assert!(refused("<network/>").contains("a <domain> was expected. This is libvirt's XML of a network"));
    assert!(refused(&format!("{inner}\n{inner}")).contains("line 2: a second document"));
    assert!(refused("<domainsnapshot/>").contains("its root is <domainsnapshot>"));
}

#[test]
fn what_is_unknown_is_a_doubt_with_its_line() {
    let definition = domain(
        "<features><ioapic driver='xics'/></features>\n<devices><teleport/></devices>\n<vcpu>many</vcpu>",
    );
    let doubts = definition.doubts.join("\n");
    assert!(
        doubts.contains("Line 2: driver='xics' is not known; one of kvm, qemu was expected."),
        "{doubts}"
    );
    assert!(doubts.contains("Line 3: <teleport/> is not a known device."), "{doubts}");
    assert!(doubts.contains("Line 4: <vcpu>many</vcpu> is not known; a number was expected."), "{doubts}");
}

#[test]
fn passwords_are_in_no_definition() {
    let definition = devices("<graphics type='vnc' passwd='sesame'/>\n<video><model type='vga'/></video>");
    assert!(!serde_json::to_string(&definition).unwrap().contains("sesame"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_stumble(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&Text::new("a", bytes), &NoFiles);
    }

    #[test]
    fn no_values_make_it_stumble(value in "[ -~]{0,12}", part in 0_usize..PARTS.len()) {
        let value = crate::xml::escape(&value, Some('\''));
        let text = format!("<domain type='{value}'>{}</domain>", PARTS[part].replace('#', &value));
        let _ = read(&Text::new("a", text), &NoFiles).unwrap();
    }
}

const PARTS: [&str; 8] = [
    "<memory unit='#'>7</memory><vcpu current='#' cpuset='#'>#</vcpu><iothreads>#</iothreads>",
    "<features><hyperv mode='#'><x state='#'/></hyperv><ioapic driver='#'/></features>",
    "<cpu mode='#'><model>#</model><feature policy='#' name='#'/><topology sockets='#'/></cpu>",
    "<clock><timer name='#' present='#' tickpolicy='#' frequency='#'/></clock>",
    "<devices><disk type='#' device='#'><driver queues='#'/><target dev='#' bus='#'/></disk></devices>",
    "<devices><controller type='#' model='#'/><interface type='#'><model type='#'/></interface></devices>",
    "<devices><hostdev type='#'><source><address bus='#' slot='#'/></source></hostdev></devices>",
    "<devices><video><model type='#'/></video><input type='#' bus='#'/><serial><target type='#'/></serial></devices>",
];
