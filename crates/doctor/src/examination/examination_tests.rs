use super::cases::{
    APICV_NOT_REMAPPED, CASES, Case, Made, NO_IR, NULL_SCHEDULER, active, below_kvm, changed, inhibited, off,
    off_and_idle, on, svm, vmx, with, without,
};
use super::*;
use crate::Fix;
use conclusions::activation::{IpiVirtualization, Mode, NoIpiVirtualization};
use exits::{InhibitReason, Isa};
use host::inspection::{Arguments, BuiltIn, CpuidLeaf, LogLine};
use host::{AbsenceKind, Fact};
use std::collections::BTreeSet;

fn flat(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().flat_map(|finding| std::iter::once(finding).chain(flat(&finding.children))).collect()
}

fn said<'a>(examination: &'a Examination, rule: &str) -> Vec<&'a Finding> {
    let all = examination.sections.iter().flat_map(|section| flat(&section.findings));
    all.filter(|finding| finding.rule == rule).collect()
}

fn examined(made: &Made) -> Examination {
    examine(&made.inspect(), &(made.sides)(), &[])
}

fn fixes(finding: &Finding) -> bool {
    matches!(finding.state, State::Fail | State::Warn)
}

#[test]
fn each_rule_has_a_host_on_which_it_fires_and_one_on_which_it_does_not() {
    for Case(rule, fires, quiet) in CASES {
        let (fires, quiet) = (examined(fires), examined(quiet));
        let found = said(&fires, rule);
        assert!(found.iter().any(|one| fixes(one)), "{rule} does not fire: {found:?}");
        let found = said(&quiet, rule);
        assert!(!found.is_empty() && !found.iter().any(|one| fixes(one)), "{rule} is not quiet: {found:?}");
    }
}

#[test]
fn no_rule_is_without_a_case_and_no_case_without_a_rule() {
    let rules: BTreeSet<&str> = rules().iter().map(|rule| rule.name).collect();
    assert_eq!(rules.len(), super::rules().len(), "two rules have one name");
    let rows: BTreeSet<&str> = KERNELS.iter().map(|row| row.rule).collect();
    let cases: BTreeSet<&str> = CASES.iter().map(|case| case.0).chain(rows).collect();
    assert_eq!(rules, cases);
}

#[test]
fn each_row_of_the_kernels_speaks_of_releases_before_it() {
    for row in KERNELS {
        let judged = |release: String| {
            let host = if row.isa == Some(Isa::Vmx) { on("sapphire-rapids") } else { on("zen4") };
            let mut host = host.inspect();
            if let Ok(svm) = &mut host.processor.svm.value {
                svm.x2avic_extended = true;
            }
            host.kernel.release = Fact::known(release.clone(), "/proc/sys/kernel/osrelease", release);
            host.kernel.version = Fact::default();
            // Judge only by the release.
            host.kernel.types = Fact::default();
            host.kernel.config = Fact::default();
            for parameters in host.kernel.parameters.values_mut() {
                parameters.retain(|name, _| !name.starts_with("enable_ipiv") && !name.contains("posted"));
            }
            let add = |module: &str, name: &str| (module.to_owned(), (name.to_owned(), Some("Y".to_owned())));
            let added = [add("kvm_amd", "sev_snp"), add("kvm_amd", "nested")];
            for (module, (name, value)) in added {
                host.kernel.parameters.entry(module).or_default().insert(name, value);
            }
            // One fault shows only with APICv off.
            if row.rule == super::kernels::TPR_THRESHOLD {
                let off = ("enable_apicv".to_owned(), Some("N".to_owned()));
                host.kernel.parameters.entry("kvm_intel".to_owned()).or_default().extend([off]);
            }
            host.kernel.arguments = Fact::known(Arguments::parse("intremap=posted_msi"), "/proc/cmdline", "");
            host.processor.erratum_1235 = Fact::known(true, "/proc/cpuinfo", "");
            examine(&host, &[], &[])
        };
        let (major, minor) = row.since;
        let (without, with) = (judged(row.last_without()), judged(format!("{major}.{minor}.3")));
        let (without, with) = (said(&without, row.rule), said(&with, row.rule));
        assert_eq!(with[0].state, State::Pass, "{}", row.rule);
        assert_ne!(without[0].state, State::Pass, "{}", row.rule);
        assert_eq!(fixes(without[0]), row.kind != Kind::Extra, "{}", row.rule);
    }
}

/// The rows of the kernels that concern a host, without the prefix of their rules.
fn rows(made: &Made) -> BTreeSet<&'static str> {
    let found = examined(made);
    let told = KERNELS.iter().filter(|row| !said(&found, row.rule).is_empty());
    told.filter_map(|row| row.rule.strip_prefix("kernel-")).collect()
}

