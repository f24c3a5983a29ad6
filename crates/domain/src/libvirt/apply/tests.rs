use super::*;
use crate::{CpuModel, FeatureState, Irqchip, TickPolicy};
use proptest::prelude::*;

const DOMAIN: &str = include_str!("../../../tests/fixtures/libvirt/virt-install-debian.xml");

fn applied(text: &str, changes: &[DefinitionChange]) -> Edited {
    let edited = apply(&Text::new("a.xml", text), changes).unwrap();
    // The edits contain the whole difference, in order and without overlaps.
    let mut whole = Vec::new();
    let mut reached = 0;
    for edit in &edited.edits {
        assert!(reached <= edit.start && edit.start <= edit.end, "{:?}", edited.edits);
        whole.extend_from_slice(&text.as_bytes()[reached..edit.start]);
        whole.extend_from_slice(&edit.new);
        reached = edit.end;
    }
    whole.extend_from_slice(&text.as_bytes()[reached..]);
    assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&edited.bytes));
    edited
}

/// The added lines, and the removed ones.
fn difference(text: &str, change: DefinitionChange) -> String {
    let edited = applied(text, &[change]);
    assert_eq!(edited.refused, [], "{text}");
    let new = String::from_utf8(edited.bytes).unwrap();
    let old: Vec<&str> = text.lines().collect();
    let lines: Vec<&str> = new.lines().collect();
    let mut told: Vec<String> =
        old.iter().filter(|line| !lines.contains(line)).map(|line| format!("-{}", line.trim())).collect();
    told.extend(lines.iter().filter(|line| !old.contains(line)).map(|line| format!("+{}", line.trim())));
    told.join("\n")
}

fn refused(text: &str, change: DefinitionChange) -> String {
    let edited = applied(text, &[change]);
    assert_eq!(String::from_utf8(edited.bytes).unwrap(), text);
    edited.refused[0].reason.clone()
}

fn domain(parts: &str) -> String {
    format!("<domain type='kvm'>\n  <name>a</name>\n{parts}\n</domain>\n")
}

#[test]
fn an_irqchip_is_split_by_one_line() {
    assert_eq!(difference(DOMAIN, DefinitionChange::Irqchip(Irqchip::Split)), "+<ioapic driver=\"qemu\"/>");
    let without = domain("  <os/>");
    let edited = applied(&without, &[DefinitionChange::Irqchip(Irqchip::Split)]);
    let expected = domain("  <os/>\n  <features>\n    <ioapic driver='qemu'/>\n  </features>");
    assert_eq!(String::from_utf8(edited.bytes).unwrap(), expected);
    assert!(refused(DOMAIN, DefinitionChange::Irqchip(Irqchip::UserSpace)).contains("kernel-irqchip=off"));
    let tcg = DOMAIN.replace("type=\"kvm\"", "type=\"qemu\"");
    assert!(refused(&tcg, DefinitionChange::Irqchip(Irqchip::Split)).contains("type kvm"));
}

#[test]
fn timers_are_changed_where_they_are() {
    assert_eq!(
        difference(DOMAIN, DefinitionChange::PitTickPolicy(TickPolicy::Discard)),
        "-<timer name=\"pit\" tickpolicy=\"delay\"/>\n+<timer name=\"pit\" tickpolicy=\"discard\"/>"
    );
    assert_eq!(
        difference(&domain("  <clock offset='utc'/>"), DefinitionChange::Hpet(false)),
        "-<clock offset='utc'/>\n+<clock offset='utc'>\n+<timer name='hpet' present='no'/>\n+</clock>"
    );
    assert!(refused(DOMAIN, DefinitionChange::PitTickPolicy(TickPolicy::CatchUp)).contains("nothing else"));
}

#[test]
fn a_cpu_changes_its_model_and_features() {
    let named =
        domain("  <cpu mode='custom' match='exact'>\n    <model fallback='allow'>EPYC</model>\n  </cpu>");
    let host =
        String::from_utf8(applied(&named, &[DefinitionChange::CpuModel(CpuModel::Host)]).bytes).unwrap();
    assert_eq!(host, domain("  <cpu mode='host-passthrough' match='exact'>\n  </cpu>"));
    let genoa = DefinitionChange::CpuModel(CpuModel::Named("EPYC-Genoa".into()));
    assert_eq!(
        difference(&named, genoa),
        "-<model fallback='allow'>EPYC</model>\n+<model fallback='allow'>EPYC-Genoa</model>"
    );
    let feature = DefinitionChange::CpuFeature("x2apic".into(), FeatureState::On);
    assert_eq!(difference(&named, feature.clone()), "+<feature policy='require' name='x2apic'/>");
    assert!(refused(&domain("  <cpu/>"), feature).contains("no CPU model"));
    let hidden = DefinitionChange::CpuFeature("kvm".into(), FeatureState::Off);
    assert_eq!(
        difference(&named, hidden),
        "+<features>\n+<kvm>\n+<hidden state='on'/>\n+</kvm>\n+</features>"
    );
}

