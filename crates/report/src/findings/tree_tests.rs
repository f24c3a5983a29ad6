use super::*;
use doctor::Evidence;
use domain::{CpuModel, DefinitionChange, FeatureState, Irqchip, TickPolicy};
use exits::{CurePlace, InhibitReason};

fn finding(rule: &str, title: &str, state: State, found: &str) -> Finding {
    Finding {
        rule: rule.to_owned(),
        title: title.to_owned(),
        state,
        found: found.to_owned(),
        why: "an in-kernel PIT in reinject mode has to see every EOI, so KVM inhibits AVIC for the whole VM"
            .to_owned(),
        evidence: vec![Evidence {
            place: "argument 3".to_owned(),
            value: "-machine q35,accel=kvm,kernel-irqchip=on,a-property-that-makes-it=long".to_owned(),
        }],
        fixes: Vec::new(),
        source: "Linux arch/x86/kvm/i8254.c, kvm_pit_set_reinject".to_owned(),
        children: Vec::new(),
    }
}

fn some() -> Vec<Section> {
    let mut pit =
        finding("pit-lost-ticks", "PIT", State::Fail, "the PIT is in the kernel and reinjects lost ticks");
    pit.fixes = vec![
        Fix::Definition(vec![DefinitionChange::Irqchip(Irqchip::Split)]),
        Fix::Definition(vec![DefinitionChange::PitTickPolicy(TickPolicy::Discard)]),
    ];
    let mut avic = finding("cpu-avic", "AVIC of the CPU", State::Pass, "the CPU has AVIC and x2AVIC");
    let mut parameter = finding("kvm-amd-avic", "Module parameter avic", State::Fail, "it is off");
    parameter.fixes = vec![Fix::Command(
        "echo 'options kvm_amd avic=1' > /etc/modprobe.d/kvm.conf\nmodprobe -r kvm_amd && modprobe kvm_amd"
            .to_owned(),
    )];
    let skip = State::Skip("the module parameter avic is off".to_owned());
    parameter.children.push(finding("ga-log", "GA log", skip, ""));
    avic.children.push(parameter);
    let hostile = finding("name", "Name \u{1b}[31m", State::Warn, "escape \u{7}");
    vec![
        Section {
            name: "cpu".to_owned(),
            title: "CPU and module".to_owned(),
            form: None,
            findings: vec![avic, finding("npt", "Nested paging", State::Pass, "npt=Y")],
        },
        Section {
            name: "vm".to_owned(),
            title: "VM guest1".to_owned(),
            form: Some(Form::Libvirt),
            findings: vec![pit, hostile],
        },
        Section {
            name: "quiet".to_owned(),
            title: "All in order".to_owned(),
            form: None,
            findings: vec![finding("ok", "Nothing", State::Pass, "to see")],
        },
    ]
}

const PLAIN: FindingsView = FindingsView { width: 80, colour: false, passes: false, verbose: false };

#[test]
fn what_is_to_be_fixed_is_shown_with_its_evidence_and_its_fix() {
    insta::assert_snapshot!(findings(&some(), PLAIN));
}

#[test]
fn everything_is_shown_when_asked_for() {
    insta::assert_snapshot!(findings(&some(), FindingsView { passes: true, ..PLAIN }));
    insta::assert_snapshot!(findings(&some(), FindingsView { verbose: true, ..PLAIN }));
}