#[test]
fn a_host_is_told_of_no_row_of_the_kernels_that_cannot_concern_it() {
    const OF_POSTING: &str = "irte-caching irte-cache-argument ga-log-blocking bug-avic-device-target \
        bug-avic-ga-log bug-avic-ga-log-resume bug-avic-ga-log-start bug-avic-ga-root bug-avic-ga-tag \
        bug-avic-ga-tag-update bug-avic-guest-irq bug-posting-stale";
    const OF_X2AVIC: &str = "avic-default x2avic-msrs bug-avic-ga-tag bug-x2avic-icr bug-x2avic-msr \
        bug-x2avic-msr-nested bug-x2avic-tlb";
    fn with_snp(host: &mut Inspection) {
        host.processor.flags.value.as_mut().unwrap().insert("sev_snp".to_owned());
    }
    fn with_snp_off(host: &mut Inspection) {
        with_snp(host);
        let off = ("sev_snp".to_owned(), Some("N".to_owned()));
        host.kernel.parameters.get_mut("kvm_amd").unwrap().extend([off]);
    }
    fn with_snp_refused(host: &mut Inspection) {
        with_snp(host);
        let text = "AMD-Vi: SNP: IOMMU SNP feature not enabled, SNP cannot be supported.".to_owned();
        host.log.lines.value.as_mut().unwrap().push(LogLine { microseconds: 0, text });
    }
    // The line of the log is overwritten.
    fn with_snp_refused_long_ago(host: &mut Inspection) {
        with_snp(host);
        host.log.whole = false;
        host.kernel.arguments = Fact::known(Arguments::parse("ro iommu=pt"), "/proc/cmdline", "ro iommu=pt");
    }
    fn with_snp_and_writes(host: &mut Inspection) {
        with_snp(host);
        let leaf = CpuidLeaf { leaf: 0x8000_001f, subleaf: 0, registers: [1 << 30, 0, 0, 0] };
        host.processor.cpuid.value.as_mut().unwrap().push(leaf);
    }
    let (amd, intel) = (on("zen4"), on("sapphire-rapids"));
    let erratum = |host: &mut Inspection| {
        host.processor.erratum_1235 = Fact::known(true, "/proc/cpuinfo", "cpu family : 23");
    };
    // A host, one that lacks something, and the rows that concern only the first.
    let table = [
        (amd, changed("zen4", |host| svm(host).x2avic = false), OF_X2AVIC),
        (changed("zen4", |host| svm(host).x2avic_extended = true), amd, "x2avic-4k"),
        (changed("zen4", erratum), amd, "avic-ipiv"),
        (
            amd,
            with("zen4", "== /sys/module/kvm_amd/parameters/nested\n0\n"),
            "bug-avic-leave-nested bug-avic-nested-restore bug-x2avic-msr-nested",
        ),
        (amd, without("zen4", &["/sys/class/iommu"]), OF_POSTING),
        (amd, with("zen4", "== /sys/class/iommu/ivhd3/amd-iommu/features\n25bf732fa2295a7e\n"), OF_POSTING),
        // KVM's parameter can be off although the host enforces SNP: the CPU's flag and the IOMMU decide.
        (with("zen4", "== /sys/module/kvm_amd/parameters/sev_snp\nY\n"), amd, "bug-avic-snp"),
        (changed("zen4", with_snp), amd, "bug-avic-snp"),
        (changed("zen4", with_snp_off), amd, "bug-avic-snp"),
        (changed("zen4", with_snp), changed("zen4", with_snp_refused), "bug-avic-snp"),
        (changed("zen4", with_snp), changed("zen4", with_snp_refused_long_ago), "bug-avic-snp"),
        (changed("zen4", with_snp), changed("zen4", with_snp_and_writes), "bug-avic-snp"),
        (
            intel,
            with("sapphire-rapids", "== /sys/module/kvm_intel/parameters/nested\nN\n"),
            "bug-apicv-nested bug-posted-nested-wakeup",
        ),
        (
            intel,
            without("sapphire-rapids", &["/sys/class/iommu"]),
            "posted-msi bug-posted-wakeup bug-posting-stale",
        ),
        (
            intel,
            changed("sapphire-rapids", |host| vmx(host).ipi_virtualization = Some(false)),
            "ipi-virtualization bug-ipi-virtualization-busy",
        ),
        (
            with("sapphire-rapids", "== /proc/cmdline\nro intremap=posted_msi\n"),
            intel,
            "bug-posted-msi bug-posted-msi-affinity bug-posted-msi-retrigger",
        ),
    ];
    for (host, other, wanted) in table {
        let wanted: BTreeSet<&str> = wanted.split_whitespace().collect();
        assert_eq!(&rows(&host) - &rows(&other), wanted);
    }
    let faults = |made: &Made| -> Vec<&'static str> {
        rows(made).into_iter().filter(|row| row.starts_with("bug-")).collect()
    };
    assert!(faults(&with("zen4", "== /sys/module/kvm_amd/parameters/avic\nN\n")).is_empty());
    let off = with("sapphire-rapids", "== /sys/module/kvm_intel/parameters/enable_apicv\nN\n");
    assert_eq!(faults(&off), ["bug-tpr-threshold"]);
}

#[test]
fn what_is_to_be_fixed_says_how_and_everything_says_why_and_by_whom() {
    let made = CASES.iter().flat_map(|case| [&case.1, &case.2]);
    for finding in made.map(examined).flat_map(|one| one.sections).flat_map(|section| section.findings) {
        for finding in flat(std::slice::from_ref(&finding)) {
            for text in [&finding.why, &finding.source, &finding.title, &finding.rule] {
                assert!(text.len() > 3 && !text.ends_with('.'), "{finding:?}");
            }
            match &finding.state {
                State::Skip(why) => assert!(!why.is_empty() && !why.ends_with('.'), "{finding:?}"),
                _ => assert!(!finding.found.is_empty() && !finding.found.ends_with('.'), "{finding:?}"),
            }
            let of_host = rules().iter().any(|rule| rule.name == finding.rule);
            if of_host && fixes(finding) && finding.rule != "vm-definition" {
                assert!(!finding.fixes.is_empty() && !finding.evidence.is_empty(), "{finding:?}");
            }
        }
    }
}

#[test]
fn a_guest_is_not_told_to_change_its_cpu_or_firmware() {
    // Rules over what only a host on bare metal has.
    const BARE: [&str; 6] = [
        "kvm-interrupt-virtualization",
        "kvm-erratum-1235",
        "iommu-snp",
        "contradiction-iommu-apic",
        "contradiction-iommu-units",
        "contradiction-x2avic",
    ];
    let mut told = 0;
    for Case(rule, fires, _) in CASES.iter().filter(|case| !BARE.contains(&case.0)) {
        let mut host = fires.inspect();
        if host.xen.is_some() {
            continue;
        }
        below_kvm(&mut host);
        let examination = examine(&host, &(fires.sides)(), &[]);
        for finding in said(&examination, rule) {
            let text = format!("{} {:?} {:?}", finding.found, finding.state, finding.fixes);
            let of_metal = [
                "firmware setup",
                "newer firmware",
                "another CPU",
                "this CPU",
                "CPU has no EPT",
                "CPU has no NPT",
            ];
            for wrong in of_metal {
                assert!(!text.contains(wrong), "{rule}: {text}");
            }
            told += 1;
        }
    }
    assert!(told > 0);
}

#[test]
fn children_of_what_failed_are_skipped_with_the_cause() {
    let examination = examined(&on("container"));
    let avic = said(&examination, "cpu-avic")[0];
    assert_eq!(avic.state, State::Fail);
    let State::Skip(cause) = &avic.children[0].state else { panic!("{avic:?}") };
    assert_eq!(
        (avic.children[0].rule.as_str(), cause.as_str()),
        ("cpu-x2avic", "AVIC: the CPU or its firmware offers no AVIC")
    );
    // The children of a passed check are judged.
    assert_eq!(said(&examined(&on("zen4")), "cpu-x2avic")[0].state, State::Pass);
}

