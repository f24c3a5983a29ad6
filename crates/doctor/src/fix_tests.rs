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
    assert!(text.contains("<ioapic driver='qemu'/>") && text.contains("<!-- kept -->"), "{text}");
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
    // What became virtio has its queues too.
    assert!(once.plan.rules.iter().any(|rule| rule.rule == "network-queues"), "{:?}", once.plan);
    let text = Text::new("web.xml", once.bytes.clone());
    let host = HostSide::of_vendor(exits::Isa::Svm);
    let twice = fix(&text, Form::Libvirt, &NoFiles, &host, &Chosen::All).unwrap();
    assert_eq!(twice.bytes, once.bytes);
    assert!(twice.plan.changes.is_empty(), "{:?}", twice.plan);
}

#[test]
fn of_two_changes_of_one_thing_the_first_rule_wins_whole() {
    let change = |name: &str, state| Change::CpuFeature(name.to_owned(), state);
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
    let change = Fix::Definition(vec![Change::Hpet(false)]);
    let findings = [finding(vec![Fix::Advice("do it".to_owned()), change]), finding(Vec::new())];
    let plan = Plan::of(&findings, &Chosen::All);
    assert!(plan.changes.is_empty());
    assert!(plan.left.iter().all(|left| left.why == Left::Advice) && plan.left.len() == 2);
}
