use super::*;
use crate::qmp::fake::Fake;
use host::vms::{Monitor, MonitorUse, Vcpu, Vm, Vmm};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn vm(monitors: Vec<Monitor>) -> Vm {
    let vcpu = |number, thread| Vcpu { number, fd: Some(9), thread: Some(thread), statistics_fd: None };
    Vm {
        pid: 40,
        vmm: Vmm::Qemu,
        name: "web".to_owned(),
        vm_fds: vec![8],
        vcpus: vec![vcpu(0, 41), vcpu(4, 42)],
        threads: vec![40, 41, 42],
        monitors,
        ..Vm::default()
    }
}

fn open() -> Vec<Monitor> {
    vec![Monitor { path: Some("/qmp".to_owned()), used: MonitorUse::Open }]
}

fn counters(values: &[(&str, u64)]) -> Counters {
    values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn read(root: &Path, vm: &Vm, timeout: Duration) -> VmStatistics {
    StatisticsSource::new(root, std::slice::from_ref(vm)).with_timeout(timeout).read().remove(0)
}

/// Answers like those of QEMU 10.0 on Linux 6.12.
fn qemu_10(command: &str, arguments: &Value) -> Result<Value, (&'static str, &'static str)> {
    let statistics = |exits: u64, halt: u64| {
        json!([
            { "name": "guest_mode", "value": false },
            { "name": "exits", "value": exits },
            { "name": "halt_wait_ns", "value": halt },
            { "name": "halt_wait_hist", "value": [0, 1] },
            { "name": "of_no_schema", "value": 1 },
        ])
    };
    Ok(match (command, arguments["target"].as_str()) {
        ("query-stats-schemas", _) => json!([
            { "provider": "kvm", "target": "vcpu", "stats": [
                { "name": "guest_mode", "unit": "boolean", "exponent": 0, "type": "instant" },
                { "name": "exits", "exponent": 0, "type": "cumulative" },
                { "name": "halt_wait_ns", "unit": "seconds", "base": 10, "exponent": -9, "type": "cumulative" },
                { "name": "halt_wait_hist", "unit": "seconds", "exponent": -9, "type": "log2-histogram" },
            ]},
            { "provider": "kvm", "target": "vm", "stats": [
                { "name": "pages_4k", "exponent": 0, "type": "instant" },
                { "name": "remote_tlb_flush", "exponent": 0, "type": "cumulative" },
            ]},
        ]),
        ("query-cpus-fast", _) => json!([
            { "thread-id": 41, "qom-path": "/machine/unattached/device[0]", "cpu-index": 0, "target": "x86_64" },
            { "thread-id": 42, "qom-path": "/machine/unattached/device[2]", "cpu-index": 1, "target": "x86_64" },
        ]),
        ("query-stats", Some("vm")) => json!([{ "provider": "kvm", "stats": [
            { "name": "pages_4k", "value": 5 }, { "name": "remote_tlb_flush", "value": 6 },
        ]}]),
        // The last vCPU is first in the answer.
        ("query-stats", Some("vcpu")) => json!([
            { "provider": "kvm", "stats": statistics(30, 7), "qom-path": "/machine/unattached/device[2]" },
            { "provider": "kvm", "stats": statistics(12, 1), "qom-path": "/machine/unattached/device[0]" },
        ]),
        _ => return Err(("CommandNotFound", "The command has not been found")),
    })
}

#[test]
fn counters_through_qmp_have_kvms_numbers_and_units() {
    let fake = Fake::qemu(2, qemu_10);
    let vm = vm(open());
    let mut source = StatisticsSource::new(fake.root(), std::slice::from_ref(&vm)).with_timeout(LONG);
    let found = source.read().remove(0);
    assert_eq!((found.origin, found.failures.as_slice()), (Some(Origin::Qmp), &[][..]));
    assert_eq!(found.total, counters(&[("exits", 42), ("halt_wait_ns", 8), ("remote_tlb_flush", 6)]));
    assert_eq!(found.vcpus[&0], counters(&[("exits", 12), ("halt_wait_ns", 1)]));
    assert_eq!(found.vcpus[&4], counters(&[("exits", 30), ("halt_wait_ns", 7)]));
    assert_eq!(found.units, BTreeMap::from([("halt_wait_ns".to_owned(), "ns".to_owned())]));
    assert_eq!(found.missing, [Missing::Reasons, Missing::HandlingTimes]);
    let again = source.read().remove(0);
    assert_eq!(again.since(&found).unwrap().total["exits"], 0);
    fake.end();
}

#[test]
fn threads_of_another_namespace_are_not_believed() {
    let fake = Fake::qemu(1, qemu_10);
    let mut vm = vm(open());
    vm.vcpus[1].thread = Some(77);
    let found = read(fake.root(), &vm, LONG);
    assert_eq!(found.vcpus.keys().collect::<Vec<_>>(), [&0, &1]);
    fake.end();
}

#[test]
fn each_failure_is_kept_with_its_cause() {
    let empty = tempfile::tempdir().unwrap();
    let causes =
        |found: &VmStatistics| found.failures.iter().map(|one| one.cause.clone()).collect::<Vec<_>>();

    let fake = Fake::qemu(1, |command, arguments| match command {
        "query-stats-schemas" => {
            Err(("CommandNotFound", "The command query-stats-schemas has not been found"))
        }
        _ => qemu_10(command, arguments),
    });
    let found = read(fake.root(), &vm(open()), LONG);
    assert_eq!((found.origin, found.total.len()), (None, 0));
    assert_eq!(causes(&found)[0], "QEMU 10.0.13 has no `query-stats`, which came with 7.1");
    assert!(causes(&found)[1].contains("no descriptor of statistics"), "{:?}", found.failures);
    assert!(causes(&found)[2].contains("mount -t debugfs"), "{:?}", found.failures);
    fake.end();

    let fake = Fake::qemu(1, |_, _| Ok(json!([])));
    let found = read(fake.root(), &vm(open()), LONG);
    assert!(causes(&found)[0].contains("Linux 5.14"), "{:?}", found.failures);
    fake.end();

    let fake = Fake::qemu(1, |_, _| Ok(json!({ "odd": 1 })));
    let found = read(fake.root(), &vm(open()), LONG);
    assert!(
        causes(&found)[0].starts_with("The answer of QEMU 10.0.13 to `query-stats-schemas`"),
        "{:?}",
        found.failures
    );
    fake.end();

    let libvirt = vec![Monitor { path: None, used: MonitorUse::Libvirt }];
    assert!(causes(&read(empty.path(), &vm(libvirt), LONG))[0].starts_with("libvirt is connected"));
    assert!(causes(&read(empty.path(), &vm(Vec::new()), LONG))[0].contains("-qmp unix:PATH"));
    let other = Vm { vmm: Vmm::Firecracker, ..vm(open()) };
    assert!(causes(&read(empty.path(), &other, LONG))[0].contains("only QEMU has QMP"));
}

fn in_debugfs(root: &Path, vm: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
    let home = root.join("sys/kernel/debug/kvm").join(vm);
    fs::create_dir_all(home.join("vcpu0")).unwrap();
    for (name, text) in files {
        fs::write(home.join(name), text).unwrap();
    }
    home
}

#[test]
fn a_taken_monitor_leads_to_debugfs() {
    use std::os::unix::fs::PermissionsExt;
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let fake = Fake::raw(move |_taken| assert!(ended.recv().is_err()));
    let files = [
        ("exits", "42\n"),
        ("halt_wait_ns", "9\n"),
        ("pages_4k", "3\n"),
        ("max_mmu_rmap_size", "3\n"),
        ("halt_wait_hist", "0\n"),
        ("mmu_rmaps_stat", "7\n"),
        ("odd", "text\n"),
        ("huge", "99999999999999999999\n"),
    ];
    let mut vm = vm(open());
    vm.debugfs = ["40-8", "40-9"].map(|name| in_debugfs(fake.root(), name, &files)).to_vec();
    for home in &vm.debugfs {
        fs::set_permissions(home.join("pages_4k"), fs::Permissions::from_mode(0o444)).unwrap();
    }
    let found = read(fake.root(), &vm, Duration::from_millis(80));
    assert_eq!(found.origin, Some(Origin::Debugfs));
    assert!(found.failures[0].cause.contains("another program is connected"), "{:?}", found.failures);
    assert_eq!(found.total, counters(&[("exits", 84), ("halt_wait_ns", 18)]));
    assert_eq!(found.units["halt_wait_ns"], "ns");
    assert_eq!(found.missing, [Missing::Reasons, Missing::HandlingTimes, Missing::Vcpus]);
    drop(end);
    fake.end();
}

#[test]
fn debugfs_without_the_vm_or_without_counters() {
    let root = tempfile::tempdir().unwrap();
    let mut vm = vm(Vec::new());
    vm.debugfs = vec![in_debugfs(root.path(), "40-8", &[])];
    assert!(read(root.path(), &vm, LONG).failures[2].cause.contains("has no known counter"));
    vm.debugfs.clear();
    assert!(read(root.path(), &vm, LONG).failures[2].cause.contains("has no directory of process 40"));
}

#[test]
fn a_later_process_with_the_vms_number_is_not_the_vm() {
    let root = tempfile::tempdir().unwrap();
    let mut vm = vm(Vec::new());
    vm.debugfs = vec![in_debugfs(root.path(), "40-8", &[("exits", "42\n")])];
    let thread = root.path().join("proc/40/task/40");
    fs::create_dir_all(&thread).unwrap();
    let started = |ticks: u64| {
        let before = "0 ".repeat(18);
        fs::write(thread.join("stat"), format!("40 (qemu) S {before}{ticks} 0\n")).unwrap();
    };
    let mut source = StatisticsSource::new(root.path(), std::slice::from_ref(&vm)).with_timeout(LONG);
    started(vm.start_ticks);
    assert_eq!(source.read().remove(0).total, counters(&[("exits", 42)]));
    started(vm.start_ticks + 1);
    let found = source.read().remove(0);
    assert_eq!((found.origin, found.total.len()), (None, 0));
    assert!(found.failures[2].cause.contains("process 40 is another one now"), "{:?}", found.failures);
}

#[test]
fn a_source_that_ends_is_replaced() {
    let fake = Fake::qemu(1, qemu_10);
    let mut vm = vm(open());
    vm.debugfs = vec![in_debugfs(fake.root(), "40-8", &[("exits", "50\n")])];
    let mut source = StatisticsSource::new(fake.root(), &[vm]).with_timeout(LONG);
    let first = source.read().remove(0);
    fs::remove_file(fake.path()).unwrap();
    let second = source.read().remove(0);
    assert_eq!((first.origin, second.origin), (Some(Origin::Qmp), Some(Origin::Debugfs)));
    assert!(second.since(&first).is_none(), "two sources are not compared");
    fake.end();
}

#[test]
fn descriptors_of_statistics_are_taken_and_checked() {
    // Otherwise Yama may forbid it to a child.
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    let mut vm = vm(Vec::new());
    vm.pid = i32::try_from(std::process::id()).unwrap();
    let file = tempfile::tempfile().unwrap();
    vm.vcpus.truncate(1);
    vm.vcpus[0].statistics_fd = Some(std::os::fd::AsRawFd::as_raw_fd(&file));
    let empty = tempfile::tempdir().unwrap();
    // A process that closes a duplicate of a file loses its lock of the file (fcntl_locking(2)): this one must close none.
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()));
    let is_locked = || fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.contains(&inode));
    let was_locked = is_locked();
    let cause = read(empty.path(), &vm, LONG).failures.remove(1).cause;
    assert!(cause.contains("is not the statistics of a vCPU any more"), "{cause}");
    assert_eq!(is_locked(), was_locked);
    vm.vcpus[0].statistics_fd = Some(1_000_000);
    let cause = read(empty.path(), &vm, LONG).failures.remove(1).cause;
    assert!(cause.contains("cannot be taken from process"), "{cause}");
}
