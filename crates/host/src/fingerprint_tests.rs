use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Writes files under a new root; paths are those of a running host.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = under(root.path(), path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

const EPYC: &[(&str, &str)] = &[
    ("/proc/sys/kernel/osrelease", "6.12.107-cloud-amd64\n"),
    ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC\n"),
    ("/proc/sys/kernel/arch", "x86_64\n"),
    (
        "/proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 17\nmodel name\t: AMD EPYC 9J14\n\
         stepping\t: 1\nmicrocode\t: 0xa101148\nflags\t: fpu svm avic x2avic npt\n\n",
    ),
    ("/sys/devices/system/cpu/online", "0-191\n"),
    ("/proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n"),
    ("/sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
    ("/sys/module/kvm_amd/parameters/avic", "N\n"),
    ("/sys/module/kvm_amd/parameters/npt", "Y\n"),
    ("/proc/cmdline", "root=/dev/sda1 quiet\n"),
    ("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n"),
    ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
];

#[test]
fn a_whole_host() {
    let root = host(EPYC);
    let print = Fingerprint::read(root.path()).unwrap();
    assert_eq!(print.kernel(), Some(KernelVersion::new(6, 12)));
    assert_eq!(print.online_cpus, Some(192));
    assert_eq!(print.memory_mib, Some(16_000));
    assert_eq!(print.parameter("kvm_amd", "avic"), Some("N"));
    assert_eq!(print.lockdown.as_deref(), Some("integrity"));
    assert_eq!(print.cpu.as_ref().unwrap().hypervisor, Some(false));
    assert_eq!(print.virtualization, None);
    assert_eq!(print.missing, Vec::<String>::new());
}

#[test]
fn an_empty_tree_gives_causes_and_no_error() {
    let root = host(&[]);
    let print = Fingerprint::read(root.path()).unwrap();
    assert_eq!(print.kernel(), None);
    let names: Vec<_> = print.missing.iter().filter_map(|line| line.split_once(": ")).map(|p| p.0).collect();
    for field in ["kernel_release", "cpu", "online_cpus", "memory_mib", "cmdline", "lockdown", "modules"] {
        assert!(names.contains(&field), "{field} in {names:?}");
    }
    assert!(print.missing.iter().any(|line| line.contains("proc/cmdline")));
}

#[test]
fn a_missing_root_is_an_error() {
    let root = host(&[]);
    let error = Fingerprint::read(&root.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, Error::Root { .. }));
}

#[test]
fn odd_content_is_a_cause_that_quotes_it() {
    let root = host(&[("/proc/meminfo", "MemTotal: much\n")]);
    let print = Fingerprint::read(root.path()).unwrap();
    let line = print.missing.iter().find(|line| line.starts_with("memory_mib")).unwrap();
    assert!(line.contains("MemTotal: much"), "{line}");
}

#[test]
fn a_guest_says_what_is_below() {
    let root = host(&[
        ("/proc/cpuinfo", "processor : 0\nflags : svm hypervisor\n"),
        ("/sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("/sys/class/dmi/id/product_name", "Standard PC\n"),
    ]);
    let print = Fingerprint::read(root.path()).unwrap();
    assert_eq!(print.virtualization.as_deref(), Some("QEMU Standard PC"));
    assert_eq!(print.architecture.as_deref(), Some("x86_64"));
    assert_eq!(print.online_cpus, Some(1));
}

#[test]
fn a_control_domain_is_told_apart_by_the_arguments_of_its_xen() {
    let with = |arguments: &str| {
        let info = format!("xen_version            : 4.20.1\nxen_commandline        : {arguments}\n");
        let root = host(&[("/proc/xen/capabilities", "control_d\n"), ("/exitless/commands/xl-info", &info)]);
        Fingerprint::read(root.path()).unwrap()
    };
    let (before, after) = (with("console=com1"), with("console=com1 apicv=0"));
    let of = |arguments: &str| Some(arguments.to_owned());
    assert_eq!(before.hypervisor.as_ref().and_then(|xen| xen.version.as_deref()), Some("4.20.1"));
    assert_eq!(
        before.differences(&after),
        [("hypervisor.command_line".to_owned(), of("console=com1"), of("console=com1 apicv=0"))]
    );
    assert_eq!(Fingerprint::read(host(EPYC).path()).unwrap().hypervisor, None);
}

#[test]
fn differences_name_the_field() {
    let root = host(EPYC);
    let before = Fingerprint::read(root.path()).unwrap();
    fs::write(under(root.path(), "/sys/module/kvm_amd/parameters/avic"), "Y\n").unwrap();
    fs::remove_file(under(root.path(), "/proc/cmdline")).unwrap();
    let after = Fingerprint::read(root.path()).unwrap();
    assert_eq!(
        before.differences(&after),
        [
            ("cmdline".to_owned(), Some("root=/dev/sda1 quiet".to_owned()), None),
            ("modules.kvm_amd.avic".to_owned(), Some("N".to_owned()), Some("Y".to_owned())),
        ]
    );
    assert!(before.differences(&before).is_empty());
}

#[test]
fn the_tsc_is_the_same_clock_before_its_frequency_is_refined() {
    let root = host(EPYC);
    let late = Fingerprint::read(root.path()).unwrap();
    let of = |clock: &str| Fingerprint { clocksource: Some(clock.to_owned()), ..late.clone() };
    assert!(of("tsc-early").differences(&late).is_empty());
    assert_eq!(of("hpet").differences(&late).len(), 1);
}

#[test]
fn json_reads_back() {
    let root = host(EPYC);
    let print = Fingerprint::read(root.path()).unwrap();
    let json = serde_json::to_string(&print).unwrap();
    assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), print);
}

#[test]
fn this_machine_does_not_fail() {
    let print = Fingerprint::read(Path::new("/")).unwrap();
    assert!(print.kernel_release.is_some(), "{:?}", print.missing);
}

#[test]
fn cpu_lists() {
    assert_eq!(count_cpus("0"), Some(1));
    assert_eq!(count_cpus("0-3,6"), Some(5));
    assert_eq!(count_cpus("3-0"), None);
    assert_eq!(count_cpus(""), None);
}

proptest! {
    #[test]
    fn no_list_panics(text in "[0-9,-]{0,24}") {
        let _ = count_cpus(&text);
    }
}
