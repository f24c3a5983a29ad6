use super::*;
use domain::{Irqchip, TickPolicy};
use std::collections::BTreeSet;

fn vm(manager: Manager) -> Management {
    Management {
        manager,
        vmid: Some(100),
        namespaced: Some(("prod".to_owned(), "web".to_owned())),
        ..Management::default()
    }
}

fn finding(fixes: Vec<Fix>) -> Finding {
    crate::verdict::Verdict::fail("x").finding("rule", "title", "why", "source").with(fixes)
}

impl Finding {
    fn with(mut self, fixes: Vec<Fix>) -> Self {
        self.fixes = fixes;
        self
    }
}

const WITH_WORDS: [Manager; 9] = [
    Manager::Proxmox,
    Manager::Nova,
    Manager::KubeVirt,
    Manager::Ovirt,
    Manager::Incus,
    Manager::Lxd,
    Manager::CloudHypervisor,
    Manager::Crosvm,
    Manager::Firecracker,
];

#[test]
fn only_the_irqchip_of_qemu_is_split_on_a_condition() {
    let split = |manager| of_reason(InhibitReason::Absent, "web", &vm(manager))[0].changes.concat();
    for manager in [Manager::Proxmox, Manager::Nova, Manager::Ovirt, Manager::Incus] {
        assert!(split(manager).ends_with(UNLESS_RTC_CATCHES_UP), "{}", split(manager));
    }
    assert_eq!(split(Manager::Crosvm), "--irqchip split");
}

#[test]
fn every_inhibit_reason_of_a_definition_has_an_answer_in_every_program() {
    assert_eq!(Manager::ALL.iter().filter(|one| has_words(**one)).count(), WITH_WORDS.len());
    for manager in WITH_WORDS {
        for reason in InhibitReason::all() {
            let edits = edits_of(reason).len();
            let said = of_reason(reason, "web", &vm(manager));
            assert_eq!(said.len(), edits, "{manager:?} {reason}");
            for one in said {
                assert!(!one.changes.is_empty() || !one.without.is_empty(), "{one:?}");
                assert!(one.sources.iter().all(|source| source.len() > 5), "{one:?}");
                assert!(
                    one.changes
                        .iter()
                        .all(|text| ["{vm", "{feature", "{client"].iter().all(|part| !text.contains(part))),
                    "{one:?}"
                );
            }
        }
    }
    assert!(edits_of(InhibitReason::IrqWindow).is_empty(), "no irqchip removes interrupts of the PIC");
    for without in [Manager::Qemu, Manager::Libvirt, Manager::Other] {
        assert!(of_reason(InhibitReason::PitReinject, "web", &vm(without)).is_empty());
    }
}

#[test]
fn programs_that_start_qemu_have_a_row_for_every_setting_and_no_row_is_double() {
    let settings: BTreeSet<Setting> = ROWS.iter().map(|row| row.setting).collect();
    for manager in [Manager::Proxmox, Manager::Nova, Manager::KubeVirt, Manager::Ovirt, Manager::Incus] {
        for setting in &settings {
            let rows = ROWS
                .iter()
                .filter(|row| row.manager == manager && row.setting == *setting && row.only.is_empty());
            assert_eq!(rows.count(), 1, "{manager:?} {setting:?}");
        }
    }
    let keys: BTreeSet<_> = ROWS.iter().map(|row| (row.manager, row.setting, row.only)).collect();
    assert_eq!(keys.len(), ROWS.len());
}

#[test]
fn several_arguments_of_one_fix_are_one_command() {
    let changes = vec![DefinitionChange::PitTickPolicy(TickPolicy::Discard), DefinitionChange::Hpet(false)];
    let mut findings = vec![finding(vec![Fix::Definition(changes.clone())])];
    translate(&mut findings, None, "web", &vm(Manager::Proxmox));
    let [Fix::Managed(managed), Fix::Definition(kept)] = &findings[0].fixes[..] else {
        panic!("{findings:?}")
    };
    let told = "qm set 100 --args '-global kvm-pit.lost_tick_policy=discard -machine hpet=off' (it replaces args that \
                are set)";
    assert_eq!(managed.changes, [told]);
    assert_eq!(kept, &changes, "for programs");
    let mut findings = vec![finding(vec![Fix::Definition(changes)])];
    translate(&mut findings, None, "web", &vm(Manager::Ovirt));
    let Fix::Managed(managed) = &findings[0].fixes[0] else { panic!("{findings:?}") };
    let told = "custom property qemu_cmdline = [\"-global\",\"kvm-pit.lost_tick_policy=discard\",\"-machine\",\"hpet=off\"] \
                (vdsm-hook-qemucmdline)";
    assert_eq!(managed.changes, [told]);
}