#[test]
fn states_that_libvirt_does_not_pass_on_are_qemus_own_arguments() {
    let text = |mode: &str, kvm: &str| {
        domain(&format!(
            "  <features>\n    <kvm>\n      {kvm}\n    </kvm>\n  </features>\n  <cpu mode='{mode}'/>"
        ))
    };
    let feature = |name: &str, state| DefinitionChange::CpuFeature(name.into(), state);
    let (on, off) = (FeatureState::On, FeatureState::Off);
    // (CPU, element before, change, element after, QEMU's own argument)
    for (mode, before, change, after, argument) in [
        ("host-model", "pv-ipi state='off'", feature("kvm-pv-ipi", on), "pv-ipi state='on'", "kvm-pv-ipi=on"),
        ("host-passthrough", "pv-ipi state='off'", feature("kvm-pv-ipi", on), "pv-ipi state='on'", ""),
        ("host-model", "pv-ipi state='on'", feature("kvm-pv-ipi", off), "pv-ipi state='off'", ""),
        (
            "host-passthrough",
            "poll-control state='on'",
            feature("kvm-poll-control", off),
            "poll-control state='off'",
            "kvm-poll-control=off",
        ),
        (
            "host-model",
            "poll-control state='on'",
            feature("kvm-poll-control", off),
            "poll-control state='off'",
            "",
        ),
    ] {
        let edited = applied(&text(mode, &format!("<{before}/>")), std::slice::from_ref(&change));
        assert_eq!(edited.refused, [], "{mode}: {change:?}");
        let new = String::from_utf8(edited.bytes).unwrap();
        assert!(new.contains(&format!("<{after}/>")), "{new}");
        assert_eq!(new.contains("qemu:commandline"), !argument.is_empty(), "{new}");
        assert!(argument.is_empty() || new.contains(&format!("'x86_64-cpu.{argument}'")), "{new}");
    }
    let dedicated = feature("kvm-hint-dedicated", on);
    assert!(refused(&text("host-model", "<hidden/>"), dedicated).contains("host-passthrough"));
}

#[test]
fn only_features_of_libvirts_cpu_map_become_features() {
    let named = domain("  <cpu mode='custom' match='exact'>\n    <model>EPYC</model>\n  </cpu>");
    let on = |name: &str| DefinitionChange::CpuFeature(name.into(), FeatureState::On);
    let off = DefinitionChange::CpuFeature("pmu".into(), FeatureState::Off);
    assert_eq!(difference(&named, off), "+<features>\n+<pmu state='off'/>\n+</features>");
    for name in ["l3-cache", "migratable", "x-force-features"] {
        let reason = refused(&named, on(name));
        assert!(reason.contains(name) && reason.contains("no CPU feature"), "{reason}");
    }
    let stable = applied(&named, &[on("kvmclock-stable-bit")]);
    assert!(String::from_utf8(stable.bytes).unwrap().contains("x86_64-cpu.kvmclock-stable-bit=on"));
    let said = "+<feature policy='require' name='pclmuldq'/>";
    assert_eq!(difference(&named, on("pclmulqdq")), said);
}