#[test]
fn all_of_them_for_programs() {
    let (sections, doubts) = (some(), ["a property that is not known".to_owned()]);
    let document = crate::findings::json("web.xml", &sections, &doubts);
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap());
    let text = serde_json::to_string(&crate::findings::json("web.xml", &[], &[])).unwrap();
    assert!(text.ends_with(r#","sections":[]}"#), "{text}");
}

#[test]
fn no_line_is_too_wide_and_no_escape_is_the_definitions() {
    let text = findings(&some(), FindingsView { verbose: true, ..PLAIN });
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'));
    let coloured = findings(&some(), FindingsView { verbose: true, colour: true, ..PLAIN });
    assert!(coloured.contains("\u{1b}[1;31mFAIL\u{1b}[0m  PIT: the PIT"), "{coloured}");
    let mut stripped = coloured;
    for code in ["1;31", "32", "33", "2", "1", "0"] {
        stripped = stripped.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(stripped, text);
}

#[test]
fn commands_stay_on_one_line() {
    let first = format!("echo '{}' >> /etc/modprobe.d/kvm.conf", "options kvm avic=1 ".repeat(5));
    let mut off = finding("off", "Module parameter", State::Fail, "it is off");
    off.fixes = vec![Fix::Command(format!("{first}\nmodprobe kvm"))];
    let section =
        Section { name: "cpu".to_owned(), title: "CPU".to_owned(), form: None, findings: vec![off] };
    let text = findings(&[section], PLAIN);
    assert!(text.contains(&format!("\n        fix    {first}\n               modprobe kvm\n")), "{text}");
}

#[test]
fn the_sum_counts_children_and_knows_one_from_many() {
    let sections = some();
    let tally = Tally::of(sections.iter().flat_map(|section| &section.findings));
    assert_eq!(tally, Tally { fail: 2, warn: 1, pass: 3, skip: 1 });
    assert_eq!(findings_summary(tally), "2 failures, 1 warning, 3 passed, 1 skipped");
    assert_eq!(findings_summary(Tally::default()), "0 passed");
}

#[test]
fn each_change_reads_as_its_form_writes_it() {
    let changes = [
        DefinitionChange::Irqchip(Irqchip::Split),
        DefinitionChange::PitTickPolicy(TickPolicy::Discard),
        DefinitionChange::Hpet(false),
        DefinitionChange::CpuModel(CpuModel::Host),
        DefinitionChange::CpuFeature("x2apic".to_owned(), FeatureState::Off),
        DefinitionChange::HyperV("avic".to_owned(), true),
        DefinitionChange::HyperV("stimer-direct".to_owned(), true),
        DefinitionChange::InterruptRemapping,
        DefinitionChange::DeviceModel { device: 0, model: "virtio-net-pci".to_owned() },
        DefinitionChange::Vhost { device: 0, on: true },
        DefinitionChange::Queues { device: 0, queues: 4 },
        DefinitionChange::IoThread { device: 0, iothread: "iothread1".to_owned() },
        DefinitionChange::Aio { device: 0, aio: "native".to_owned() },
        DefinitionChange::Reconnect { device: 0 },
    ];
    let words = |form| changes.iter().map(|change| change_in_words(change, form)).collect::<Vec<_>>();
    insta::assert_snapshot!(words(Form::Qemu).join("\n"));
    insta::assert_snapshot!(words(Form::Libvirt).join("\n"));
}

#[test]
fn what_libvirt_has_apart_from_features_of_the_cpu_is_said_so() {
    for (name, said) in [
        ("kvm", "<features><kvm><hidden state='off'/></kvm></features>"),
        ("kvm-pv-eoi", "<features><apic eoi='on'/></features>"),
        ("kvmclock", "<clock><timer name='kvmclock' present='yes'/></clock>"),
        ("pmu", "<features><pmu state='on'/></features>"),
    ] {
        let change = DefinitionChange::CpuFeature(name.to_owned(), FeatureState::On);
        assert_eq!(change_in_words(&change, Form::Libvirt), said);
    }
}

#[test]
fn a_change_for_an_inhibit_reason_is_the_cure_that_verify_names() {
    let feature = |name: &str| DefinitionChange::CpuFeature(name.to_owned(), FeatureState::Off);
    let rows = [
        (InhibitReason::Absent, DefinitionChange::Irqchip(Irqchip::Split)),
        (InhibitReason::PitReinject, DefinitionChange::Irqchip(Irqchip::Split)),
        (InhibitReason::PitReinject, DefinitionChange::PitTickPolicy(TickPolicy::Discard)),
        (InhibitReason::HyperV, DefinitionChange::HyperV("avic".to_owned(), true)),
        (InhibitReason::Nested, feature("svm")),
        (InhibitReason::X2Apic, feature("x2apic")),
    ];
    for (reason, change) in rows {
        for (form, place) in [(Form::Qemu, CurePlace::Qemu), (Form::Libvirt, CurePlace::Libvirt)] {
            let words = change_in_words(&change, form);
            let mut cures = reason.cures().iter().filter(|cure| cure.place == place);
            assert!(cures.any(|cure| cure.change.starts_with(&words)), "{reason}: {words}");
        }
    }
}