#[test]
fn an_interrupt_of_an_assigned_device_belongs_beside_its_vcpu() {
    let host = on("sapphire-rapids").inspect();
    let assigned = host.interrupts.devices.get().unwrap().iter().find(|one| one.number == 44).unwrap();
    assert_eq!(assigned.kind, host::inspection::DeviceKind::Assigned);
    assert!(host.placements.iter().any(|place| place.cpu == 4 && place.interrupts == [44]));
    assert_eq!(said(&examine(&host, &[], &[]), "place-interrupts")[0].state, State::Pass);
}

#[test]
fn guests_of_xen_are_named_with_their_types() {
    let found = |made: &Made| said(&examined(made), "xen-guest-types")[0].found.clone();
    assert_eq!(found(&on("xen-lab")), "Xen uses no AVIC for any type: pvh (PVH), hvm (HVM)");
    assert_eq!(found(&on("xen-dom0")), "of a type that can have APICv: win (HVM)");
}

#[test]
fn what_root_alone_may_ask_xen_is_said_of_each_fact() {
    let denied = "xl-info xl-dmesg xl-list xl-list--l xl-vcpu-list xl-cpupool-list xl-pci-assignable-list \
        xenpm-get-cpufreq-para";
    let denied = denied.split_whitespace().map(|name| format!("\n== /exitless/commands/{name} error=13\n"));
    let (_, text) = host::fake::HOSTS.iter().find(|(name, _)| *name == "xen-dom0").unwrap();
    let host = Inspection::read(&host::fake::root(&format!("{text}{}", denied.collect::<String>()))).unwrap();
    let examination = examine(&host, &[], &[]);
    for rule in ["xen-hvm", "xen-apicv", "xen-guest-types", "xen-iommu", "xen-scheduler", "xen-vcpu-places"] {
        let found = said(&examination, rule);
        let State::Skip(why) = &found[0].state else { panic!("{rule}: {found:?}") };
        assert!(why.starts_with('`') && why.ends_with("run exitless as root"), "{rule}: {why}");
    }
}

#[test]
fn the_last_word_on_apicv_in_xens_arguments_counts() {
    const DISABLE: &str = "== /exitless/commands/xl-info\nvirt_caps : hvm\nxen_commandline : apicv=disable\n";
    const NO: &str = "== /exitless/commands/xl-info\nvirt_caps : hvm\nxen_commandline : apicv no-apicv x=1\n";
    const AGAIN: &str =
        "== /exitless/commands/xl-info\nvirt_caps : hvm\nxen_commandline : no-apicv apicv=1\n";
    for (info, word) in [(DISABLE, Some("apicv=disable")), (NO, Some("no-apicv")), (AGAIN, None)] {
        let examination = examined(&with("xen-dom0", info));
        let finding = said(&examination, "xen-apicv-argument")[0];
        match word {
            Some(word) => {
                let advice = format!("{:?}", finding.fixes);
                assert!(advice.contains(&format!("remove {word} from")), "{info}: {advice}");
                assert_eq!(
                    (&finding.state, examination.conclusion.outcome),
                    (&State::Fail, HostState::SwitchedOff)
                );
            }
            None => assert_eq!(finding.state, State::Pass, "{info}"),
        }
    }
}

#[test]
fn xen_posts_interrupts_of_devices_only_with_apicv() {
    const POSTS: &str = "== /exitless/commands/xl-dmesg\n(XEN) Intel VT-d Posted Interrupt enabled.\n";
    const NOT: &str = "== /exitless/commands/xl-dmesg\n(XEN) Intel VT-d Posted Interrupt not enabled.\n";
    const TAKEN_BACK: &str = "== /exitless/commands/xl-dmesg\n(XEN) Intel VT-d Posted Interrupt enabled.\n\
        (XEN) Intel VT-d Posted Interrupt is disabled for CPU-side Posted Interrupt is not enabled\n";
    let told = |log| {
        let finding = said(&examined(&with("xen-dom0", log)), "xen-posted-interrupts")[0].clone();
        (finding.state, format!("{:?}", finding.fixes))
    };
    assert_eq!(told(POSTS).0, State::Pass);
    let (state, fixes) = told(NOT);
    assert!(state == State::Warn && fixes.contains("add iommu=intpost"), "{fixes}");
    let (state, fixes) = told(TAKEN_BACK);
    assert!(
        state == State::Warn && fixes.contains("remove apicv=0") && !fixes.contains("intpost"),
        "{fixes}"
    );
}

#[test]
fn parents_are_rules_of_the_same_category() {
    let rules = rules();
    for rule in rules.iter().filter(|rule| !rule.parent.is_empty()) {
        let parent = rules.iter().find(|one| one.name == rule.parent).expect(rule.name);
        assert_eq!(parent.category, rule.category, "{}", rule.name);
    }
}

#[test]
fn a_line_in_a_file_is_not_offered_where_another_one_counts() {
    let offered = |more: &str| {
        let off = "== /sys/module/kvm_intel/parameters/enable_apicv\nN\n";
        let (_, text) = host::fake::HOSTS.iter().find(|(name, _)| *name == "sapphire-rapids").unwrap();
        let host = Inspection::read(&host::fake::root(&format!("{text}\n{off}{more}"))).unwrap();
        format!("{:?}", said(&examine(&host, &[], &[]), "kvm-interrupt-virtualization")[0].fixes)
    };
    let alone = offered("");
    assert!(
        alone.contains("exitless enable") && alone.contains(">> /etc/modprobe.d/kvm_intel.conf"),
        "{alone}"
    );
    let beside = offered("== /etc/modprobe.d/zz.conf\noptions kvm_intel enable_apicv=0\n");
    let change = "change enable_apicv=0 to enable_apicv=1 in /etc/modprobe.d/zz.conf:1";
    assert!(beside.contains("exitless enable") && beside.contains(change), "{beside}");
    assert!(!beside.contains("echo"), "{beside}");
}

#[test]
fn a_copy_without_devices_is_judged_by_its_module() {
    let host = super::cases::without("zen2", &["/dev/kvm"]).inspect();
    let examination = examine(&host, &[], &[]);
    let skipped = State::Skip("a copy of a host has no devices".to_owned());
    assert_eq!(said(&examination, "kvm-device")[0].state, skipped);
    assert_eq!(examination.conclusion.outcome, HostState::SwitchedOff);
}

