//! Cures of `doctor`: the commands of this program are applied to a copy of the host, which is then examined again.

use super::*;
use crate::examination::cases::{CASES, Case, Made, off, off_and_idle, with};
use crate::{Examination, Finding, Fix, State, examine};
use ::host::{CONTAINER_MARKS, Root, switch};
use std::collections::BTreeSet;

const HYGON: &str = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : HygonGenuine\ncpu family : 24\nmodel : 1\n\
    flags : svm npt avic\n== /sys/module/kvm_amd/parameters/avic\nY\n\
    == /sys/module/kvm_amd/parameters/enable_ipiv\nY\n== /proc/sys/kernel/osrelease\n6.18.3\n\
    == /proc/sys/kernel/version\n#1 SMP\n";
const ZEN3: &str = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n\
    flags : svm npt avic\n";
const ZEN3_ON: &str = "== /sys/module/kvm_amd/parameters/avic\nY\n";
const APICV_OFF: &str = "== /sys/module/kvm_intel/parameters/enable_apicv\nN\n\
    == /etc/modprobe.d/kvm.conf\noptions kvm_intel enable_apicv=0\n";

/// A host whose CPU has erratum 1235, and whose kernel does not handle it.
const ON_AT_THE_NEXT_LOAD: &str = "== /etc/modprobe.d/kvm.conf\noptions kvm_amd avic=1\n";

/// A host with SEV-SNP, beside which its kernel does not know that AVIC has to stay off.
const ON_BESIDE_SNP: &str = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\ncpu family : 25\n\
    model : 17\nflags : svm npt avic x2avic sev_snp\n== /sys/module/kvm_amd/parameters/avic\nN\n\
    == /proc/sys/kernel/osrelease\n6.12.9\n== /proc/sys/kernel/version\n#1 SMP\n";

/// Hosts with such cures that no case has.
fn more() -> [Made; 7] {
    [
        off(""),
        off_and_idle(),
        off(ZEN3_ON),
        with("zen2", HYGON),
        with("zen2", ON_AT_THE_NEXT_LOAD),
        with("zen4", ON_BESIDE_SNP),
        with("sapphire-rapids", APICV_OFF),
    ]
}

/// A copy of a host, with GRUB. What is told in a container is for the host.
fn copy(made: &Made) -> Host {
    let host = Host::of(&made.text());
    for mark in CONTAINER_MARKS.map(|mark| host.path(mark)).iter().filter(|mark| mark.exists()) {
        std::fs::remove_file(mark).unwrap();
    }
    let line = std::fs::read_to_string(host.path("/proc/cmdline")).unwrap_or_default();
    host.write("/usr/sbin/update-grub", "");
    host.write("/etc/default/grub", &format!("GRUB_CMDLINE_LINUX_DEFAULT=\"{}\"\n", line.trim()));
    host
}

/// Boots a host with the settings that it now has.
fn boot(host: &Host) {
    let grub = host.text("/etc/default/grub");
    host.write("/proc/cmdline", &format!("{}\n", grub.split('"').nth(1).unwrap()));
    let kernel = host.inspection().kernel;
    for (module, name, default) in [
        ("kvm_amd", "avic", None),
        ("kvm_amd", "enable_ipiv", None),
        ("kvm_intel", "enable_apicv", Some("1")),
    ] {
        let place = format!("/sys/module/{module}/parameters/{name}");
        let argument = kernel.arguments.get().and_then(|all| all.last(&format!("{module}.{name}")));
        let options =
            kernel.modprobe.iter().filter(|line| line.module == module && line.command == "options");
        let option = options.filter_map(|line| line.value(name)).next_back();
        let value = argument.flatten().or(option).or(default).and_then(switch);
        if let Some(on) = value.filter(|_| host.path(&place).exists()) {
            host.write(&place, if on { "Y\n" } else { "N\n" });
        }
    }
}

fn flat(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().flat_map(|finding| std::iter::once(finding).chain(flat(&finding.children))).collect()
}