#[test]
fn enlightenments_are_put_in_libvirts_order() {
    let text = domain(
        "  <features>\n    <hyperv mode='custom'>\n      <relaxed state='on'/>\n      <stimer state='on'/>\n    \
         </hyperv>\n  </features>",
    );
    let edited = applied(
        &text,
        &[
            DefinitionChange::HyperV("synic".into(), true),
            DefinitionChange::HyperV("stimer-direct".into(), true),
            DefinitionChange::HyperV("avic".into(), true),
            DefinitionChange::HyperV("tlbflush-direct".into(), true),
        ],
    );
    assert_eq!(edited.refused, []);
    for needs in
        ["synic needs vpindex", "stimer needs time", "tlbflush-direct needs vapic", "version 8.10 on"]
    {
        assert!(edited.notes.iter().any(|note| note.contains(needs)), "{needs}: {:?}", edited.notes);
    }
    let new = String::from_utf8(edited.bytes).unwrap();
    let place = |part: &str| new.find(part).unwrap_or_else(|| panic!("{part} is not in {new}"));
    assert!(place("<relaxed") < place("<synic state='on'/>"));
    assert!(place("<synic") < place("<stimer state='on'>\n        <direct state='on'/>\n      </stimer>"));
    assert!(place("</stimer>") < place("<avic state='on'/>"));
    assert!(refused(&text, DefinitionChange::HyperV("syndbg".into(), true)).contains("no element"));
    assert!(
        refused(&text, DefinitionChange::HyperV("vendor-id".into(), true)).contains("which only you know")
    );
}

#[test]
fn what_libvirt_has_no_word_for_becomes_qemus_own_argument() {
    let feature = |name: &str| DefinitionChange::CpuFeature(name.into(), FeatureState::On);
    let first = applied(DOMAIN, &[feature("kvm-msi-ext-dest-id")]);
    assert_eq!(first.refused, []);
    let text = String::from_utf8(first.bytes).unwrap();
    assert!(
        text.contains("<domain type=\"kvm\" xmlns:qemu=\"http://libvirt.org/schemas/domain/qemu/1.0\">"),
        "{text}"
    );
    assert!(text.contains("<qemu:arg value=\"x86_64-cpu.kvm-msi-ext-dest-id=on\"/>"), "{text}");
    assert_eq!(
        difference(&text, feature("kvm-asyncpf-int")),
        "+<qemu:arg value=\"x86_64-cpu.kvm-asyncpf-int=on\"/>"
    );
}

#[test]
fn arguments_that_win_over_a_change_are_named() {
    let text = DOMAIN.replace(
        "<domain type=\"kvm\">",
        "<domain type=\"kvm\" xmlns:q=\"http://libvirt.org/schemas/domain/qemu/1.0\">",
    );
    let arguments =
        "<q:commandline><q:arg value=\"-machine\"/><q:arg value=\"kernel-irqchip=on\"/></q:commandline>";
    let text = text.replace("</domain>\n", &format!("{arguments}\n</domain>\n"));
    assert!(refused(&text, DefinitionChange::Irqchip(Irqchip::Split)).contains("<qemu:commandline>"));
    assert_eq!(
        difference(&text, DefinitionChange::Hpet(true)),
        "-<timer name=\"hpet\" present=\"no\"/>\n+<timer name=\"hpet\" present=\"yes\"/>"
    );
}

#[test]
fn interrupt_remapping_brings_what_it_needs() {
    let told = difference(DOMAIN, DefinitionChange::InterruptRemapping);
    assert!(told.contains("+<ioapic driver=\"qemu\"/>"), "{told}");
    assert!(
        told.contains("+<iommu model=\"intel\">\n+<driver intremap=\"on\" caching_mode=\"on\" eim=\"on\"/>"),
        "{told}"
    );
    let old = DOMAIN.replace("pc-q35-7.2", "pc-i440fx-7.2");
    assert!(refused(&old, DefinitionChange::InterruptRemapping).contains("needs the machine q35"));
}

#[test]
fn an_iommu_gets_caching_mode_for_assigned_devices_and_there_is_one() {
    let with = |devices: &str| {
        domain(&format!(
            "  <os><type machine='pc-q35-9.0'>hvm</type></os>\n  <features>\n    <ioapic driver='qemu'/>\n  \
             </features>\n  <devices>\n    {devices}\n  </devices>"
        ))
    };
    let change = || DefinitionChange::InterruptRemapping;
    let iommu = "<iommu model='intel'>\n      <driver intremap='on' eim='on'/>\n    </iommu>";
    assert_eq!(difference(&with(iommu), change()), "", "no device is assigned");
    let assigned = format!("{iommu}\n    <hostdev mode='subsystem' type='pci'/>");
    assert_eq!(
        difference(&with(&assigned), change()),
        "-<driver intremap='on' eim='on'/>\n+<driver intremap='on' eim='on' caching_mode='on'/>"
    );
    let arguments = "  <q:commandline>\n    <q:arg value='-device'/>\n    <q:arg value='intel-iommu,intremap=on'/>\n  \
                     </q:commandline>\n</domain>";
    let text = with("<memballoon model='none'/>")
        .replace("<domain ", "<domain xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0' ")
        .replace("</domain>", arguments);
    let reason = refused(&text, change());
    assert!(reason.contains("an IOMMU already, intel-iommu in <qemu:commandline> (line "), "{reason}");
}