#[test]
fn what_is_not_known_of_another_host_is_collected_there() {
    let next = |live: bool| {
        let mut host =
            Inspection::read(&host::fake::root("== /proc/sys/kernel/osrelease\n6.12.107\n")).unwrap();
        host.live = live;
        let conclusion = examine(&host, &[], &[]).conclusion;
        assert_eq!(conclusion.outcome, HostState::Unknown);
        conclusion.next.unwrap()
    };
    assert_eq!(next(true), "sudo exitless doctor");
    assert_eq!(next(false), "sudo exitless snapshot host.tar.zst");
}

#[test]
fn each_host_comes_to_its_conclusion() {
    let of = |name| examined(&on(name)).conclusion;
    let told = |name| {
        let conclusion = of(name);
        (conclusion.outcome, conclusion.next.unwrap_or_default())
    };
    let next = |text: &str| text.to_owned();
    // With AVIC its guests could hang.
    assert_eq!(told("zen2"), (HostState::SwitchedOff, next("")));
    // A module in use by a VM cannot be reloaded.
    let busy = examined(&off("")).conclusion;
    assert_eq!(busy.outcome, HostState::SwitchedOff);
    assert_eq!(busy.next.as_deref(), Some("exitless enable --persist --apply"));
    assert!(busy.sentence.contains("As VMs run, it can be enabled for the next boot; --reload"));
    let idle = examined(&off_and_idle()).conclusion;
    assert_eq!(idle.next.as_deref(), Some("exitless enable --persist --reload --apply"));
    assert_eq!(idle.sentence, "AVIC is available but off: no VM uses it.");
    assert_eq!(told("zen4"), (HostState::Unsure, next("exitless verify")));
    assert_eq!(told("ivy-bridge"), (HostState::Ready, next("exitless verify --provoke")));
    assert_eq!(told("sapphire-rapids").0, HostState::Unsure);
    assert_eq!(told("guest").0, HostState::NoVirtualization);
    assert_eq!(told("container").0, HostState::NoVirtualization);
    assert_eq!(told("lockdown").0, HostState::Unsure);
    assert_eq!(told("xen-dom0").0, HostState::Ready);
    assert_eq!(told("xen-lab"), (HostState::Unavailable, next("exitless stat --by vm,reason")));
    let of_xen = |rule: &str| {
        let Case(_, fires, _) = CASES.iter().find(|case| case.0 == rule).unwrap();
        let Conclusion { outcome, sentence, next } = examined(fires).conclusion;
        (outcome, sentence, next.unwrap_or_default())
    };
    let without_remapping = examined(&with("xen-dom0", APICV_NOT_REMAPPED));
    assert_eq!(said(&without_remapping, "xen-pass-through")[0].state, State::Fail);
    assert_eq!(without_remapping.conclusion.outcome, HostState::Ready);
    let scheduler = examined(&with("xen-dom0", NULL_SCHEDULER));
    assert_eq!(said(&scheduler, "xen-scheduler")[0].state, State::Fail);
    assert_eq!(scheduler.conclusion.outcome, HostState::Ready);
    let (outcome, sentence, _) = of_xen("xen-control");
    assert_eq!(outcome, HostState::Unknown);
    assert_eq!(
        sentence,
        "Xen cannot be asked from here: this is a guest of Xen, and not its control domain."
    );
    let (outcome, _, then) = of_xen("xen-apicv-argument");
    assert_eq!((outcome, then), (HostState::SwitchedOff, next("exitless enable --persist --apply")));
    for rule in ["xen-hvm", "xen-apicv"] {
        let (outcome, sentence, _) = of_xen(rule);
        assert_eq!(outcome, HostState::Unavailable);
        assert!(sentence.starts_with("Xen does not use interrupt virtualization: Xen "), "{sentence}");
    }
    let zen4 = on("zen4").inspect();
    assert_eq!(examine(&zen4, &active(), &[]).conclusion.outcome, HostState::Active);
    let found = examine(&zen4, &inhibited(), &[]);
    assert_eq!(found.conclusion.next.as_deref(), Some("exitless vm fix 5000"));
    assert!(found.conclusion.sentence.contains("by PIT_REINJ"), "{:?}", found.conclusion);
    let fixes = &said(&found, "vm-interrupt-virtualization")[0].fixes;
    assert!(
        fixes.iter().any(|fix| {
            matches!(fix, Fix::Advice(text) if text.starts_with("QEMU: -machine kernel-irqchip=split"))
        }),
        "{fixes:?}"
    );
    assert!(
        !fixes.iter().any(|fix| matches!(fix, Fix::Advice(text) if text.starts_with("libvirt"))),
        "{fixes:?}"
    );
}

#[test]
fn no_fix_of_the_definition_is_promised_to_a_vm_with_encrypted_memory() {
    let mut host = on("zen4").inspect();
    let mut side = inhibited().remove(0);
    side.activation.reasons[0].reason = Some(InhibitReason::Sev);
    let next = |host: &Inspection, sides: &[VmSide]| examine(host, sides, &[]).conclusion.next.unwrap();
    assert_eq!(next(&host, std::slice::from_ref(&side)), "exitless verify --vm 5000");
    let vms = host.running.vms.value.as_mut().unwrap();
    let mut other = vms[0].clone();
    other.vm.pid = 5001;
    vms.push(other);
    let other = VmSide { pid: 5001, ..inhibited().remove(0) };
    assert_eq!(next(&host, &[side, other]), "exitless vm fix 5001");
}

#[test]
fn another_vmm_is_not_told_qemus_settings() {
    let mut host = on("zen4").inspect();
    let vm = &mut host.running.vms.value.as_mut().unwrap()[0].vm;
    (vm.vmm, vm.management) = (host::vms::Vmm::Other, host::vms::Management::default());
    let found = examine(&host, &inhibited(), &[]);
    let fixes = &said(&found, "vm-interrupt-virtualization")[0].fixes;
    let [Fix::Advice(only)] = &fixes[..] else { panic!("{fixes:?}") };
    assert!(only.starts_with("any VMM: KVM_REINJECT_CONTROL"), "{only}");
    assert_eq!(found.conclusion.next.as_deref(), Some("exitless verify --vm 5000"));
}

#[test]
fn a_control_domain_of_xen_is_not_said_to_be_the_host() {
    for host in ["xen-dom0", "xen-lab"] {
        let found = examined(&on(host));
        for rule in ["vms-readable", "kernel-config-x2apic", "limits-host-apic-ids"] {
            assert!(said(&found, rule).is_empty(), "{host}: {rule}");
        }
    }
}

