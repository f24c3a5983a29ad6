use super::super::{HostSide, lint, rules_of};
use crate::{Finding, Fix, State};
use domain::{Form, Text};
use exits::Isa;
use host::{FunctionRole, PciFunction, XenDevice};
use proptest::prelude::*;

/// An HVM guest in which no rule fires.
const QUIET: &str = "name = 'a'\ntype = 'hvm'\nvcpus = 2\nvga = 'none'\n\
    disk = [ '/dev/vg/a,,hda', '/dev/vg/b,,xvde', '/root/image.iso,,hdc,cdrom' ]\nvif = [ 'bridge=xenbr0' ]\n";

/// For each rule, settings with which it fires and settings with which it does not, each appended to the
/// quiet guest.
const CASES: &[(&str, &[&str], &[&str])] = &[
    ("xl-type", &["type = 'pv'", "builder = 'generic'; type = 'pv'"], &["type = 'pvh'", "type = 'hvm'"]),
    ("xl-paging", &["hap = 0"], &["hap = 1", "hap = 0\ntype = 'pv'"]),
    ("xl-nested", &["nestedhvm = 1", "type = 'pvh'; nestedhvm = 1"], &["nestedhvm = 0"]),
    ("xl-altp2m", &["altp2m = 'mixed'", "altp2mhvm = 1"], &["altp2m = 'disabled'"]),
    ("xl-apic", &["apic = 0; vcpus = 1"], &["apic = 0", "apic = 1; vcpus = 1"]),
    ("xl-acpi", &["acpi = 0", "type = 'pvh'; acpi = 0"], &["acpi = 1"]),
    ("xl-vcpu-places", &["cpus = '3'", "cpus = [ '3', '3' ]"], &["cpus = '3-4'", "cpus = [ '3', '4' ]"]),
    (
        "xl-time-stamps",
        &["tsc_mode = 'always_emulate'", "tsc_mode = 1", "tsc_mode = 'native_paravirt'"],
        &["tsc_mode = 'native'", "tsc_mode = 0"],
    ),
    (
        "xl-missed-ticks",
        &["timer_mode = 'delay_for_missed_ticks'", "timer_mode = 0"],
        &["timer_mode = 'one_missed_tick_pending'", "timer_mode = 2"],
    ),
    ("xl-hpet", &["hpet = 1"], &["hpet = 0", "viridian = 1"]),
    (
        "xl-viridian",
        &[
            "viridian = 1",
            "viridian = [ 'base' ]",
            "viridian = [ 'all', '!stimer' ]",
            "viridian = [ 'defaults', 'reference_tsc' ]",
        ],
        &["viridian = 0", "viridian = [ 'all' ]", "viridian = [ 'defaults', 'reference_tsc', 'stimer' ]"],
    ),
    ("xl-platform-pci", &["xen_platform_pci = 0"], &["xen_platform_pci = 1"]),
    (
        "xl-network",
        &[
            "vif = [ 'model=e1000' ]",
            "vif = [ 'type=ioemu, model=rtl8139' ]",
            "type = 'pv'\nvif = [ 'model=e1000' ]",
        ],
        &["vif = [ 'type=vif' ]", "type = 'pvh'"],
    ),
    (
        "xl-disk",
        &[
            "disk = [ '/dev/a,,hda', '/dev/b,,hdb' ]",
            "disk = [ '/dev/a,,hda', 'vdev=sdb,target=/dev/b' ]",
            "disk = [ '/dev/a,,xvda', '/dev/b,,xvdd' ]",
            "hdtype = 'ahci'\ndisk = [ '/dev/a,,hda', '/dev/b,,xvdf' ]",
        ],
        &[
            "disk = [ '/dev/a,,hda', '/dev/b,,xvde', '/dev/c,,hde', '/dev/d,,xvdaa' ]",
            "hdtype = 'ahci'\ndisk = [ '/dev/a,,hda', '/dev/b,,xvdg' ]",
            "type = 'pvh'\ndisk = [ '/dev/a,,hda', '/dev/b,,hdb' ]",
        ],
    ),
    (
        "xl-disk-backend",
        &[
            "disk = [ '/images/a.qcow2,qcow2,xvda' ]",
            "disk = [ 'backendtype=qdisk,vdev=xvda,target=/dev/a' ]",
            "disk = [ '/images/a.img,,xvda' ]",
        ],
        &["disk = [ '/dev/a,raw,xvda' ]", "disk = [ 'backendtype=phy,vdev=xvda,target=/images/a.img' ]"],
    ),
    (
        "xl-pass-through",
        &[
            "pci = [ '03:10.0' ]\npassthrough = 'disabled'",
            "type = 'pv'\npci = [ '03:10.0' ]",
            "type = 'pvh'\npci = [ '03:10.0' ]",
        ],
        &["pci = [ '03:10.0' ]", "passthrough = 'disabled'"],
    ),
    ("xl-screen", &["vga = 'stdvga'", "vga = 'qxl'"], &["vga = 'none'", "type = 'pvh'"]),
    ("xl-usb", &["usb = 1\nusbdevice = [ 'tablet' ]", "usbdevice = 'tablet'", "usb = 1"], &["usb = 0"]),
];