#[test]
fn a_disk_moves_to_virtio_with_its_name_and_without_its_address() {
    let text = domain(
        "  <os><type machine='pc-i440fx-9.0'>hvm</type></os>\n  <devices>\n    <disk type='file' device='disk'>\n      \
         <source file='/a'/>\n      <target dev='hda' bus='ide'/>\n      <boot order='1'/>\n      <address type='drive' controller='0'/>\n    \
         </disk>\n    <disk type='file' device='disk'>\n      <target dev='vda' bus='virtio'/>\n    </disk>\n    \
         <disk type='file' device='cdrom'>\n      <target dev='hdb' bus='ide'/>\n    </disk>\n  </devices>",
    );
    let model = |device, model: &str| DefinitionChange::DeviceModel { device, model: model.into() };
    assert_eq!(
        difference(&text, model(0, "virtio-blk-pci")),
        "-<target dev='hda' bus='ide'/>\n-<address type='drive' controller='0'/>\n+<target dev='vdb' bus='virtio'/>"
    );
    let edited = applied(&text, &[model(0, "virtio-blk-pci")]);
    assert!(edited.notes[0].contains("hda is vdb"), "{:?}", edited.notes);
    assert!(refused(&text, model(2, "virtio-blk-pci")).contains("virtio has no CD drive"));
    // The first change adds a controller, which moves all devices after it by one.
    let both = applied(&text, &[model(2, "scsi-cd"), model(1, "ide-hd")]);
    assert_eq!(both.refused, []);
    let new = String::from_utf8(both.bytes).unwrap();
    assert!(new.contains("<controller type='scsi' index='0' model='virtio-scsi'/>"), "{new}");
    assert!(
        new.contains("<target dev='sda' bus='scsi'/>") && new.contains("<target dev='hdb' bus='ide'/>"),
        "{new}"
    );
}

#[test]
fn a_guest_starts_from_the_same_disk_after_disks_have_moved() {
    let text = |disks: &[(&str, &str)]| {
        let disk = |(target, bus): &(&str, &str)| {
            format!("    <disk device='disk'>\n      <target dev='{target}' bus='{bus}'/>\n    </disk>\n")
        };
        let disks: String = disks.iter().map(disk).collect();
        domain(&format!(
            "  <os><type machine='pc-q35-9.0'>hvm</type><boot dev='hd'/></os>\n  <devices>\n{disks}  </devices>"
        ))
    };
    let virtio = |device| DefinitionChange::DeviceModel { device, model: "virtio-blk-pci".into() };
    // It would become vdb, behind the disk with data.
    let beside = text(&[("sda", "sata"), ("vda", "virtio")]);
    assert!(refused(&beside, virtio(0)).contains("<boot order='1'/>"));
    let ordered = beside.replace("<boot dev='hd'/>", "").replacen("<target", "<boot order='1'/><target", 1);
    assert_eq!(applied(&ordered, &[virtio(0)]).refused, []);
    let network = beside.replace("dev='hd'", "dev='network'");
    assert_eq!(applied(&network, &[virtio(0)]).refused, []);
    // The first one of the text would become vda. Other changes are made.
    let turned = text(&[("sdb", "sata"), ("sda", "sata")]);
    let edited = applied(&turned, &[virtio(0), DefinitionChange::Hpet(false), virtio(1)]);
    assert_eq!(edited.refused.len(), 2, "{:?}", edited.refused);
    assert!(String::from_utf8(edited.bytes).unwrap().contains("<timer name='hpet' present='no'/>"));
    let both = text(&[("sda", "sata"), ("sdb", "sata"), ("sdaa", "sata")]);
    assert_eq!(applied(&both, &[virtio(0), virtio(1), virtio(2)]).refused, []);
}

