use super::*;
use crate::Tally;
use domain::{FeatureState, NoFiles};

const XML: &str = "<domain type='kvm'>
  <name>web</name>
  <vcpu>4</vcpu>
  <!-- kept -->
  <os><type machine='pc-q35-9.2'>hvm</type></os>
  <features><acpi/></features>
  <cpu mode='host-passthrough'/>
  <clock offset='utc'>
    <timer name='pit' tickpolicy='delay'/>
    <timer name='hpet' present='no'/>
  </clock>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <interface type='network'>
      <source network='default'/>
      <model type='e1000e'/>
    </interface>
  </devices>
</domain>
";

fn fixed(chosen: &Chosen) -> Fixed {
    let host = HostSide::of_vendor(exits::Isa::Svm);
    fix(&Text::new("web.xml", XML), Form::Libvirt, &NoFiles, &host, chosen).unwrap()
}

fn tally(sections: &[Section]) -> Tally {
    Tally::of(sections.iter().flat_map(|section| &section.findings))
}

#[test]
fn what_the_guest_need_not_follow_is_fixed_and_the_rest_is_named() {
    let fixed = fixed(&Chosen::Safe);
    let text = String::from_utf8(fixed.bytes.clone()).unwrap();
    assert!(text.contains("tickpolicy='discard'") && text.contains("<!-- kept -->"), "{text}");
    assert!(text.contains("e1000e"), "{text}");
    assert!(fixed.refused.is_empty(), "{:?}", fixed.refused);
    let left = |rule: &str| fixed.plan.left.iter().find(|left| left.rule == rule).map(|left| left.why);
    assert_eq!(left("emulated-network"), Some(Left::GuestFollows));
    assert_eq!(left("nested"), Some(Left::GuestFollows));
    assert!(fixed.plan.rules.iter().any(|rule| rule.rule == "pit-lost-ticks"));
    assert!(tally(&fixed.before).fail > 0);
    assert_eq!(tally(&fixed.after).fail, 0, "{:?}", fixed.after);
}

#[test]
fn an_irqchip_is_not_split_while_the_rtc_catches_up_on_ticks_of_windows() {
    let host =
        HostSide { kernel: Some(exits::KernelVersion::new(5, 4)), ..HostSide::of_vendor(exits::Isa::Svm) };
    let timer = "<timer name='rtc' tickpolicy='catchup'/>";
    let (pit, delay) = ("<timer name='pit' tickpolicy='delay'/>", "<timer name='rtc' tickpolicy='delay'/>");
    for (rtc, splits) in [("", true), (timer, false), (delay, true)] {
        let text = Text::new("web.xml", XML.replace(pit, &format!("{pit}{rtc}")));
        let fixed = fix(&text, Form::Libvirt, &NoFiles, &host, &Chosen::All).unwrap();
        let text = String::from_utf8(fixed.bytes).unwrap();
        assert_eq!(text.contains("<ioapic"), splits, "{text}");
        let left = fixed.plan.left.iter().find(|left| left.rule == "irqchip").map(|left| left.why);
        assert_eq!(left, (!splits).then_some(Left::Advice), "{text}");
    }
}

#[test]
fn a_definition_for_another_architecture_or_hypervisor_is_neither_judged_nor_changed() {
    let named = |text: &str, form| {
        let text = Text::new("vm", text);
        let fixed = fix(&text, form, &NoFiles, &HostSide::default(), &Chosen::All).unwrap();
        assert_eq!(fixed.bytes, text.bytes);
        assert_eq!(tally(&fixed.before).pass, 0);
        crate::not_judged(&fixed.before).map(str::to_owned).unwrap_or_else(|| panic!("{:?}", fixed.before))
    };
    let xml = |kind: &str, os: &str| XML.replace("'kvm'", kind).replace("<type machine='pc-q35-9.2'>", os);
    for (os, architecture) in [
        ("<type arch='aarch64' machine='virt'>", "aarch64"),
        ("<type arch='s390x' machine='s390-ccw-virtio'>", "s390x"),
        ("<type machine='pseries-9.2'>", "ppc64"),
    ] {
        let why = named(&xml("'kvm'", os), Form::Libvirt);
        assert!(why.contains(architecture) && why.contains("x86"), "{why}");
    }
    for kind in ["lxc", "vmware", "vz", "test", "xen", "bhyve"] {
        let why = named(&xml(&format!("'{kind}'"), "<type machine='pc-q35-9.2'>"), Form::Libvirt);
        assert!(why.contains(kind), "{why}");
    }
    for (line, word) in [
        ("qemu-system-aarch64 -M virt -accel kvm -device e1000", "aarch64"),
        ("qemu-kvm -machine s390-ccw-virtio -device e1000", "s390x"),
        ("qemu-system-x86_64 -M q35 -accel xen", "xen"),
    ] {
        let why = named(line, Form::Qemu);
        assert!(why.contains(word), "{why}");
    }
    let x86 = |line: &str| {
        let vm = domain::qemu::read(&Text::new("vm", line), &NoFiles).unwrap();
        crate::not_judged(&lint::lint_by_group(&vm, &HostSide::default())).is_none()
    };
    assert!(x86("/opt/qemu-system-x86_64-spice -M q35 -accel kvm") && x86("qemu-kvm -M microvm"));
}