#[test]
fn a_guest_has_no_firmware_setup_with_an_iommu() {
    let advice = |made: &Made, rule: &str| format!("{:?}", said(&examined(made), rule)[0].fixes);
    for rule in ["iommu-present", "iommu-remapping"] {
        let told = advice(&on("guest"), rule);
        assert!(told.contains("underlying hypervisor") && !told.contains("firmware setup"), "{told}");
    }
    let remapping = advice(&with("zen4", NO_IR), "iommu-remapping");
    assert!(remapping.contains("firmware setup"), "{remapping}");
}

#[test]
fn a_built_in_module_without_a_device_found_no_hardware_outside_of_a_container() {
    let device = |container: bool| {
        let mut host = without("zen4", &["/dev/kvm"]).inspect();
        let built_in = BuiltIn(BTreeSet::from(["kvm_amd".to_owned()]));
        host.kernel.built_in = Fact::known(built_in, "modules.builtin", "");
        host.kvm.opened = Fact::absent(AbsenceKind::NotThere, "/dev/kvm cannot be opened; see dmesg");
        host.container = container.then(|| on("container").inspect().container).flatten();
        let found = examine(&host, &[], &[]);
        said(&found, "kvm-device")[0].clone()
    };
    assert!(device(false).found.contains("found no usable virtualization"));
    assert!(device(true).found.contains("in a container"));
}

#[test]
fn no_fix_names_a_value_of_lockdown_that_the_kernel_refuses() {
    let found = examined(&on("lockdown"));
    let finding = said(&found, "kernel-lockdown")[0];
    // security/lockdown/lockdown.c, `lockdown_param`, takes only integrity and confidentiality.
    let [Fix::Advice(text)] = finding.fixes.as_slice() else { panic!("{finding:?}") };
    assert!(text.contains("remove lockdown=") && !text.contains("lockdown=none"), "{text}");
}

#[test]
fn avic_that_is_switched_off_for_an_erratum_that_the_cpu_does_not_have_is_told_of() {
    let told = |made: &Made| {
        let found = examined(made);
        let fixes = &said(&found, "kvm-interrupt-virtualization")[0].fixes;
        fixes.iter().any(|fix| matches!(fix, Fix::Advice(text) if text.contains("erratum 1235")))
    };
    const OFF: &str =
        "== /sys/module/kvm_amd/parameters/avic\nN\n== /etc/modprobe.d/kvm.conf\noptions kvm_amd avic=0\n";
    assert!(told(&with("zen4", OFF)));
    assert!(!told(&with("zen2", OFF)), "its CPU has the erratum");
    assert!(!told(&with("zen4", "== /sys/module/kvm_amd/parameters/avic\nN\n")), "nobody switched it off");
}

#[test]
fn what_was_switched_off_for_a_device_can_be_switched_off_for_devices_alone() {
    let told = |host: &'static str, more: &'static str| {
        let found = examined(&with(host, more));
        let fixes = &said(&found, "kvm-interrupt-virtualization")[0].fixes;
        fixes
            .iter()
            .any(|fix| matches!(fix, Fix::Advice(text) if text.contains("disable --device-interrupts")))
    };
    assert!(told(
        "sapphire-rapids",
        "== /sys/module/kvm_intel/parameters/enable_apicv\nN\n== /etc/modprobe.d/kvm.conf\noptions kvm_intel enable_apicv=0\n"
    ));
    assert!(told("zen4", "== /sys/module/kvm_amd/parameters/avic\nN\n== /proc/cmdline\nro kvm_amd.avic=0\n"));
    assert!(!told("zen4", "== /sys/module/kvm_amd/parameters/avic\nN\n"), "nobody switched it off");
}

#[test]
fn options_count_however_they_are_written() {
    const OFF: &str = "== /sys/module/kvm_amd/parameters/avic\nN\n== /etc/modprobe.d/kvm.conf\n";
    for (options, agrees) in [
        ("options kvm_amd avic\n", false),
        ("options kvm-amd npt=1 av\\\nic=on\n", false),
        ("options kvm_amd avic=1 avic=0\n", true),
    ] {
        let made = with("zen4", Box::leak(format!("{OFF}{options}").into_boxed_str()));
        let state = said(&examined(&made), "contradiction-configured")[0].state.clone();
        assert_eq!(state == State::Pass, agrees, "{options}: {state:?}");
    }
}

#[test]
fn a_vendors_kernel_is_judged_by_what_is_in_it() {
    const ROCKY: &str =
        "== /proc/sys/kernel/osrelease\n5.14.0-570.12.1.el9_6.x86_64\n== /proc/sys/kernel/version\n#1 SMP\n";
    let state = |types: &str, rule: &str| {
        let text: &'static str = Box::leak(format!("{ROCKY}{types}").into_boxed_str());
        said(&examined(&with("zen4", text)), rule)[0].state.clone()
    };
    let types =
        "== /exitless/types\nvcpu_svm.x2avic_msrs_intercepted: yes\nkvm_x86_ops.x2apic_icr_is_split: no\n";
    assert_eq!(state(types, "kernel-x2avic"), State::Pass);
    // By its release the kernel is older than x2AVIC, but it has it nevertheless.
    assert_eq!(state(types, "kernel-bug-x2avic-icr"), State::Warn);
    let without = "== /exitless/types\nkvm_x86_ops.x2apic_icr_is_split: no\n";
    assert!(matches!(state(without, "kernel-bug-x2avic-icr"), State::Skip(_)));
    let State::Skip(why) = state("", "kernel-x2avic") else { panic!("nothing answered") };
    assert!(why.contains("Red Hat's kernel") && why.contains("rpm -qf --changelog"), "{why}");
    let State::Skip(why) = state(types, "kernel-bug-avic-cr8") else { panic!("no type tells of it") };
    assert!(why.contains("Red Hat's kernel"), "{why}");
}

#[test]
fn a_kernel_without_inhibits_is_not_said_to_inhibit_avic() {
    const AVIC: &str = "== /sys/module/kvm_amd/parameters/avic\nY\n== /sys/module/kvm_amd/parameters/nested\n1\n\
        == /proc/sys/kernel/version\n#1 SMP\n== /proc/sys/kernel/osrelease\n";
    let judged = |release: &str, rule: &str| {
        let text: &'static str = Box::leak(format!("{AVIC}{release}\n").into_boxed_str());
        let found = said(&examined(&with("zen2", text)), rule).first().map(|one| one.state.clone());
        found.is_some_and(|state| state == State::Warn)
    };
    for rule in ["kernel-avic-nested", "kernel-x2avic", "kvm-nested"] {
        assert!(judged("5.6.19", rule) && !judged("5.5.19", rule), "{rule}");
    }
}