/// The commands that switch interrupt virtualization, each with the rule that prints it.
fn cures(examination: &Examination) -> Vec<(String, String)> {
    let all = examination.sections.iter().flat_map(|section| flat(&section.findings));
    let told = all.flat_map(|finding| finding.fixes.iter().map(move |fix| (finding.rule.clone(), fix)));
    let told = told.filter_map(|(rule, fix)| match fix {
        Fix::Command(command) => Some((rule, command.clone())),
        _ => None,
    });
    let next = examination.conclusion.next.clone().map(|next| ("conclusion".to_owned(), next));
    let switches =
        |command: &str| ["exitless enable", "exitless disable"].iter().any(|one| command.starts_with(one));
    told.chain(next).filter(|(_, command)| switches(command)).collect()
}

fn wish(command: &str) -> Wish {
    let has = |word: &str| command.split(' ').any(|one| one == word);
    Wish {
        arm: if has("enable") { Arm::On } else { Arm::Off },
        part: if has("--device-interrupts") { Part::DeviceInterrupts } else { Part::Whole },
        persist: has("--persist"),
        reload: has("--reload"),
    }
}

#[test]
fn a_cure_ends_its_finding_and_nothing_then_tells_to_take_it_back() {
    let mut made_so = BTreeSet::new();
    for made in CASES.iter().map(|Case(_, fires, _)| *fires).chain(more()) {
        let found = made.inspect();
        // The arguments of Xen are not simulated.
        if found.xen.is_some() {
            continue;
        }
        for (rule, command) in cures(&examine(&found, &(made.sides)(), &[])) {
            let (host, wish) = (copy(&made), wish(&command));
            let read = || made.read(&Root::directory(host.root()));
            let plan = Plan::new(host.root(), &read(), wish);
            let told = format!("{rule}: {command}: {plan:?}");
            assert!(!plan.is_refused(), "{told}");
            let mut changes = Changes::begin(host.root(), Machine::new(&host), Vec::new()).unwrap();
            assert!(apply(&plan, &mut changes, &|| false).is_whole(), "{told}");
            boot(&host);

            let after = examine(&read(), &(made.sides)(), &[]);
            for (other, again) in cures(&after) {
                let next = self::wish(&again);
                assert!(other != rule || again != command, "it is told again: {told}");
                let is_opposite = next.part == wish.part && next.arm != wish.arm;
                assert!(!is_opposite, "{other} then tells {again}: {told}");
            }
            let all = after.sections.iter().flat_map(|section| flat(&section.findings));
            let against = all.filter(|one| one.rule == "iommu-posting-argument" && one.state == State::Warn);
            let is_without_posting = wish.part == Part::DeviceInterrupts && wish.arm == Arm::Off;
            assert!(!is_without_posting || against.count() == 0, "its argument is to be removed: {told}");
            made_so.insert(command);
        }
    }
    for command in [
        "exitless enable --persist --apply",
        "exitless enable --persist --reload --apply",
        "exitless disable --persist --apply",
        "exitless disable --device-interrupts --persist --apply",
    ] {
        assert!(made_so.contains(command), "no host is told {command}: {made_so:?}");
    }
}

#[test]
fn posting_that_was_switched_off_stays_off_when_avic_is_enabled() {
    let host = copy(&with("zen2", ZEN3));
    for (command, word) in [
        ("disable --device-interrupts --persist", true),
        ("enable --persist", true),
        ("enable --device-interrupts --persist", false),
    ] {
        let plan = plan(&host, wish(command));
        assert!(!plan.is_refused() && !plan.steps.is_empty(), "{command}: {plan:?}");
        assert!(make(&host, wish(command)).is_whole(), "{command}");
        boot(&host);
        assert_eq!(host.text("/proc/cmdline").contains("amd_iommu_intr=legacy"), word, "{command}");
    }
    assert_eq!(host.text("/sys/module/kvm_amd/parameters/avic"), "Y\n");
}