#[test]
fn a_pit_that_reinjects_is_told_to_discard_before_the_irqchip_is_split() {
    let fixed = fixed(&Chosen::Safe);
    let text = String::from_utf8(fixed.bytes.clone()).unwrap();
    assert!(text.contains("tickpolicy='discard'") && !text.contains("ioapic"), "{text}");
    assert!(fixed.notes.iter().all(|note| !note.contains("migrated")), "{:?}", fixed.notes);
}

#[test]
fn a_pit_that_libvirt_does_not_remove_is_told_to_discard() {
    let xml = XML.replace("name='pit' ", "name='pit' present='no' ");
    let host = HostSide::of_vendor(exits::Isa::Svm);
    let fixed = fix(&Text::new("web.xml", xml), Form::Libvirt, &NoFiles, &host, &Chosen::Safe).unwrap();
    assert!(fixed.plan.rules.iter().any(|rule| rule.rule == "pit-lost-ticks"), "{:?}", fixed.plan);
    let text = String::from_utf8(fixed.bytes).unwrap();
    assert!(text.contains("<timer name='pit' present='no' tickpolicy='discard'/>"), "{text}");
}

#[test]
fn a_guest_from_which_kvm_is_hidden_by_any_feature_sees_it_again() {
    let hidden = "<cpu mode='host-passthrough'>\n    <feature policy='disable' name='hypervisor'/>\n  </cpu>";
    let xml = XML
        .replace("<acpi/>", "<acpi/><kvm><hidden state='on'/></kvm>")
        .replace("<cpu mode='host-passthrough'/>", hidden);
    let arguments = "qemu-system-x86_64 -M q35 -accel kvm -cpu host,-hypervisor,kvm=off";
    for (text, form) in [(xml.as_str(), Form::Libvirt), (arguments, Form::Qemu)] {
        let chosen = Chosen::Rules(vec!["kvm-hidden".to_owned()]);
        let fixed = fix(&Text::new("vm", text), form, &NoFiles, &HostSide::default(), &chosen).unwrap();
        assert!(fixed.refused.is_empty(), "{:?}", fixed.refused);
        let states = |sections: &[Section]| -> Vec<State> {
            let all = sections.iter().flat_map(|section| &section.findings);
            all.filter(|one| one.rule == "kvm-hidden").map(|one| one.state.clone()).collect()
        };
        assert_eq!((states(&fixed.before), states(&fixed.after)), (vec![State::Warn], vec![State::Pass]));
    }
}

#[test]
fn an_invariant_tsc_is_offered_only_by_name_because_it_ends_migration() {
    let xml = XML.replace("<timer name='hpet'", "<timer name='kvmclock' present='no'/><timer name='hpet'");
    let arguments = "qemu-system-x86_64 -M q35 -accel kvm -cpu host,kvmclock=off";
    for (text, form) in [(xml.as_str(), Form::Libvirt), (arguments, Form::Qemu)] {
        let fixed = |chosen: &Chosen| {
            fix(&Text::new("vm", text), form, &NoFiles, &HostSide::default(), chosen).unwrap()
        };
        let safe = fixed(&Chosen::Safe);
        let left = LeftFinding { rule: "clock-source".to_owned(), why: Left::PreventsMigration };
        assert!(safe.plan.left.contains(&left), "{:?}", safe.plan.left);
        assert!(!String::from_utf8(safe.bytes).unwrap().contains("invtsc"));
        let named = fixed(&Chosen::Rules(vec!["clock-source".to_owned()]));
        assert!(named.notes.iter().any(|note| note.contains("tsc-frequency=")), "{:?}", named.notes);
        assert!(String::from_utf8(named.bytes).unwrap().contains("invtsc"));
    }
}

#[test]
fn a_split_irqchip_is_said_to_end_live_migration() {
    let many = XML.replace("<vcpu>4<", "<vcpu>300<");
    let arguments = "qemu-system-x86_64 -M q35 -accel kvm -smp 300 -cpu host";
    for (text, form) in [(many.as_str(), Form::Libvirt), (arguments, Form::Qemu)] {
        let host = HostSide::of_vendor(exits::Isa::Svm);
        let fixed = fix(&Text::new("vm", text), form, &NoFiles, &host, &Chosen::Safe).unwrap();
        assert!(fixed.notes.iter().any(|note| note.contains("cannot be migrated live")), "{:?}", fixed.notes);
    }
}