#[test]
fn avic_before_5_18_is_at_fault_only_on_hosts_with_large_apic_ids() {
    const OLD: &str = "== /sys/module/kvm_amd/parameters/avic\nY\n== /proc/sys/kernel/version\n#1 SMP\n\
        == /proc/sys/kernel/osrelease\n5.15.20\n";
    let told = |largest: u32| {
        let mut host = with("zen2", OLD).inspect();
        host.processor.largest_apic_id = Fact::known(largest, "/proc/cpuinfo", "apicid");
        let examination = examine(&host, &[], &[]);
        said(&examination, "kernel-bug-avic-host-ids").first().map(|one| one.state.clone())
    };
    assert_eq!(told(300), Some(State::Warn));
    assert_eq!(told(255), None);
}

#[test]
fn the_posting_argument_in_force_is_told_on_both_vendors() {
    let legacy = Some("amd_iommu_intr=legacy");
    let nopost = Some("intremap=nosid,nopost");
    for (line, amd, intel) in [
        ("ro quiet", None, None),
        ("amd_iommu_intr=legacy", legacy, None),
        ("amd_iommu_intr=legacy amd_iommu_intr=vapic", None, None),
        ("intremap=nosid,nopost", nopost, nopost),
        ("intremap=nopost intremap=on", None, None),
        ("ro nointremap", Some("nointremap"), Some("nointremap")),
        ("ro -- intremap=nopost", None, None),
    ] {
        let told = |name: &'static str| {
            let mut host = on(name).inspect();
            host.kernel.arguments = Fact::known(Arguments::parse(line), "/proc/cmdline", line);
            let examination = examine(&host, &[], &[]);
            let found = said(&examination, "iommu-posting-argument")[0];
            (found.state == State::Warn).then(|| found.evidence[0].value.clone())
        };
        let told = [told("zen4"), told("sapphire-rapids")];
        assert_eq!(told, [amd, intel].map(|argument| argument.map(str::to_owned)), "{line}");
    }
}

#[test]
fn the_argument_that_switches_remapping_off_is_told_as_written() {
    for (line, seen, fix) in [
        ("ro nointremap", Some("nointremap"), "remove nointremap from"),
        ("intremap=off,nosid", Some("intremap=off,nosid"), "remove off from intremap=off,nosid"),
        ("intremap=off intremap=on", None, "firmware setup"),
    ] {
        let mut host = on("zen4").inspect();
        host.iommus.remapped = Fact::known(false, "/proc/interrupts", "none");
        host.kernel.arguments = Fact::known(Arguments::parse(line), "/proc/cmdline", line);
        let examination = examine(&host, &[], &[]);
        let found = said(&examination, "iommu-remapping")[0];
        let told = found.evidence.iter().find(|one| one.place == "/proc/cmdline").map(|one| &*one.value);
        assert_eq!(told, seen, "{line}");
        assert!(matches!(&found.fixes[..], [Fix::Advice(text)] if text.contains(fix)), "{:?}", found.fixes);
    }
}

/// The fixes of a host with AVIC off.
fn fixes_with_avic_off(more: &str) -> Vec<String> {
    let text: &'static str =
        Box::leak(format!("== /sys/module/kvm_amd/parameters/avic\nN\n{more}").into_boxed_str());
    let examination = examined(&off(text));
    let all = examination.sections.iter().flat_map(|section| flat(&section.findings));
    let of_kvm = |one: &&Finding| one.rule.starts_with("kvm-") || one.rule == "contradiction-configured";
    let fixes = all.filter(of_kvm).flat_map(|one| &one.fixes);
    fixes.map(|fix| format!("{fix:?}")).chain(examination.conclusion.next).collect()
}

#[test]
fn a_module_that_vms_use_is_not_to_be_loaded_again() {
    let fixes = |made: &Made| format!("{:?}", said(&examined(made), "kvm-interrupt-virtualization")[0].fixes);
    let options = "== /etc/modprobe.d/kvm.conf\noptions kvm_amd avic=0\n";
    let busy = [fixes(&off("")), fixes(&off(options))];
    assert!(busy.iter().all(|fixes| !fixes.contains("modprobe -r")), "{busy:?}");
    assert!(
        busy[1].contains("in /etc/modprobe.d/kvm.conf:1, then stop all VMs and reload kvm_amd"),
        "{busy:?}"
    );
    assert!(fixes(&off_and_idle()).contains("modprobe -r"));
}

#[test]
fn an_argument_of_the_kernel_is_changed_at_the_next_boot() {
    let fixes = fixes_with_avic_off("== /proc/cmdline\nro kvm_amd.avic=0\n");
    let change = "change kvm_amd.avic=0 to kvm_amd.avic=1 in the kernel's arguments and reboot";
    assert!(fixes.iter().any(|fix| fix.contains(change)), "{fixes:?}");
    assert!(!fixes.iter().any(|fix| fix.contains("in /proc/cmdline")), "{fixes:?}");
}

#[test]
fn a_module_in_the_kernels_image_is_neither_loaded_again_nor_given_options() {
    let built_in = "== /lib/modules/6.1.0-25-amd64/modules.builtin\nkernel/arch/x86/kvm/kvm-amd.ko\n";
    for word in ["nested=1", "avic=0", "avic=1"] {
        let options = format!("== /etc/modprobe.d/kvm.conf\noptions kvm_amd {word}\n");
        let fixes = fixes_with_avic_off(&format!("{built_in}{options}"));
        for wanted in ["exitless enable --persist --apply", "add kvm_amd.avic=1 to the kernel's arguments"] {
            assert!(fixes.iter().any(|fix| fix.contains(wanted)), "{fixes:?}");
        }
        for useless in ["--reload", "/etc/modprobe.d", "modprobe -r"] {
            assert!(!fixes.iter().any(|fix| fix.contains(useless)), "{fixes:?}");
        }
    }
}