#[test]
fn users_of_incus_and_lxd_get_commands_of_their_client_without_strange_names() {
    let one = |manager| Management { namespaced: None, ..vm(manager) };
    let said = |manager, name: &str| {
        of_reason(InhibitReason::PitReinject, name, &one(manager))[0].changes[0].clone()
    };
    let told = "incus config set web-1 raw.qemu='-global kvm-pit.lost_tick_policy=discard' (it replaces raw.qemu that is set)";
    assert_eq!(said(Manager::Incus, "web-1"), told);
    assert_eq!(said(Manager::Lxd, "web-1"), told.replace("incus config", "lxc config"));
    for name in ["", "-v", "a b", "a;reboot", "a'b"] {
        assert_eq!(said(Manager::Incus, name), told.replace("web-1", "INSTANCE"), "{name}");
    }
    let nested = of_reason(InhibitReason::Nested, "web", &one(Manager::Lxd));
    assert!(
        nested[0].changes[0].starts_with("lxc config edit web: in raw.qemu, -cpu VALUE,-svm;"),
        "{nested:?}"
    );
}

#[test]
fn for_programs_whose_setting_is_new_something_else_is_said_to_help() {
    for manager in [Manager::CloudHypervisor, Manager::Crosvm] {
        let nested = of_reason(InhibitReason::Nested, "web", &vm(manager));
        let said = &nested[0].changes[0];
        assert!(
            said.starts_with("--") && said.contains("older") && said.contains("kvm_amd.nested=0"),
            "{said}"
        );
    }
}

#[test]
fn who_has_no_setting_is_told_so_and_what_else_helps() {
    let mut findings = vec![finding(vec![Fix::Definition(vec![DefinitionChange::Irqchip(Irqchip::Split)])])];
    translate(&mut findings, None, "web", &vm(Manager::KubeVirt));
    let Fix::Managed(managed) = &findings[0].fixes[0] else { panic!("{findings:?}") };
    assert!(managed.changes.is_empty() && managed.without[0].contains("tickPolicy"), "{managed:?}");
    let pit = of_reason(InhibitReason::PitReinject, "web", &vm(Manager::KubeVirt));
    let told = "VirtualMachine prod/web: spec.template.spec.domain.clock.timer.pit.tickPolicy: discard";
    assert_eq!(pit[0].changes, [told]);
    // No field is the advice against AutoEOI alone, but the host's enlightenments contain it.
    let hyperv = of_reason(InhibitReason::HyperV, "web", &vm(Manager::KubeVirt));
    let told = "VirtualMachine prod/web: spec.template.spec.domain.features.hypervPassthrough.enabled: true";
    assert!(hyperv[0].changes[0].starts_with(told) && hyperv[0].without.is_empty(), "{hyperv:?}");
    assert!(hyperv[0].changes[0].ends_with(" (hv-avic needs Linux 5.15 on the host)"), "{hyperv:?}");
}

/// The fields of KubeVirt's API that the table names (staging/src/kubevirt.io/api/core/v1/schema.go): each object with
/// its fields, and the type of each field.
const FIELDS: &[(&str, &[(&str, &str)])] = &[
    (
        "domain",
        &[
            ("clock", "clock"),
            ("cpu", "cpu"),
            ("features", "features"),
            ("devices", "devices"),
            ("ioThreadsPolicy", ""),
        ],
    ),
    ("clock", &[("timer", "timer")]),
    ("timer", &[("hpet", "hpet"), ("pit", "pit"), ("hyperv", "present")]),
    ("hpet", &[("tickPolicy", ""), ("present", "")]),
    ("pit", &[("tickPolicy", ""), ("present", "")]),
    ("present", &[("present", "")]),
    ("cpu", &[("model", ""), ("features", ""), ("sockets", ""), ("cores", ""), ("threads", "")]),
    ("features", &[("hyperv", "hyperv"), ("hypervPassthrough", "state"), ("kvm", "kvm"), ("apic", "apic")]),
    ("kvm", &[("hidden", "")]),
    ("apic", &[("enabled", ""), ("endOfInterrupt", "")]),
    (
        "hyperv",
        &[
            ("relaxed", "state"),
            ("vapic", "state"),
            ("spinlocks", "state"),
            ("vpindex", "state"),
            ("runtime", "state"),
            ("synic", "state"),
            ("synictimer", "synictimer"),
            ("reset", "state"),
            ("frequencies", "state"),
            ("reenlightenment", "state"),
            ("tlbflush", "state"),
            ("ipi", "state"),
            ("evmcs", "state"),
        ],
    ),
    ("synictimer", &[("enabled", ""), ("direct", "state")]),
    ("state", &[("enabled", "")]),
    (
        "devices",
        &[("interfaces", ""), ("disks", ""), ("networkInterfaceMultiqueue", ""), ("blockMultiQueue", "")],
    ),
];