fn findings(text: &str, host: &HostSide) -> Vec<Finding> {
    let vm = domain::xl::read(&Text::new("a.cfg", text)).unwrap();
    assert!(vm.doubts.is_empty(), "{text}: {:?}", vm.doubts);
    lint(&vm, host)
}

fn finding(rule: &str, text: &str, host: &HostSide) -> Finding {
    findings(&format!("{QUIET}{text}\n"), host).into_iter().find(|one| one.rule == rule).unwrap()
}

fn fixes(finding: &Finding) -> bool {
    matches!(finding.state, State::Warn | State::Fail)
}

#[test]
fn every_rule_has_cases_that_fire_and_cases_that_do_not() {
    let names: Vec<_> = rules_of(Form::Xl).map(|rule| rule.name).collect();
    assert_eq!(names, CASES.iter().map(|case| case.0).collect::<Vec<_>>());
    for (rule, fires, quiet) in CASES {
        for text in *fires {
            let found = finding(rule, text, &HostSide::default());
            assert!(fixes(&found), "{rule}, {text}: {found:?}");
            assert!(
                !found.found.is_empty() && !found.evidence.is_empty() && !found.fixes.is_empty(),
                "{found:?}"
            );
        }
        for text in *quiet {
            let found = finding(rule, text, &HostSide::default());
            assert!(!fixes(&found), "{rule}, {text}: {found:?}");
        }
    }
}

#[test]
fn a_guest_in_order_has_nothing_to_fix() {
    for found in findings(QUIET, &HostSide::default()) {
        assert_eq!(found.state, State::Pass, "{found:?}");
    }
}

#[test]
fn rules_say_why_and_what_says_so_in_one_line() {
    for rule in rules_of(Form::Xl) {
        assert!(rule.name.starts_with("xl-") && (20..=130).contains(&rule.why.len()), "{}", rule.name);
        assert!(!rule.why.ends_with('.') && rule.source.len() > 10, "{}", rule.name);
    }
}

#[test]
fn the_host_decides_what_is_called_how_and_whether_devices_can_be_given_away() {
    let intel = HostSide::of_vendor(Isa::Vmx);
    assert_eq!(finding("xl-type", "type = 'pvh'", &intel).found, "PVH, which can have APICv");
    let found = finding("xl-type", "type = 'pv'", &intel);
    assert_eq!(
        (found.state, found.found.as_str()),
        (State::Fail, "PV, without APICv whatever the host supports")
    );
    let of_amd = |kind: &str| {
        let found = finding("xl-type", &format!("type = '{kind}'"), &HostSide::of_vendor(Isa::Svm));
        assert_eq!(found.state, State::Pass);
        found.found
    };
    assert_eq!(of_amd("hvm"), "HVM; Xen uses no AVIC");
    assert_eq!(
        of_amd("pv"),
        "PV: Xen delivers its interrupts as events; on AMD Xen has no AVIC for other types either"
    );
    let without = HostSide { xen_iommu: Some(false), ..HostSide::default() };
    let found = finding("xl-pass-through", "pci = [ '03:10.0' ]", &without);
    assert_eq!((found.state, found.found.as_str()), (State::Fail, "Xen uses no IOMMU on this host"));
}