#[test]
fn interrupts_that_cannot_be_moved_or_never_fire_are_none_to_move() {
    let told = |name: &str, counts: &str, affinity: &str| {
        let text = format!(
            "== /proc/interrupts\n            CPU0       CPU1\n  90:  {counts}  IR-PCI-MSI 50331650-edge      {name}\n\
             == /proc/irq/90/smp_affinity_list\n{affinity}\n== /proc/irq/90/effective_affinity_list\n9\n"
        );
        let examination = examined(&with("zen2", Box::leak(text.into_boxed_str())));
        let found = said(&examination, "place-interrupts")[0].clone();
        (found.state, format!("{:?}", found.fixes), format!("{:?}", found.evidence))
    };
    let (state, _, evidence) = told("nvme0q3", "5 900", "9");
    assert!(state == State::Pass && evidence.contains("I/O that starts on its CPU"), "{evidence}");
    for (name, affinity) in [("nvme0q3", "9"), ("nvme0q3", "8-11"), ("mlx5_comp0@pci:0000:40:00.0", "9")] {
        assert_eq!(told(name, "0 0", affinity).0, State::Pass, "{name}");
    }
    let (state, fixes, _) = told("nvme0q3", "5 900", "8-11");
    assert!(state == State::Warn && fixes.contains("managed_irq") && !fixes.contains("/proc/irq"), "{fixes}");
    for name in ["mlx5_comp0@pci:0000:40:00.0", "nvme0q0"] {
        let (state, fixes, _) = told(name, "5 900", "9");
        assert!(state == State::Warn && fixes.contains("/proc/irq/N/smp_affinity_list"), "{name}: {fixes}");
        assert!(!fixes.contains("managed_irq"), "{fixes}");
    }
}

#[test]
fn a_user_of_a_container_is_told_to_be_root_in_it() {
    let status = "== /proc/self/status\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n";
    let text = format!("{}{status}", super::cases::POD);
    let examination = examined(&with("zen4", Box::leak(text.into_boxed_str())));
    let found = said(&examination, "kernel-container")[0];
    assert!(
        found.state == State::Warn && found.found.contains("its user is without CAP_SYS_PTRACE"),
        "{found:?}"
    );
    assert_eq!(found.fixes, [Fix::Advice("run as root in the container".to_owned())]);
}

/// The fixes of a rule on the Zen 4 host with these entries.
fn fixes_of(rule: &str, entries: &str) -> String {
    let text: &'static str = Box::leak(entries.to_owned().into_boxed_str());
    format!("{:?}", said(&examined(&with("zen4", text)), rule)[0].fixes)
}

#[test]
fn only_what_is_configured_is_to_be_removed() {
    const VNMI: &str = "== /sys/module/kvm_amd/parameters/vnmi\nN\n";
    let options = |word| format!("{VNMI}== /etc/modprobe.d/zz.conf\noptions kvm_amd {word}\n");
    let set = fixes_of("kvm-vnmi", &options("vnmi=0"));
    assert!(set.contains("remove vnmi=0 from /etc/modprobe.d/zz.conf:1, and reload kvm_amd"), "{set}");
    for unset in [VNMI.to_owned(), options("nested=1")] {
        let fixes = fixes_of("kvm-vnmi", &unset);
        assert!(fixes.contains("nothing configures vnmi=0") && !fixes.contains("remove"), "{fixes}");
    }
    // KVM clears it with virtual GIF.
    let cleared = format!("{VNMI}== /sys/module/kvm_amd/parameters/vgif\nN\n");
    assert_eq!(fixes_of("kvm-vnmi", &cleared), "[]");
    // The Zen 4 host has avic=1 in a file.
    let avic = fixes_of("kvm-interrupt-virtualization", "== /sys/module/kvm_amd/parameters/avic\nN\n");
    assert!(avic.contains("has avic=1 already") && !avic.contains("echo"), "{avic}");
}

#[test]
fn on_cpus_with_erratum_1235_avic_is_only_to_be_enabled_with_ipis_left_out() {
    let fixes = |text, rule| said(&examined(&with("zen2", text)), rule)[0].fixes.clone();
    let handled = "== /proc/sys/kernel/osrelease\n6.18.3\n== /proc/sys/kernel/version\n#1 SMP\n";
    let enable = Fix::Command("exitless enable --persist --apply".to_owned());
    assert_eq!(fixes(handled, "kvm-interrupt-virtualization"), [enable]);
    let at_the_next_load = "== /etc/modprobe.d/kvm.conf\noptions kvm_amd avic=1\n";
    let disable = Fix::Command("exitless disable --persist --apply".to_owned());
    assert_eq!(fixes(at_the_next_load, "contradiction-configured"), [disable]);
}

#[test]
fn avic_that_sev_snp_rules_out_is_not_to_be_enabled() {
    const OFF: &str = "== /sys/module/kvm_amd/parameters/avic\nN\n== /proc/sys/kernel/version\n#1 SMP\n";
    const CPUID: &str = "== /exitless/cpuid\n\
        0x00000000 0x00: eax=0x00000010 ebx=0x68747541 ecx=0x444d4163 edx=0x69746e65\n\
        0x80000000 0x00: eax=0x80000028 ebx=0x68747541 ecx=0x444d4163 edx=0x69746e65\n\
        0x80000001 0x00: eax=0x00a10f11 ebx=0x40000000 ecx=0x75c237ff edx=0x2fd3fbff\n\
        0x8000000a 0x00: eax=0x00000001 ebx=0x00008000 ecx=0x00000000 edx=0x1ebfbcff\n";
    const LOG: &str = "== /exitless/dmesg\n6,0,0,-;\n\
        4,700,1200000,-;kvm_amd: AVIC disabled: missing HvInUseWrAllowed on SNP-enabled system\n";
    let may_write = |eax: u32| {
        format!("{CPUID}0x8000001f 0x00: eax={eax:#010x} ebx=0x00000000 ecx=0x00000000 edx=0x00000000\n")
    };
    let (forbids, allows) = (may_write(0x10), may_write(0x4000_0010));
    // A release, further files, and whether AVIC must stay off.
    let table = [
        ("6.12.9", "", true),
        ("6.12.9", forbids.as_str(), true),
        ("6.12.9", allows.as_str(), false),
        ("6.14.2", "", false),
        ("6.14.2", forbids.as_str(), true),
        ("6.14.2", allows.as_str(), false),
        ("6.14.2", LOG, true),
    ];
    let (_, text) = host::fake::HOSTS.iter().find(|(name, _)| *name == "zen4").unwrap();
    for (release, more, stays_off) in table {
        let files = format!("{text}\n{OFF}== /proc/sys/kernel/osrelease\n{release}\n{more}");
        let mut host = Inspection::read(&host::fake::root(&files)).unwrap();
        host.processor.flags.value.as_mut().unwrap().insert("sev_snp".to_owned());
        let examination = examine(&host, &[], &[]);
        let found = said(&examination, "kvm-interrupt-virtualization")[0];
        let state = if stays_off { State::Warn } else { State::Fail };
        assert_eq!(found.state, state, "{release} {more}: {found:?}");
        let enables = format!("{:?}", found.fixes).contains("exitless enable");
        assert_eq!(enables, !stays_off, "{release} {more}: {found:?}");
        // The Zen 4 host has avic=1 in a file.
        let configured = said(&examination, "contradiction-configured")[0];
        let disables = configured.fixes == [Fix::Command("exitless disable --persist --apply".to_owned())];
        assert_eq!(disables, stays_off, "{release} {more}: {configured:?}");
        assert_eq!(examination.conclusion.next.is_none(), stays_off, "{:?}", examination.conclusion);
        let quotes = found.evidence.iter().any(|one| one.value.contains("missing HvInUseWrAllowed"));
        assert_eq!(quotes, more == LOG, "{found:?}");
    }
}