#[test]
fn fields_of_kubevirt_are_those_of_its_api() {
    let offered = [
        "avic",
        "relaxed",
        "vapic",
        "vpindex",
        "runtime",
        "synic",
        "stimer",
        "stimer-direct",
        "time",
        "reset",
        "frequencies",
        "reenlightenment",
        "tlbflush",
        "ipi",
        "evmcs",
    ];
    let hyperv = offered.map(|name| DefinitionChange::HyperV(name.to_owned(), true));
    let others = [
        DefinitionChange::PitTickPolicy(TickPolicy::Discard),
        DefinitionChange::Hpet(false),
        DefinitionChange::CpuModel(CpuModel::Host),
        DefinitionChange::CpuFeature("x2apic".to_owned(), FeatureState::On),
        DefinitionChange::CpuFeature("svm".to_owned(), FeatureState::Off),
        DefinitionChange::IoThread { device: 0, iothread: "iothread1".to_owned() },
    ];
    let mut seen = 0;
    let rows = ROWS.iter().filter(|row| row.manager == Manager::KubeVirt).filter_map(|row| match row.words {
        Words::Change(text) if !text.contains("{feature}.enabled") => Some(text.to_owned()),
        _ => None,
    });
    let edits = hyperv.iter().chain(&others).filter_map(|change| Edit::of(change, None));
    let said: Vec<String> = edits
        .filter_map(|edit| said(&[edit], "web", &vm(Manager::KubeVirt)))
        .flat_map(|one| one.changes)
        .collect();
    for text in rows.chain(said) {
        let (_, path) = text.split_once("spec.template.spec.domain.").unwrap_or_else(|| panic!("{text}"));
        let path = path.split([':', ' ', ',']).next().unwrap();
        let mut object = "domain";
        for field in path.split('.') {
            let (_, fields) =
                FIELDS.iter().find(|(name, _)| *name == object).unwrap_or_else(|| panic!("{text}"));
            object =
                fields.iter().find(|(name, _)| *name == field).unwrap_or_else(|| panic!("{text}: {field}")).1;
        }
        seen += 1;
    }
    assert!(seen > 25, "{seen}");
}

#[test]
fn what_kvm_adds_to_the_features_of_the_cpu_is_none_for_libvirt() {
    let told = |manager, name: &str| {
        let change = DefinitionChange::CpuFeature(name.to_owned(), FeatureState::On);
        said(&[Edit::of(&change, None).unwrap()], "web", &vm(manager)).unwrap()
    };
    for name in ["kvm", "kvm-pv-eoi", "kvmclock"] {
        for manager in [Manager::Nova, Manager::KubeVirt, Manager::Ovirt] {
            let Managed { changes, without, .. } = told(manager, name);
            assert!(
                changes.iter().all(|text| !text.contains(name) || text.contains(".kvm.hidden")),
                "{changes:?}"
            );
            assert_ne!(changes.is_empty(), without.is_empty(), "{manager:?} {name}");
        }
    }
    let kvm = |manager| told(manager, "kvm").changes;
    assert_eq!(kvm(Manager::Proxmox), ["qm set 100 --cpu MODEL,hidden=0 (with the rest of its value)"]);
    assert_eq!(
        kvm(Manager::Nova),
        ["image: img_hide_hypervisor_id=false, and flavor: hw:hide_hypervisor_id=false"]
    );
    let hidden = "VirtualMachine prod/web: spec.template.spec.domain.features.kvm.hidden: false";
    assert_eq!(kvm(Manager::KubeVirt), [hidden]);
    let eoi = "VirtualMachine prod/web: spec.template.spec.domain.features.apic.endOfInterrupt: true";
    assert_eq!(told(Manager::KubeVirt, "kvm-pv-eoi").changes, [eoi]);
}