#[test]
fn disks_get_unused_io_threads_first_and_no_more_than_there_are_vcpus() {
    let disk = |name: &str| {
        format!("<disk type='file'><source file='/{name}'/><target dev='{name}' bus='virtio'/></disk>")
    };
    let disks: String = ('a'..='j').map(|last| disk(&format!("vd{last}"))).collect();
    let text = XML
        .replace("<vcpu>4</vcpu>", "<vcpu>4</vcpu><iothreads>2</iothreads>")
        .replace("<interface", &format!("{disks}<interface"));
    let text = Text::new("web.xml", text);
    let fixed = fix(&text, Form::Libvirt, &NoFiles, &HostSide::default(), &Chosen::Safe).unwrap();
    let vm = domain::libvirt::read(&Text::new("web.xml", fixed.bytes), &NoFiles).unwrap();
    assert_eq!(vm.iothreads.len(), 4);
    let served = vm.devices.iter().filter(|device| device.model == "virtio-blk-pci");
    let mut uses = std::collections::BTreeMap::new();
    for device in served {
        *uses.entry(device.iothreads[0].value.clone()).or_insert(0) += 1;
    }
    assert_eq!(uses.values().sum::<i32>(), 10);
    assert!(uses.len() == 4 && uses.values().all(|&number| number <= 3), "{uses:?}");
    // A single disk gets the existing idle thread.
    let one = XML
        .replace("<vcpu>4</vcpu>", "<vcpu>4</vcpu><iothreads>1</iothreads>")
        .replace("<interface", &format!("{}<interface", disk("vda")));
    let fixed = fix(&Text::new("web.xml", one), Form::Libvirt, &NoFiles, &HostSide::default(), &Chosen::Safe)
        .unwrap();
    assert!(String::from_utf8(fixed.bytes).unwrap().contains("<iothreads>1</iothreads>"));
}

#[test]
fn a_disk_that_becomes_virtio_is_no_longer_removable() {
    let disk = "<disk type='file'><source file='/a'/><target dev='sda' bus='usb' removable='on'/></disk>";
    let text = Text::new("web.xml", XML.replace("<interface", &format!("{disk}<interface")));
    let fixed = fix(&text, Form::Libvirt, &NoFiles, &HostSide::default(), &Chosen::All).unwrap();
    let text = String::from_utf8(fixed.bytes).unwrap();
    assert!(text.contains("bus='virtio'") && !text.contains("removable"), "{text}");
}

#[test]
fn a_cpuset_of_all_threads_is_no_pin_of_the_vmm() {
    let disk = "<disk type='file'><source file='/a'/><target dev='vda' bus='virtio'/></disk>";
    let text =
        XML.replace("<vcpu>", "<vcpu cpuset='0-3'>").replace("<interface", &format!("{disk}<interface"));
    let fixed =
        fix(&Text::new("web.xml", text), Form::Libvirt, &NoFiles, &HostSide::default(), &Chosen::Safe)
            .unwrap();
    let findings = fixed.before.iter().chain(&fixed.after).flat_map(|section| &section.findings);
    for finding in findings.filter(|finding| finding.rule.ends_with("-pins")) {
        assert_eq!(finding.state, State::Pass, "{finding:?}");
    }
}

#[test]
fn vhost_user_devices_get_shared_memory_and_connect_again() {
    let devices = "<disk type='vhostuser'><source type='unix' path='/run/b'/><target dev='vdb' bus='virtio'/></disk>\
                   <interface type='vhostuser'><source type='unix' path='/run/n' mode='client'/><model type='virtio'/></interface>";
    let xml = XML.replace("<interface type='network'>", &format!("{devices}<interface type='network'>"));
    let arguments = "qemu-system-x86_64 -M pc-q35-9.2 -accel kvm -m 512 -cpu host -smp 2 -nodefaults \
                     -chardev socket,id=b,path=/run/b -device vhost-user-blk-pci,chardev=b \
                     -chardev socket,id=n,path=/run/n -netdev vhost-user,id=n,chardev=n -device virtio-net-pci,netdev=n";
    // libvirt refuses such a disk without <access mode='shared'/>.
    let memfd =
        xml.replace("<os>", "<memoryBacking>\n    <source type='memfd'/>\n  </memoryBacking>\n  <os>");
    for (text, form) in
        [(xml.as_str(), Form::Libvirt), (memfd.as_str(), Form::Libvirt), (arguments, Form::Qemu)]
    {
        let text = Text::new("vm", text);
        let fixed = fix(&text, form, &NoFiles, &HostSide::default(), &Chosen::Safe).unwrap();
        let new = String::from_utf8(fixed.bytes.clone()).unwrap();
        assert!(fixed.refused.is_empty(), "{:?}", fixed.refused);
        let ruled = |sections: &[Section]| -> Vec<State> {
            let findings = sections.iter().flat_map(|section| &section.findings);
            findings
                .filter(|one| ["vhost-user-memory", "vhost-user-reconnect"].contains(&&*one.rule))
                .map(|one| one.state.clone())
                .collect()
        };
        assert_eq!(ruled(&fixed.before), [State::Fail, State::Warn], "{:?}", fixed.before);
        assert_eq!(ruled(&fixed.after), [State::Pass, State::Pass], "{new}");
        assert!(new.contains("memfd") && new.matches("reconnect").count() == 2, "{new}");
    }
}