#[test]
fn an_iommu_that_rules_sev_snp_out_is_known_without_the_first_lines_of_the_log() {
    const OFF: &str = "== /sys/module/kvm_amd/parameters/avic\nN\n== /proc/sys/kernel/version\n#1 SMP\n\
                       == /proc/sys/kernel/osrelease\n6.12.9\n== /exitless/dmesg\n6,9000,9000,-;vfio-pci: reset\n";
    let (_, text) = host::fake::HOSTS.iter().find(|(name, _)| *name == "zen4").unwrap();
    for (line, is_barred) in [
        ("ro", true),
        ("ro iommu=pt", false),
        ("ro iommu=pt iommu=nopt", true),
        ("ro iommu.passthrough=1", false),
        ("ro iommu=pt iommu.passthrough=0", true),
        ("ro iommu=soft,off", false),
    ] {
        let files = format!("{text}\n{OFF}== /proc/cmdline\n{line}\n");
        let mut host = Inspection::read(&host::fake::root(&files)).unwrap();
        host.processor.flags.value.as_mut().unwrap().insert("sev_snp".to_owned());
        assert!(!host.log.whole);
        let found = examine(&host, &[], &[]);
        let state = if is_barred { State::Warn } else { State::Fail };
        assert_eq!(said(&found, "kvm-interrupt-virtualization")[0].state, state, "{line}");
    }
}

#[test]
fn vfio_is_not_told_to_refuse_all_devices() {
    let unsafe_on = "== /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts\nY\n";
    let rule = "iommu-unsafe-interrupts";
    assert!(fixes_of(rule, unsafe_on).contains("echo N >"));
    let without = fixes_of(rule, &format!("{unsafe_on}{NO_IR}"));
    assert!(without.contains("first have interrupts remapped") && !without.contains("echo"), "{without}");

    let container_off = "== /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts\nN\n";
    let iommufd_on = unsafe_on.replace("vfio_iommu_type1", "iommufd");
    let fixes = fixes_of(rule, &format!("{container_off}{iommufd_on}"));
    assert!(fixes.contains("echo N > /sys/module/iommufd/"), "{fixes}");
    assert!(fixes.contains("of iommufd from modprobe.d") && !fixes.contains("vfio_iommu_type1"), "{fixes}");
}

#[test]
fn apicv_is_on_without_flexpriority_and_nothing_denies_it() {
    const OFF: &str = "== /sys/module/kvm_intel/parameters/flexpriority\nN\n\
                       == /sys/module/kvm_intel/parameters/enable_apicv\nY\n";
    let examination = examined(&with("ivy-bridge", OFF));
    assert_eq!(said(&examination, "kvm-flexpriority")[0].state, State::Warn);
    assert_eq!(said(&examination, "kvm-interrupt-virtualization")[0].state, State::Pass);
    let all = examination.sections.iter().flat_map(|section| flat(&section.findings));
    assert!(all.filter(|one| one.state == State::Warn).all(|one| !one.why.contains("APICv is off")));
}

#[test]
fn ipis_exit_where_avic_only_delivers() {
    let mut side = active().remove(0);
    side.activation.mode = Some(Mode::HybridAvic);
    side.ipi_virtualization = IpiVirtualization::Off(NoIpiVirtualization::HybridAvic);
    let mut host = on("zen4").inspect();
    let examination = examine(&host, std::slice::from_ref(&side), &[]);
    let found = said(&examination, "vm-ipis")[0];
    assert_eq!(found.state, State::Warn);
    assert!(found.found.contains("x2APIC") && found.evidence[0].value.contains("only for delivery"));
    assert_eq!(found.fixes, [Fix::Advice("QEMU: -cpu ...,x2apic=off".to_owned())]);

    let vm = &mut host.running.vms.value.as_mut().unwrap()[0].vm;
    (vm.vmm, vm.management.manager) = (host::vms::Vmm::Firecracker, host::vms::Manager::Firecracker);
    let examination = examine(&host, &[side], &[]);
    let [Fix::Managed(only)] = &said(&examination, "vm-ipis")[0].fixes[..] else { panic!("{examination:?}") };
    assert!(only.changes[0].starts_with("PUT /cpu-config"), "{only:?}");
}

#[test]
fn a_chosen_vm_is_the_only_one_that_is_told_of() {
    let host = on("sapphire-rapids").inspect();
    let pids: Vec<i32> = host.running.vms.get().unwrap().iter().map(|vm| vm.vm.pid).collect();
    let vms = |chosen: &[i32]| {
        let sections = examine(&host, &[], chosen).sections;
        sections.iter().filter(|section| section.title.starts_with("VM ")).count()
    };
    assert_eq!((vms(&[]), vms(&pids[..1])), (pids.len(), 1));
}

#[test]
fn nothing_is_known_of_an_empty_host_and_nothing_is_wrong_with_it() {
    let examination = examine(&Inspection::default(), &[], &[]);
    assert_eq!((examination.summary.fail, examination.summary.pass), (0, 0));
    assert_eq!(examination.conclusion.outcome, HostState::Unknown);
}