#[test]
fn options_of_proxmox_are_set_as_a_whole() {
    let rows = ROWS.iter().filter(|row| row.manager == Manager::Proxmox);
    let texts: Vec<&str> = rows
        .filter_map(|row| match row.words {
            Words::Change(text) => Some(text),
            _ => None,
        })
        .collect();
    let in_parts = |text: &&&str| text.contains('=') || text.contains("--cpu");
    assert!(texts.iter().filter(in_parts).count() > 8, "{texts:?}");
    for text in texts.iter().filter(in_parts) {
        assert!(text.contains("rest of its value"), "{text}");
    }
}

fn definition(arguments: &str) -> Definition {
    domain::qemu::read(&domain::Text::new("test", arguments), &domain::NoFiles).unwrap()
}

#[test]
fn a_device_of_proxmox_keeps_its_option() {
    let vm_with = definition(
        "kvm -M pc -drive file=a,if=none,id=drive-virtio0 -device virtio-blk-pci,drive=drive-virtio0,id=virtio0 \
         -device virtio-scsi-pci,id=virtioscsi1 -device virtio-scsi-pci,id=scsihw0 -device e1000,id=net12",
    );
    let index = |id: &str| vm_with.devices.iter().position(|one| one.id.as_deref() == Some(id)).unwrap();
    let told = |change: DefinitionChange| {
        said(&[Edit::of(&change, Some(&vm_with)).unwrap()], "web", &vm(Manager::Proxmox)).unwrap()
    };
    let thread =
        |id: &str| DefinitionChange::IoThread { device: index(id), iothread: "iothread0".to_owned() };
    let rest = "VOLUME,...,iothread=1 (with the rest of its value)";
    assert_eq!(told(thread("virtio0")).changes, [format!("qm set 100 --virtio0 {rest}")]);
    for (id, option) in [("virtioscsi1", "scsi1"), ("scsihw0", "scsiN")] {
        let single = format!("qm set 100 --scsihw virtio-scsi-single --{option} {rest}");
        assert_eq!(told(thread(id)).changes, [single]);
    }
    let queues = told(DefinitionChange::Queues { device: index("virtio0"), queues: 4 });
    assert!(queues.changes.is_empty() && queues.without[0].contains("takes no number"), "{queues:?}");
    let net = DefinitionChange::DeviceModel { device: index("net12"), model: "virtio-net-pci".to_owned() };
    assert!(told(net).changes[0].starts_with("qm set 100 --net12 virtio=MAC,..."));
    let iommu = told(DefinitionChange::InterruptRemapping);
    assert!(iommu.changes.is_empty() && iommu.without[0].contains("install it anew"), "{iommu:?}");
    assert_eq!(slot("net0;reboot"), None);
    assert_eq!(slot("virtio123"), None);
}

#[test]
fn templates_of_firecracker_are_json_with_whole_bitmaps() {
    for (change, place) in [
        (DefinitionChange::CpuFeature("x2apic".to_owned(), FeatureState::Off), 21),
        (DefinitionChange::CpuFeature("svm".to_owned(), FeatureState::Off), 2),
    ] {
        let managed = said(&[Edit::of(&change, None).unwrap()], "web", &vm(Manager::Firecracker)).unwrap();
        let (_, json) = managed.changes[0].split_once(": ").unwrap();
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        let bitmap = json["cpuid_modifiers"][0]["modifiers"][0]["bitmap"].as_str().unwrap();
        let bits = bitmap.strip_prefix("0b").unwrap();
        assert_eq!(
            (bits.len(), bits.chars().rev().position(|bit| bit == '0')),
            (32, Some(place)),
            "{bitmap}"
        );
    }
}

#[test]
fn a_change_without_words_is_told_in_the_form_of_the_definition() {
    let fixes = vec![Fix::Definition(vec![DefinitionChange::SharedMemory])];
    let mut findings = vec![finding(fixes.clone())];
    translate(&mut findings, None, "web", &vm(Manager::Nova));
    assert_eq!(findings[0].fixes, fixes);
}
