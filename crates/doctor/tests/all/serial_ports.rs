//! The advised number of virtio-serial ports is the number that the definition needs.

use doctor::lint::{HostSide, lint};
use doctor::{Finding, Fix, State};
use domain::{NoFiles, Text};
use std::path::Path;

fn finding(definition: &domain::Definition) -> Finding {
    let findings = lint(definition, &HostSide::default());
    findings.into_iter().find(|finding| finding.rule == "serial-ports").unwrap()
}

fn advice(finding: &Finding) -> &str {
    match &finding.fixes[..] {
        [Fix::Advice(text)] => text,
        _ => panic!("{finding:?}"),
    }
}

#[test]
fn a_domain_with_the_ports_that_are_advised_has_none_too_many() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../domain/tests/fixtures/libvirt/virt-install-debian.xml");
    let old = std::fs::read_to_string(path).unwrap();
    let read =
        |text: &str| domain::libvirt::read(&Text::new("a file", text.as_bytes().to_vec()), &NoFiles).unwrap();
    let before = finding(&read(&old));
    assert_eq!(before.state, State::Warn, "{before:?}");
    // Its channels are ports 1 and 2.
    assert_eq!(advice(&before), "<controller type='virtio-serial' index='0' ports='3'/>");
    let new = advice(&before).replace("/>", ">");
    let new = old.replace("<controller type=\"virtio-serial\" index=\"0\">", &new);
    assert_ne!(new, old);
    let after = finding(&read(&new));
    assert_eq!(after.state, State::Pass, "{after:?}");
}

#[test]
fn arguments_with_the_ports_that_are_advised_have_none_too_many() {
    let with = |ports: &str| {
        let text = format!(
            "qemu-system-x86_64 -accel kvm -device virtio-serial-pci,id=s{ports} \
             -chardev null,id=a -device virtserialport,bus=s.0,nr=5,chardev=a,name=agent"
        );
        finding(&domain::qemu::read(&Text::new("a file", text.into_bytes()), &NoFiles).unwrap())
    };
    let before = with("");
    assert_eq!((&before.state, advice(&before)), (&State::Warn, "max_ports=6"));
    assert_eq!(with(&format!(",{}", advice(&before))).state, State::Pass);
}