#[test]
fn a_rule_that_is_named_is_fixed_alone() {
    let fixed = fixed(&Chosen::rules(&["emulated-network".to_owned()]).unwrap());
    let text = String::from_utf8(fixed.bytes.clone()).unwrap();
    assert!(!text.contains("ioapic") && text.contains("type='virtio'"), "{text}");
    assert!(fixed.plan.left.iter().all(|left| left.why != Left::GuestFollows));
    let error = Chosen::rules(&["pit".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("\"pit\"") && error.contains("pit-lost-ticks"), "{error}");
}

#[test]
fn fixing_what_is_fixed_changes_no_byte() {
    let once = fixed(&Chosen::All);
    // The interface that became virtio also gets its queues.
    assert!(once.plan.rules.iter().any(|rule| rule.rule == "network-queues"), "{:?}", once.plan);
    let text = Text::new("web.xml", once.bytes.clone());
    let host = HostSide::of_vendor(exits::Isa::Svm);
    let twice = fix(&text, Form::Libvirt, &NoFiles, &host, &Chosen::All).unwrap();
    assert_eq!(twice.bytes, once.bytes);
    assert!(twice.plan.changes.is_empty(), "{:?}", twice.plan);
}

#[test]
fn a_fix_of_which_a_part_is_refused_changes_no_machine() {
    // libvirt wants an IOMMU for so many, and an i440FX has none.
    let xml = XML.replace("<vcpu>4<", "<vcpu>300<").replace("pc-q35-9.2", "pc-i440fx-9.2");
    let host = HostSide::of_vendor(exits::Isa::Svm);
    let chosen = Chosen::Rules(vec!["many-vcpus".to_owned()]);
    let fixed = fix(&Text::new("web.xml", xml.as_str()), Form::Libvirt, &NoFiles, &host, &chosen).unwrap();
    assert_eq!(String::from_utf8(fixed.bytes).unwrap(), xml);
    let refused: Vec<_> = fixed.refused.iter().map(|refusal| &refusal.change).collect();
    assert_eq!(refused, [&DefinitionChange::InterruptRemapping]);
    assert!(fixed.plan.rules.is_empty(), "{:?}", fixed.plan.rules);
}

#[test]
fn of_two_changes_of_one_thing_the_first_rule_wins_whole() {
    let change = |name: &str, state| DefinitionChange::CpuFeature(name.to_owned(), state);
    let mut plan = Plan::default();
    assert!(plan.take("one", &[change("x2apic", FeatureState::On)]));
    assert!(plan.take("two", &[change("x2apic", FeatureState::On), change("svm", FeatureState::Off)]));
    assert!(!plan.take("three", &[change("topoext", FeatureState::On), change("x2apic", FeatureState::Off)]));
    assert_eq!(plan.changes, [change("x2apic", FeatureState::On), change("svm", FeatureState::Off)]);
    assert_eq!(plan.rules.len(), 2);
}

#[test]
fn a_finding_whose_first_fix_is_for_people_is_left() {
    let finding = |fixes| Finding {
        rule: "hyperv-avic-host".to_owned(),
        title: String::new(),
        state: State::Warn,
        found: String::new(),
        why: String::new(),
        evidence: Vec::new(),
        fixes,
        source: String::new(),
        children: Vec::new(),
    };
    let change = Fix::Definition(vec![DefinitionChange::Hpet(false)]);
    let findings = [finding(vec![Fix::Advice("do it".to_owned()), change]), finding(Vec::new())];
    let plan = Plan::of(&findings, &Chosen::All);
    assert!(plan.changes.is_empty());
    assert!(plan.left.iter().all(|left| left.why == Left::Advice) && plan.left.len() == 2);
}
