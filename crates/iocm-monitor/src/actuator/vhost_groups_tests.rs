//! Threads in control groups as libvirt lays them out: `emulator`, `vcpuN` and `iothreadN` below the VM's.

use super::tests::{Kernel, cpus_of, host, run, until_looked_for, vm};
use super::*;
use crate::{Monitor, Settings};
use host::fake::unpack;
use knobs::{Restore, restore};
use std::fmt::Write as _;
use std::fs;

const GROUPS: [(&str, &[i32]); 4] =
    [("emulator", &[4000, 4004]), ("vcpu0", &[4001]), ("vcpu1", &[4002]), ("iothread1", &[4003])];

/// The VM 4000. Each of its groups may use all four CPUs.
fn by_libvirt() -> String {
    let mut text = vm(4000, "web", false, "0-3");
    text += "== /sys/fs/cgroup/machine/4000/cpuset.cpus.effective\n0-3\n";
    for (name, threads) in GROUPS {
        let home = format!("/sys/fs/cgroup/machine/4000/{name}");
        let inside: String = threads.iter().map(|tid| format!("{tid}\n")).collect();
        let _ = write!(
            text,
            "== {home}/cpuset.cpus\n\n== {home}/cpuset.cpus.effective\n0-3\n== {home}/cgroup.threads\n{inside}"
        );
        for tid in threads {
            let _ = write!(text, "== /proc/4000/task/{tid}/cgroup\n0::/machine/4000/{name}\n");
        }
    }
    text
}

fn pinning(root: &Path) -> Pinning<Kernel> {
    Pinning::begin(root, Kernel { root: root.to_owned() }, vec!["exitless".to_owned()]).unwrap()
}

fn monitor(root: &Path, pinning: Pinning<Kernel>) -> Monitor<Vhost<Kernel>> {
    Monitor::new(Vhost::new(root, None, Some(pinning)), Settings::default(), false)
}

/// Keeps vhost's thread and the iothread busy for this many periods.
fn watch(monitor: &mut Monitor<Vhost<Kernel>>, root: &Path, periods: u64) -> Vec<u32> {
    monitor.step(0.0);
    let mut cores = Vec::new();
    for period in 1..=periods {
        run(root, &[(4000, 4003), (4000, 4004)], period);
        cores = monitor.step(period as f64).layout.0.keys().flatten().copied().collect();
    }
    assert!(!cores.is_empty(), "I/O has cores of its own");
    cores
}

fn file_of(root: &Path, group: &str, name: &str) -> PathBuf {
    root.join(format!("sys/fs/cgroup/machine/4000/{group}/{name}"))
}

fn cpus_of_group(root: &Path, group: &str) -> String {
    fs::read_to_string(file_of(root, group, "cpuset.cpus")).unwrap().trim().to_owned()
}

/// Does what the kernel would do after the writes.
fn kernel_follows(root: &Path) {
    for (name, threads) in GROUPS {
        let cpus = cpus_of_group(root, name);
        if cpus.is_empty() {
            continue;
        }
        fs::write(file_of(root, name, "cpuset.cpus.effective"), format!("{cpus}\n")).unwrap();
        for tid in threads {
            Kernel { root: root.to_owned() }.set_affinity(*tid, &cpus).unwrap();
        }
    }
}

#[test]
fn who_has_a_group_is_placed_by_it_and_the_rest_by_affinity() {
    let host = host(&[by_libvirt()]);
    let root = host.path();
    let mut monitor = monitor(root, pinning(root).by_groups());
    let cores = watch(&mut monitor, root, 3);
    let rest: CpuSet = (0..4).filter(|cpu| !cores.contains(cpu)).collect();
    let is_core = |cpus: String| cpus.parse().is_ok_and(|cpu| cores.contains(&cpu));
    assert_eq!(cpus_of_group(root, "vcpu0"), rest.to_string());
    assert_eq!(cpus_of_group(root, "vcpu1"), rest.to_string());
    assert!(is_core(cpus_of_group(root, "iothread1")), "{cores:?}");
    assert_eq!(cpus_of_group(root, "emulator"), "", "vhost's thread is there, and the VM's first one");
    assert!(is_core(cpus_of(root, 4004)), "{cores:?}");
    for tid in 4000..4004 {
        assert_eq!(cpus_of(root, tid), "0-3", "by its group, not by affinity: {tid}");
    }

    kernel_follows(root);
    until_looked_for();
    let step = monitor.step(9.0);
    assert_eq!(step.seen.unwrap().notes, [""; 0], "what it did itself is not the work of others");

    assert_eq!(monitor.end(), [""; 0]);
    for (group, _) in GROUPS {
        assert_eq!(cpus_of_group(root, group), "", "{group}");
    }
    assert_eq!(cpus_of(root, 4004), "0-3");
}