#[test]
fn network_interfaces_get_vhost_and_queues() {
    let text = domain(
        "  <vcpu>4</vcpu>\n  <devices>\n    <interface type='bridge'>\n      <source bridge='br0'/>\n      \
         <model type='virtio'/>\n    </interface>\n    <interface type='user'>\n      <model type='virtio'/>\n    \
         </interface>\n    <interface type='bridge'>\n      <model type='e1000'/>\n    </interface>\n  </devices>",
    );
    let on = |device| DefinitionChange::Vhost { device, on: true };
    assert_eq!(difference(&text, on(0)), "+<driver name='vhost'/>");
    assert!(refused(&text, on(1)).contains("no tap device"));
    assert!(refused(&text, on(2)).contains("Change the model first"));
    let queues = DefinitionChange::Queues { device: 0, queues: 8 };
    let both = applied(&text, &[on(0), queues.clone()]);
    assert!(String::from_utf8(both.bytes).unwrap().contains("<driver name='vhost' queues='8'/>"));
    assert!(both.notes[0].contains("More queues (8) than vCPUs (4)"));
    assert!(
        refused(&text, DefinitionChange::Queues { device: 2, queues: 4 }).contains("no queues to choose")
    );
    let model = DefinitionChange::DeviceModel { device: 2, model: "virtio-net-pci".into() };
    assert_eq!(difference(&text, model), "-<model type='e1000'/>");
    let ready = text.replace("<source bridge='br0'/>", "<target dev='tap0' managed='no'/>");
    assert!(refused(&ready, queues.clone()).contains("with multi_queue"));
    let several = ready.replacen("<model", "<driver queues='2'/><model", 1);
    assert_eq!(applied(&several, &[queues]).refused, []);
}

#[test]
fn disks_get_threads_of_their_own() {
    let text = domain(
        "  <vcpu>4</vcpu>\n  <devices>\n    <disk type='file' device='disk'>\n      <driver name='qemu' type='raw'/>\n      \
         <target dev='vda' bus='virtio'/>\n    </disk>\n    <disk type='file' device='disk'>\n      \
         <target dev='sda' bus='scsi'/>\n    </disk>\n    <controller type='scsi' model='virtio-scsi'/>\n  </devices>",
    );
    let thread = |device, name: &str| DefinitionChange::IoThread { device, iothread: name.into() };
    let edited = applied(&text, &[thread(0, "iothread1"), thread(1, "disk1"), thread(2, "iothread2")]);
    assert_eq!(edited.refused, []);
    let new = String::from_utf8(edited.bytes).unwrap();
    assert!(new.contains("<vcpu>4</vcpu>\n  <iothreads>2</iothreads>"), "{new}");
    assert!(new.contains("<driver name='qemu' type='raw' iothread='1'/>"), "{new}");
    assert!(new.contains("model='virtio-scsi'>\n      <driver iothread='2'/>\n    </controller>"), "{new}");
    let polled = text.replace("name='qemu'", "name='qemu' ioeventfd='off'");
    assert!(refused(&polled, thread(0, "iothread1")).contains("ioeventfd='off' first"));
    let far = applied(&text, &[thread(0, "iothread7")]);
    let new = String::from_utf8(far.bytes).unwrap();
    assert!(new.contains("<iothreads>1</iothreads>\n  <iothreadids>\n    <iothread id='7'/>"), "{new}");
    let aio = |device, aio: &str| DefinitionChange::Aio { device, aio: aio.into() };
    assert_eq!(
        difference(&text, aio(0, "native")),
        "-<driver name='qemu' type='raw'/>\n+<driver name='qemu' type='raw' cache='none' io='native'/>"
    );
    let cached = text.replace("type='raw'", "type='raw' cache='writeback'");
    assert!(refused(&cached, aio(0, "native")).contains("has \"writeback\""));
    assert_eq!(difference(&text, aio(1, "io_uring")), "+<driver name='qemu' io='io_uring'/>");
}

#[test]
fn io_threads_of_qemus_own_arguments_are_not_libvirts() {
    let text = domain(
        "  <vcpu>4</vcpu>\n  <devices>\n    <disk type='file' device='disk'>\n      \
         <target dev='vda' bus='virtio'/>\n    </disk>\n  </devices>\n  \
         <q:commandline xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>\n    <q:arg value='-object'/>\n    \
         <q:arg value='iothread,id=iothread1'/>\n  </q:commandline>",
    );
    let thread = |name: &str| DefinitionChange::IoThread { device: 0, iothread: name.into() };
    assert!(refused(&text, thread("iothread1")).contains("Name another"));
    // Without its number libvirt would make a second iothread1.
    let edited = applied(&text, &[thread("iothread2")]);
    assert_eq!(edited.refused, []);
    let new = String::from_utf8(edited.bytes).unwrap();
    assert!(new.contains("<iothreads>1</iothreads>\n  <iothreadids>\n    <iothread id='2'/>"), "{new}");
}