/// A host with a network card at 3b:00.0 that has two virtual functions, and a card without SR-IOV at
/// 5e:00.0.
fn with_functions() -> HostSide {
    let one = |address: &str, role: FunctionRole, driver: &str, ready| XenDevice {
        function: PciFunction { address: address.to_owned(), role, driver: Some(driver.to_owned()) },
        ready,
    };
    let of = || FunctionRole::Virtual { of: "0000:3b:00.0".to_owned() };
    let physical = |virtual_functions, possible| FunctionRole::Physical { virtual_functions, possible };
    let devices = vec![
        one("0000:3b:00.0", physical(2, 63), "ixgbe", true),
        one("0000:3b:10.0", of(), "pciback", true),
        one("0000:3b:10.2", of(), "ixgbevf", false),
        one("0000:5e:00.0", physical(0, 0), "pciback", true),
    ];
    HostSide { xen_iommu: Some(true), xen_devices: Some(devices), ..HostSide::default() }
}

#[test]
fn functions_are_told_apart_and_must_be_ready_for_a_guest() {
    let found = |pci: &str| {
        let found = finding("xl-pass-through", &format!("pci = [ {pci} ]"), &with_functions());
        (found.state.clone(), found.found.clone())
    };
    let virtual_one = "1 for an HVM guest; virtual functions: 0000:3b:10.0".to_owned();
    assert_eq!(found("'3b:10.0'"), (State::Pass, virtual_one.clone()));
    assert_eq!(found("'0000:3B:10.0@5,permissive=1'"), (State::Pass, virtual_one));
    assert_eq!(found("'5e:00.0'"), (State::Pass, "1 for an HVM guest".to_owned()));
    let (state, why) = found("'3b:10.0', '3b:10.2'");
    assert_eq!(state, State::Fail);
    assert_eq!(why, "0000:3b:10.2 is not ready for a guest: the driver ixgbevf of dom0 has it");
    assert_eq!(found("'3b:10.2,seize=1'").0, State::Pass);
    assert_eq!(found("'3b:10.2' ]\npci_seize = 1 #").0, State::Pass);
    assert_eq!(found("'3b:10.4'"), (State::Fail, "0000:3b:10.4 is not on this host".to_owned()));
    let (state, why) = found("'3b:00.0'");
    assert_eq!(state, State::Warn);
    assert_eq!(why, "0000:3b:00.0 is a physical function, whose virtual ones go with it");
    // Only xl knows which functions these are.
    assert_eq!(found("'3b:10.*'").0, State::Pass);
}

#[test]
fn what_is_advised_starts_a_guest_without_the_emulated_device() {
    let advised = |rule: &str, text: &str| match &finding(rule, text, &HostSide::default()).fixes[..] {
        [Fix::Advice(text)] => text.clone(),
        other => panic!("{other:?}"),
    };
    let disks = "disk = [ '/dev/a,,hda', '/dev/b,,xvdb' ]";
    assert_eq!(advised("xl-disk", disks), "vdev=xvde and so on for all but the first");
    let disks = format!("hdtype = 'ahci'\n{disks}");
    assert_eq!(advised("xl-disk", &disks), "vdev=xvdg and so on for all but the first");
    // libxl refuses usbversion together with usb or usbdevice.
    assert!(!advised("xl-usb", "usb = 1\nusbdevice = 'tablet'").contains("usbversion"));
}

#[test]
fn evidence_tells_the_line() {
    let found = finding("xl-paging", "hap = 0", &HostSide::default());
    assert_eq!((found.evidence[0].place.as_str(), found.evidence[0].value.as_str()), ("line 7", "hap = 0"));
    // Without a type the guest is PV.
    let found = findings("name = 'a'\n", &HostSide::default()).remove(0);
    assert_eq!(found.evidence[0].place, "type is not set");
}

proptest! {
    #[test]
    fn any_value_is_judged_without_a_panic(name in prop::sample::select(vec![
        "type", "hap", "viridian", "tsc_mode", "cpus", "pci", "usbdevice", "vga", "altp2m", "vcpus",
    ]), value in "[a-z0-9,^!=:./ -]{0,20}", list: bool) {
        let value = if list { format!("[ '{value}', '' ]") } else { format!("'{value}'") };
        if let Ok(vm) = domain::xl::read(&Text::new("a.cfg", format!("{QUIET}{name} = {value}\n"))) {
            prop_assert_eq!(lint(&vm, &HostSide::default()).len(), rules_of(Form::Xl).count());
        }
    }
}