#[test]
fn groups_that_a_kill_left_are_put_back_by_restore() {
    let host = host(&[by_libvirt()]);
    let root = host.path();
    let mut monitor = monitor(root, pinning(root).by_groups());
    watch(&mut monitor, root, 3);
    assert_ne!(cpus_of_group(root, "vcpu0"), "");
    // The journal's owner is this test, which is not a process on that host.
    std::mem::forget(monitor);
    let restored = restore(root, &mut Kernel { root: root.to_owned() }, Restore::default()).unwrap();
    assert!(!restored.incomplete() && restored.damage.is_empty(), "{restored:?}");
    for (group, _) in GROUPS {
        assert_eq!(cpus_of_group(root, group), "", "{group}");
    }
    assert_eq!(cpus_of(root, 4004), "0-3");
}

#[test]
fn groups_are_left_as_they_are_where_that_was_not_asked_for_or_threads_share_them() {
    let shared = "== /sys/fs/cgroup/machine/4000/vcpu0/cgroup.threads\n4001\n4002\n\
        == /proc/4000/task/4002/cgroup\n0::/machine/4000/vcpu0\n";
    for (text, by_groups, iothread_by_group) in
        [(by_libvirt(), false, false), (by_libvirt() + shared, true, true)]
    {
        let host = host(&[text]);
        let root = host.path();
        let pinning = pinning(root);
        let mut monitor = monitor(root, if by_groups { pinning.by_groups() } else { pinning });
        let cores = watch(&mut monitor, root, 3);
        let rest: CpuSet = (0..4).filter(|cpu| !cores.contains(cpu)).collect();
        assert_eq!(cpus_of_group(root, "vcpu0"), "");
        assert_eq!((cpus_of(root, 4001), cpus_of(root, 4002)), (rest.to_string(), rest.to_string()));
        assert_eq!(cpus_of_group(root, "iothread1").is_empty(), !iothread_by_group);
        assert_eq!(monitor.end(), [""; 0]);
        assert_eq!(
            (cpus_of(root, 4001), cpus_of_group(root, "iothread1")),
            ("0-3".to_owned(), String::new())
        );
    }
}

#[test]
fn a_group_that_forbids_a_core_is_named() {
    for (group, tid) in [("vcpu1", 4002), ("emulator", 4004)] {
        let narrow = format!(
            "== /sys/fs/cgroup/machine/4000/{group}/cpuset.cpus.effective\n1\n\
             == /proc/4000/task/{tid}/status\nCpus_allowed_list:\t1\n"
        );
        let host = host(&[by_libvirt() + &narrow]);
        let root = host.path();
        let mut actuator = Vhost::new(root, None, Some(pinning(root).by_groups()));
        let trouble = actuator.look().unwrap_err().told();
        let why = format!("the control group /machine/4000/{group} leaves CPUs 1 to thread {tid}");
        assert!(trouble.contains("VM web is left alone") && trouble.contains(&why), "{trouble}");
    }
}

#[test]
fn a_group_that_others_change_meanwhile_is_theirs() {
    let host = host(&[by_libvirt()]);
    let root = host.path();
    let mut monitor = monitor(root, pinning(root).by_groups());
    let theirs = watch(&mut monitor, root, 3)[0].to_string();
    kernel_follows(root);
    // As `virsh vcpupin` does it.
    fs::write(file_of(root, "vcpu0", "cpuset.cpus"), format!("{theirs}\n")).unwrap();
    kernel_follows(root);
    until_looked_for();
    let trouble = monitor.step(9.0).said.unwrap().trouble.unwrap();
    assert!(trouble.contains("VM web is left alone"), "{trouble}");
    let why = format!("/machine/4000/vcpu0 leaves CPUs {theirs} to thread 4001");
    assert!(trouble.contains(&why), "{trouble}");
    // The rest of the VM is restored at once, not just at the end.
    let groups = ["vcpu0", "vcpu1", "iothread1"].map(|group| cpus_of_group(root, group));
    assert_eq!(groups, [theirs.as_str(), "", ""]);
    assert_eq!(monitor.end(), [""; 0]);
    assert_eq!(cpus_of_group(root, "vcpu0"), theirs);
    let restored = restore(root, &mut Kernel { root: root.to_owned() }, Restore::default()).unwrap();
    assert!(restored.changes.is_empty(), "it is theirs: {restored:?}");
}

#[test]
fn groups_of_a_vm_that_ended_leave_nothing_to_do() {
    let host = host(&[by_libvirt()]);
    let root = host.path();
    let mut monitor = monitor(root, pinning(root).by_groups());
    watch(&mut monitor, root, 3);
    fs::remove_dir_all(root.join("proc/4000")).unwrap();
    fs::remove_dir_all(root.join("sys/fs/cgroup/machine/4000")).unwrap();
    until_looked_for();
    assert!(monitor.step(9.0).said.unwrap().trouble.is_some());
    unpack(&format!("\n{}", vm(5000, "db", false, "0-3")), root).unwrap();
    until_looked_for();
    assert_eq!(monitor.step(10.0).seen.unwrap().vms[0].name, "db");
    assert_eq!(monitor.end(), [""; 0]);
}