fn any_change() -> impl Strategy<Value = DefinitionChange> {
    let name = prop::sample::select(vec![
        "x2apic",
        "svm",
        "kvm",
        "kvm-pv-eoi",
        "kvmclock",
        "invtsc",
        "kvm-hint-dedicated",
        "kvm-poll-control",
        "kvm-pv-ipi",
        "pmu",
        "l3-cache",
    ]);
    let enlightenment = prop::sample::select(vec![
        "synic",
        "stimer",
        "stimer-direct",
        "avic",
        "time",
        "spinlocks",
        "emsr-bitmap",
    ]);
    let model = prop::sample::select(vec![
        "virtio-blk-pci",
        "scsi-hd",
        "virtio-net-pci",
        "e1000e",
        "virtio-vga",
        "qemu-xhci",
        "ide-cd",
    ]);
    let state = prop::sample::select(vec![FeatureState::On, FeatureState::Off, FeatureState::Optional]);
    let device = 0_usize..24;
    prop_oneof![
        prop::sample::select(vec![Irqchip::Kernel, Irqchip::Split, Irqchip::UserSpace])
            .prop_map(DefinitionChange::Irqchip),
        prop::sample::select(vec![TickPolicy::Delay, TickPolicy::Discard, TickPolicy::Merge])
            .prop_map(DefinitionChange::PitTickPolicy),
        any::<bool>().prop_map(DefinitionChange::Hpet),
        prop::sample::select(vec![
            CpuModel::Host,
            CpuModel::Maximum,
            CpuModel::HostModel,
            CpuModel::Named("EPYC".into())
        ])
        .prop_map(DefinitionChange::CpuModel),
        (name, state).prop_map(|(name, state)| DefinitionChange::CpuFeature(name.into(), state)),
        (enlightenment, any::<bool>()).prop_map(|(name, on)| DefinitionChange::HyperV(name.into(), on)),
        Just(DefinitionChange::InterruptRemapping),
        (device.clone(), model)
            .prop_map(|(device, model)| DefinitionChange::DeviceModel { device, model: model.into() }),
        (device.clone(), any::<bool>()).prop_map(|(device, on)| DefinitionChange::Vhost { device, on }),
        (device.clone(), 1_u32..9).prop_map(|(device, queues)| DefinitionChange::Queues { device, queues }),
        (device.clone(), 1_u32..4).prop_map(|(device, number)| {
            DefinitionChange::IoThread { device, iothread: format!("iothread{number}") }
        }),
        (device, prop::sample::select(vec!["native", "io_uring", "threads"]))
            .prop_map(|(device, aio)| DefinitionChange::Aio { device, aio: aio.into() }),
    ]
}

/// The same text in other styles.
fn written(manner: u8) -> String {
    let text = DOMAIN.to_owned();
    match manner {
        0 => text,
        1 => text.replace('\n', "\r\n"),
        2 => text.lines().map(str::trim).collect(),
        3 => text.replace('"', "'").replace("  ", "\t"),
        _ => format!("\u{feff}{}", text.replace("/>\n", "/>\n<!-- a -->\n")),
    }
}

proptest! {
    #[test]
    fn a_change_is_in_the_new_text_and_made_once(changes in prop::collection::vec(any_change(), 1..4), manner in 0_u8..5) {
        let text = written(manner);
        let first = applied(&text, &changes[..1]);
        let new = Text::new("a.xml", first.bytes.clone());
        if first.refused.is_empty() {
            let second = apply(&new, &changes[..1]).unwrap();
            // A change of a device model may have moved the device's index; all other changes can be applied
            // again.
            if !matches!(changes[0], DefinitionChange::DeviceModel { .. }) {
                prop_assert_eq!(&second.edits, &[]);
                let definition = crate::libvirt::read(&new, &NoFiles).unwrap();
                prop_assert!(holds(&definition, &changes[0]), "{:?}", changes[0]);
            }
        } else {
            prop_assert_eq!(&first.bytes, text.as_bytes());
            prop_assert!(first.refused[0].reason.ends_with('.'), "{}", first.refused[0].reason);
        }
        let together = applied(&text, &changes);
        prop_assert!(crate::libvirt::read(&Text::new("a.xml", together.bytes.clone()), &NoFiles).is_ok());
        // All line ends are still of one kind.
        if manner == 1 {
            let new = String::from_utf8(together.bytes).unwrap();
            prop_assert_eq!(new.matches('\n').count(), new.matches("\r\n").count());
        }
    }
}
