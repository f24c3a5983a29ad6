//! Stock hosts made of plain files, with vhost's threads in both layouts.

use super::*;
use crate::{Monitor, Settings};
use host::fake::unpack;
use knobs::{Change, Changes, Entry, Journal, Lasting, Parameters, Restore, restore};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// The file with which a host loses its journal at the next change of a thread.
const LOSES_JOURNAL: &str = "loses-journal";

/// The mode of the journal. One that others can write to is not used.
fn journal_mode(root: &Path, mode: u32) {
    fs::set_permissions(root.join("run/exitless-journal/journal"), fs::Permissions::from_mode(mode)).unwrap();
}

/// A kernel that keeps the CPUs of threads in their `status` files.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) root: PathBuf,
}

impl Kernel {
    fn file(&self, tid: i32) -> Option<PathBuf> {
        let processes = fs::read_dir(self.root.join("proc")).ok()?.flatten();
        let mut files = processes.map(|process| process.path().join(format!("task/{tid}/status")));
        files.find(|file| file.exists())
    }
}

impl Actions for Kernel {
    fn load(&mut self, _: &str, _: &Parameters) -> Result<(), Error> {
        unreachable!("no module is touched")
    }

    fn unload(&mut self, _: &str) -> Result<(), Error> {
        unreachable!("no module is touched")
    }

    fn run(&mut self, _: &[String]) -> Result<(), Error> {
        unreachable!("no program is run")
    }

    fn affinity(&self, tid: i32) -> Result<String, Error> {
        let gone = || Error::ThreadGone { tid };
        let text = fs::read_to_string(self.file(tid).ok_or_else(gone)?).unwrap();
        Ok(text.trim().strip_prefix("Cpus_allowed_list:").unwrap().trim().to_owned())
    }

    fn set_affinity(&mut self, tid: i32, cpus: &str) -> Result<(), Error> {
        let file = self.file(tid).ok_or(Error::ThreadGone { tid })?;
        let online = host::scheduling::online(&self.root).unwrap();
        let cpus: CpuSet = CpuSet::parse(cpus).unwrap().iter().filter(|cpu| online.contains(*cpu)).collect();
        fs::write(file, format!("Cpus_allowed_list:\t{cpus}\n")).unwrap();
        if self.root.join(LOSES_JOURNAL).exists() {
            journal_mode(&self.root, 0o622);
        }
        Ok(())
    }
}

fn thread(pid: i32, tid: i32, name: &str, cpus: &str) -> String {
    let stat = format!("{tid} ({name}) S 1 0 0 0 -1 4 5 6 7 8 9 10 11 12 20 0 6 0 {} 7\n", 1000 + tid);
    format!(
        "== /proc/{pid}/task/{tid}/comm\n{name}\n== /proc/{pid}/task/{tid}/stat\n{stat}== /proc/{tid}/stat\n{stat}\
         == /proc/{pid}/task/{tid}/status\nCpus_allowed_list:\t{cpus}\n== /proc/{pid}/task/{tid}/schedstat\n0 0 0\n\
         == /proc/{pid}/task/{tid}/cgroup\n0::/machine/{pid}\n"
    )
}

/// A VM of two vCPUs with a vhost thread and an iothread. The vhost thread is a kernel thread or a thread of QEMU.
pub(super) fn vm(pid: i32, name: &str, kernel_threads: bool, cpus: &str) -> String {
    let mut text = format!(
        "== /proc/{pid}/comm\nqemu-system-x86\n== /proc/{pid}/cmdline arguments\nqemu-system-x86_64\n-name\nguest={name}\n\
         == /proc/{pid}/exe -> /usr/bin/qemu-system-x86_64\n== /proc/{pid}/fd/10 -> anon_inode:kvm-vm\n\
         == /proc/{pid}/fd/11 -> anon_inode:kvm-vcpu:0\n== /proc/{pid}/fd/12 -> anon_inode:kvm-vcpu:1\n\
         == /proc/{pid}/fd/13 -> /dev/net/tun\n== /proc/{pid}/fdinfo/13\niff:\ttap{pid}\n\
         == /sys/class/net/tap{pid}/master -> ../br0\n"
    );
    for (tid, name) in
        [(pid, "qemu-system-x86"), (pid + 1, "CPU 0/KVM"), (pid + 2, "CPU 1/KVM"), (pid + 3, "IO io1")]
    {
        text += &thread(pid, tid, name, cpus);
    }
    let vhost = format!("vhost-{pid}");
    if kernel_threads {
        let tid = pid + 9;
        let _ = write!(text, "== /proc/{tid}/comm\n{vhost}\n== /proc/{tid}/cmdline\n== /proc/{tid}/fd/\n");
        // With the kernel's flags of such a thread.
        text += &thread(tid, tid, &vhost, cpus).replace(" -1 4 ", " -1 2129984 ");
    } else {
        text += &thread(pid, pid + 4, &vhost, cpus);
    }
    text
}

const PLATFORM: &str = "\n== /sys/devices/system/cpu/online\n0-3\n== /proc/stat\ncpu 1 0 0 1 0 0 0 0\nbtime 1\n\
    == /proc/sys/kernel/random/boot_id\nthis-boot\n== /sys/class/net/br0/brif/eth0/\n\
    == /sys/class/net/eth0/device/msi_irqs/40\nmsix\n== /proc/irq/40/smp_affinity_list\n0-3\n";

pub(super) fn host(vms: &[String]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    unpack(&format!("{PLATFORM}{}", vms.concat()), directory.path()).unwrap();
    directory
}

fn actuator(root: &Path) -> Vhost<Kernel> {
    let kernel = Kernel { root: root.to_owned() };
    let pinning = Pinning::begin(root, kernel, vec!["exitless".to_owned()]).unwrap();
    Vhost::new(root, None, Some(pinning))
}

/// Moves the I/O thread of VM 4000 to a core, or restores its CPUs.
fn move_io(actuator: &mut Vhost<Kernel>, to: WorkerCore) -> Result<Vec<String>, Trouble> {
    let queue = actuator.numbers.of[&ThreadId { pid: 4000, tid: 4004 }];
    actuator.act(&[Action::Move { queue, to }], &Layout([(to, [queue].into())].into()))
}

pub(super) fn cpus_of(root: &Path, tid: i32) -> String {
    Kernel { root: root.to_owned() }.affinity(tid).unwrap()
}

/// Sets the run time of these threads, so that they were busy in each period.
pub(super) fn run(root: &Path, threads: &[(i32, i32)], times: u64) {
    for (pid, tid) in threads {
        let file = root.join(format!("proc/{pid}/task/{tid}/schedstat"));
        fs::write(file, format!("{} 0 1\n", times * 1_000_000_000_000)).unwrap();
    }
}

#[test]
fn threads_of_both_layouts_are_found_placed_and_put_back() {
    for kernel_threads in [false, true] {
        let host = host(&[vm(4000, "web", kernel_threads, "0-3"), vm(5000, "db", kernel_threads, "0-3")]);
        let root = host.path();
        let vhost = |pid: i32| if kernel_threads { (pid + 9, pid + 9) } else { (pid, pid + 4) };
        let mut monitor = Monitor::new(actuator(root), Settings::default(), false);
        monitor.step(0.0);
        run(root, &[vhost(4000), vhost(5000)], 1);
        let step = monitor.step(1.0);
        let names: Vec<String> = step.said.unwrap().queues.into_values().flatten().collect();
        let wanted = format!("web vhost-4000/{}", vhost(4000).1);
        assert!(names.contains(&wanted) && names.contains(&"db io1".to_owned()), "{names:?}");
        let cores: Vec<u32> = step.layout.0.keys().flatten().copied().collect();
        assert!(!cores.is_empty() && cores.len() < 4, "{cores:?}");
        let io = cpus_of(root, vhost(4000).1);
        assert!(cores.iter().any(|core| core.to_string() == io), "{io} of {cores:?}");
        let beside = CpuSet::parse(&cpus_of(root, 4001)).unwrap();
        assert!(cores.iter().all(|core| !beside.contains(*core)) && beside.count() + cores.len() as u64 == 4);
        let interrupt = fs::read_to_string(root.join("proc/irq/40/smp_affinity_list")).unwrap();
        assert_eq!(CpuSet::parse(&interrupt), Some(cores.into_iter().collect()));
        assert_eq!(monitor.end(), [""; 0]);
        for tid in [4001, 4002, 4003, vhost(4000).1, 5001, 5002, 5003, vhost(5000).1] {
            assert_eq!(cpus_of(root, tid), "0-3", "{tid}");
        }
        assert_eq!(fs::read_to_string(root.join("proc/irq/40/smp_affinity_list")).unwrap().trim(), "0-3");
    }
}

#[test]
fn what_a_kill_leaves_is_put_back_by_restore() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut monitor = Monitor::new(actuator(root), Settings::default(), false);
    monitor.step(0.0);
    for times in 1..4 {
        run(root, &[(4000, 4004), (4000, 4003)], times);
        monitor.step(times as f64);
    }
    assert_ne!(cpus_of(root, 4004), "0-3");
    // The journal's owner is this test, which is not a process on that host.
    std::mem::forget(monitor);
    let restored = restore(root, &mut Kernel { root: root.to_owned() }, Restore::default()).unwrap();
    assert!(!restored.incomplete() && restored.damage.is_empty(), "{restored:?}");
    for tid in 4001..=4004 {
        assert_eq!(cpus_of(root, tid), "0-3", "{tid}");
    }
}

#[test]
fn a_monitor_restores_what_a_killed_one_left() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut monitor = Monitor::new(actuator(root), Settings::default(), false);
    monitor.step(0.0);
    run(root, &[(4000, 4004), (4000, 4003)], 1);
    monitor.step(1.0);
    assert_ne!(cpus_of(root, 4004), "0-3");
    // The journal's owner is this test, which is not a process on that host.
    std::mem::forget(monitor);
    let pinning = Pinning::begin(root, Kernel { root: root.to_owned() }, Vec::new()).unwrap();
    let told = pinning.recovered();
    assert!(told.len() == 1 && told[0].contains("left when it was killed"), "{told:?}");
    for tid in 4001..=4004 {
        assert_eq!(cpus_of(root, tid), "0-3", "{tid}");
    }
    let seen = Vhost::new(root, None, Some(pinning)).look().unwrap();
    assert_eq!((seen.vms.len(), seen.notes), (1, Vec::new()));
}

#[test]
fn what_others_move_again_and_again_does_not_fill_the_journal() {
    let host = host(&[]);
    let root = host.path();
    let interrupt = root.join("proc/irq/40/smp_affinity_list");
    let mut pinning = Pinning::begin(root, Kernel { root: root.to_owned() }, Vec::new()).unwrap();
    for round in 0..20 {
        pinning.interrupt(40, &[3].into_iter().collect()).unwrap();
        // As irqbalance does it.
        let theirs = format!("{}\n", round % 3);
        fs::write(&interrupt, &theirs).unwrap();
        pinning.interrupts_back_but(&BTreeSet::new()).unwrap();
        assert_eq!(fs::read_to_string(&interrupt).unwrap(), theirs);
    }
    assert_eq!(Journal::read(root).unwrap().entries.into_iter().filter(Entry::open).count(), 0);
    assert!(!pinning.holds());
    assert_eq!(pinning.release(), [""; 0]);
}

#[test]
fn vms_that_others_placed_and_groups_that_forbid_cpus_are_left_alone() {
    let pinned = vm(4000, "pinned", false, "0-3").replace(
        "== /proc/4000/task/4001/status\nCpus_allowed_list:\t0-3",
        "== /proc/4000/task/4001/status\nCpus_allowed_list:\t2",
    );
    let confined =
        vm(5000, "confined", false, "1") + "== /sys/fs/cgroup/machine/5000/cpuset.cpus.effective\n1\n";
    let host = host(&[pinned, confined, vm(6000, "free", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    let seen = actuator.look().unwrap();
    assert_eq!(seen.vms.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["free"]);
    let numbers = |seen: &Seen| seen.view.cores.iter().map(|core| core.number).collect::<Vec<_>>();
    assert_eq!(numbers(&seen), [0, 3], "not those of the two others");
    let notes = seen.notes.join("\n");
    assert!(
        notes.contains("CPUs 2, to which VM pinned is bound, are used for I/O only if --cores"),
        "{notes}"
    );
    let mut named: Vhost<Kernel> = Vhost::new(root, CpuSet::parse("0-3"), None);
    assert_eq!(numbers(&named.look().unwrap()), [0, 1, 2, 3]);
    assert!(notes.contains("VM pinned is left alone: thread 4001 is pinned by others to CPUs 2"), "{notes}");
    assert!(notes.contains("VM confined is left alone: its control group leaves it CPUs 1"), "{notes}");
}

#[test]
fn vms_with_real_time_threads_are_left_alone() {
    // The policy is field 41 of a thread's stat, the start time field 22.
    let with_policy = |pid: i32, name: &str, policy: u32| {
        let start = 1001 + pid;
        let stat = format!(" {start} 7{} {policy}\n", " 0".repeat(17));
        vm(pid, name, false, "0-3").replace(&format!(" {start} 7\n"), &stat)
    };
    let policies = [("other", 0), ("fifo", 1), ("rr", 2), ("batch", 3), ("deadline", 6)];
    let vms: Vec<String> =
        policies.iter().zip(4..).map(|(&(name, policy), at)| with_policy(1000 * at, name, policy)).collect();
    let host = host(&vms);
    let seen = actuator(host.path()).look().unwrap();
    assert_eq!(seen.vms.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["other", "batch"]);
    let notes = seen.notes.join("\n");
    for note in ["VM fifo is left alone: thread 5001 has a real-time policy", "VM rr ", "VM deadline "] {
        assert!(notes.contains(note), "{notes}");
    }
}

#[test]
fn vcpus_of_vms_without_io_threads_use_cpus_too() {
    let other =
        vm(5000, "other", false, "0-3").replace("vhost-5000", "worker a").replace("IO io1", "worker b");
    let host = host(&[vm(4000, "web", false, "0-3"), other]);
    let root = host.path();
    let mut actuator = actuator(root);
    assert_eq!(actuator.look().unwrap().vms.len(), 1);
    for (tid, waited) in [(5001, 0), (5002, 1_000_000_000_000_u64)] {
        let file = root.join(format!("proc/5000/task/{tid}/schedstat"));
        fs::write(file, format!("1000000000000 {waited} 1\n")).unwrap();
    }
    let view = actuator.look().unwrap().view;
    assert!((view.computing - 2.0).abs() < 0.01 && (view.waiting - 1.0).abs() < 0.01, "{view:?}");
}

/// The CPUs that may be I/O cores, or the trouble.
fn usable(actuator: &mut Vhost<Kernel>) -> Result<Vec<u32>, String> {
    actuator.discovered = None;
    let seen = actuator.look().map_err(|trouble| trouble.told())?;
    Ok(seen.view.cores.iter().map(|core| core.number).collect())
}

const EIGHT: &str = "== /sys/devices/system/cpu/online\n0-7\n";

#[test]
fn isolated_cpus_are_used_only_if_they_are_named_and_nobody_has_pinned_what_lacks_them() {
    let isolated = "== /sys/devices/system/cpu/isolated\n4-7\n";
    for cpus in ["0-3", "0-7"] {
        let host = host(&[vm(4000, "web", false, cpus) + EIGHT + isolated]);
        let root = host.path();
        assert_eq!(usable(&mut actuator(root)), Ok(vec![0, 1, 2, 3]), "{cpus}");
        assert_eq!(usable(&mut Vhost::new(root, CpuSet::parse("2-5"), None)), Ok(vec![2, 3, 4, 5]), "{cpus}");
    }
}

#[test]
fn vcpus_do_not_move_to_isolated_cpus() {
    let isolated = "== /sys/devices/system/cpu/isolated\n4-7\n";
    for (group, others) in [("0-7", "0-3"), ("4-7", "4-6")] {
        let group = format!("== /sys/fs/cgroup/machine/4000/cpuset.cpus.effective\n{group}\n");
        let host = host(&[vm(4000, "web", false, "0-7") + EIGHT + isolated + &group]);
        let root = host.path();
        let pinning = Pinning::begin(root, Kernel { root: root.to_owned() }, Vec::new()).unwrap();
        let mut actuator = Vhost::new(root, CpuSet::parse("4-7"), Some(pinning));
        actuator.look().unwrap();
        move_io(&mut actuator, Some(7)).unwrap();
        assert_eq!([4001, 4002, 4004].map(|tid| cpus_of(root, tid)), [others, others, "7"]);
        assert_eq!(actuator.give_back(), [""; 0]);
    }
}

#[test]
fn kernel_threads_on_cpus_with_ticks_are_not_pinned_by_others() {
    let ticks = "== /sys/devices/system/cpu/nohz_full\n4-7\n";
    let status = |cpus: &str| format!("== /proc/4009/task/4009/status\nCpus_allowed_list:\t{cpus}\n");
    let web = vm(4000, "web", true, "0-7") + EIGHT + &status("0-3");
    let usable = |text: String| {
        let host = host(&[text]);
        usable(&mut actuator(host.path()))
    };
    assert_eq!(usable(web.clone() + ticks), Ok((0..8).collect()));
    for pinned in [web, vm(4000, "web", true, "0-3") + EIGHT + ticks] {
        let trouble = usable(pinned).unwrap_err();
        assert!(trouble.contains("is pinned by others to CPUs 0-3"), "{trouble}");
    }
}

#[test]
fn a_cpu_that_comes_online_makes_no_vm_one_that_others_have_pinned() {
    let host = host(&[vm(4000, "web", false, "0-2"), vm(5000, "db", false, "0-2")]);
    let root = host.path();
    let online = root.join("sys/devices/system/cpu/online");
    fs::write(&online, "0-2\n").unwrap();
    let mut actuator = actuator(root);
    assert_eq!(usable(&mut actuator), Ok(vec![0, 1, 2]));
    fs::write(&online, "0-3\n").unwrap();
    assert_eq!(usable(&mut actuator), Ok(vec![0, 1, 2, 3]));
    // A VM that starts now would have the new CPU if nobody had pinned it.
    unpack(&format!("\n{}", vm(6000, "late", false, "0-2")), root).unwrap();
    let trouble = usable(&mut actuator).unwrap_err();
    assert!(trouble.contains("may use 1 of the CPUs 0-3"), "{trouble}");
    assert!(trouble.contains("VM late is left alone: thread 6001 is pinned by others"), "{trouble}");
}

#[test]
fn groups_decide_which_cpus_there_are() {
    let group =
        |pid: i32, cpus: &str| format!("== /sys/fs/cgroup/machine/{pid}/cpuset.cpus.effective\n{cpus}\n");
    let host = host(&[
        vm(4000, "one", false, "0-2") + &group(4000, "0-2"),
        vm(5000, "two", false, "1-3") + &group(5000, "1-3"),
        vm(6000, "three", false, "0,3") + &group(6000, "0,3"),
    ]);
    let mut actuator = actuator(host.path());
    let seen = actuator.look().unwrap();
    assert_eq!(seen.view.cores.iter().map(|core| core.number).collect::<Vec<_>>(), [1, 2]);
    assert!(seen.notes.iter().any(|note| note.contains("VM three is left alone")), "{:?}", seen.notes);
    assert!(actuator.found.beside.is_empty(), "it has CPUs of its own");
}

#[test]
fn cpus_of_a_vm_that_has_too_few_in_common_with_others_are_not_used() {
    let group =
        |pid: i32, cpus: &str| format!("== /sys/fs/cgroup/machine/{pid}/cpuset.cpus.effective\n{cpus}\n");
    let host = host(&[
        vm(4000, "one", false, "0-2") + &group(4000, "0-2"),
        vm(5000, "two", false, "2-3") + &group(5000, "2-3"),
    ]);
    let root = host.path();
    assert_eq!(usable(&mut actuator(root)), Ok(vec![0, 1]));
    let mut named = Vhost::new(root, CpuSet::parse("0-3"), None);
    assert_eq!(usable(&mut named), Ok(vec![0, 1, 2]));
    let beside: Vec<i32> = named.found.beside.iter().map(|thread| thread.tid).collect();
    assert_eq!(beside, [5001, 5002]);
}

#[test]
fn a_core_that_goes_off_is_no_place() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut monitor = Monitor::new(actuator(root), Settings::default(), false);
    monitor.step(0.0);
    run(root, &[(4000, 4004), (4000, 4003)], 1);
    let cores: Vec<u32> = monitor.step(1.0).layout.0.keys().flatten().copied().collect();
    assert!(cores.contains(&3), "{cores:?}");
    fs::write(root.join("sys/devices/system/cpu/online"), "0-2\n").unwrap();
    run(root, &[(4000, 4004), (4000, 4003)], 2);
    let cores: Vec<u32> = monitor.step(2.0).layout.0.keys().flatten().copied().collect();
    assert!(!cores.is_empty() && !cores.contains(&3), "{cores:?}");
    fs::write(root.join("sys/devices/system/cpu/online"), "0\n").unwrap();
    let trouble = monitor.step(3.0).said.unwrap().trouble.unwrap();
    assert!(trouble.contains("needs two"), "{trouble}");
}

#[test]
fn hosts_without_vms_are_trouble_that_says_so() {
    let host = host(&[]);
    let trouble = actuator(host.path()).look().unwrap_err().told();
    assert!(trouble.contains("no VM that may be placed"), "{trouble}");
}

#[test]
fn a_dry_run_has_nothing_to_change_with() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let actuator: Vhost<Kernel> = Vhost::new(root, None, None);
    let mut monitor = Monitor::new(actuator, Settings::default(), true);
    monitor.step(0.0);
    run(root, &[(4000, 4004), (4000, 4003)], 1);
    let said = monitor.step(1.0).said.unwrap();
    assert!(said.dry_run && !said.actions.is_empty());
    assert!((4001..=4004).all(|tid| cpus_of(root, tid) == "0-3"));
    assert!(!root.join("run/exitless").exists());
}

/// Waits until the next look searches for VMs, which it does once a second.
pub(super) fn until_looked_for() {
    std::thread::sleep(DISCOVER_EVERY + Duration::from_millis(50));
}

fn kill(root: &Path, pid: i32) {
    for process in pid..pid + 5 {
        let _ = fs::remove_dir_all(root.join(format!("proc/{process}")));
    }
}

#[test]
fn threads_that_have_ended_do_not_fill_the_journal() {
    let host = host(&[vm(4000, "web", false, "0-3"), vm(5000, "db", false, "0-3")]);
    let root = host.path();
    let mut monitor = Monitor::new(actuator(root), Settings::default(), false);
    monitor.step(0.0);
    run(root, &[(4000, 4004), (4000, 4003), (5000, 5004), (5000, 5003)], 1);
    monitor.step(1.0);
    let open = |pid: i32| {
        let entries = Journal::read(root).unwrap().entries.into_iter().filter(Entry::open);
        let is_of = |entry: &Entry| matches!(entry.change, Change::Affinity { tid, .. } if (pid..pid + 5).contains(&tid));
        entries.filter(is_of).count()
    };
    let before = (open(4000), open(5000));
    assert!(before.0 > 0 && before.1 > 0, "{before:?}");
    kill(root, 5000);
    until_looked_for();
    monitor.step(2.0);
    assert_eq!((open(4000) > 0, open(5000)), (true, 0));
}

#[test]
fn a_thread_that_ends_before_its_vm_leaves_nothing() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    let vhost = ThreadId { pid: 4000, tid: 4004 };
    let queue = actuator.numbers.of[&vhost];
    move_io(&mut actuator, Some(3)).unwrap();
    let of_vhost = |entry: &Entry| matches!(entry.change, Change::Affinity { tid: 4004, .. });
    let open =
        || Journal::read(root).unwrap().entries.into_iter().filter(Entry::open).filter(of_vhost).count();
    assert_eq!((open(), actuator.layout.contains_key(&queue)), (1, true));
    for place in ["proc/4000/task/4004", "proc/4004"] {
        fs::remove_dir_all(root.join(place)).unwrap();
    }
    until_looked_for();
    actuator.look().unwrap();
    assert_eq!((open(), actuator.layout.contains_key(&queue)), (0, false));
    assert!(!actuator.numbers.of.contains_key(&vhost) && actuator.numbers.of.len() == 1);
}

#[test]
fn a_search_that_fails_forgets_nothing() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    move_io(&mut actuator, Some(3)).unwrap();
    assert_eq!(cpus_of(root, 4004), "3");
    let [processes, hidden] = ["proc", "hidden"].map(|name| root.join(name));
    fs::rename(&processes, &hidden).unwrap();
    actuator.discovered = None;
    assert!(actuator.look().is_err());
    fs::rename(&hidden, &processes).unwrap();
    // The VM is left alone from now on, because others move a vCPU of it.
    fs::write(root.join("proc/4000/task/4001/status"), "Cpus_allowed_list:\t1\n").unwrap();
    actuator.discovered = None;
    assert!(actuator.look().is_err());
    assert_eq!(cpus_of(root, 4004), "0-3", "its other threads are given back");
}

#[test]
fn a_vm_that_comes_as_another_goes_has_numbers_of_its_own() {
    let host = host(&[vm(4000, "web", false, "0-3"), vm(5000, "db", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    let before: BTreeSet<u32> = actuator.look().unwrap().vms.into_iter().flat_map(|vm| vm.queues).collect();
    kill(root, 5000);
    unpack(&format!("\n{}", vm(6000, "new", false, "0-3")), root).unwrap();
    until_looked_for();
    let seen = actuator.look().unwrap();
    let new = seen.vms.iter().find(|vm| vm.name == "new").unwrap();
    assert!(new.queues.len() == 2 && new.queues.iter().all(|queue| !before.contains(queue)), "{new:?}");
}

#[test]
fn a_thread_that_others_move_between_two_looks_stops_nothing() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    // No search for VMs during this test, however long it takes.
    actuator.discovered = Some(Instant::now() + Duration::from_secs(3600));
    let mut go = |core: u32| move_io(&mut actuator, Some(core)).unwrap();
    assert_eq!(go(3), [""; 0]);
    fs::write(root.join("proc/4000/task/4004/status"), "Cpus_allowed_list:\t1\n").unwrap();
    let told = go(2);
    assert!(told.len() == 1 && told[0].contains("others changed it"), "{told:?}");
    assert_eq!((cpus_of(root, 4004), cpus_of(root, 4001)), ("1".to_owned(), "0-1,3".to_owned()));
}

#[test]
fn a_thread_whose_move_is_not_in_the_journal_was_not_moved_by_others() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    let mut go = |core: u32| move_io(&mut actuator, Some(core));
    assert_eq!(go(3).unwrap(), [""; 0]);
    fs::write(root.join(LOSES_JOURNAL), "").unwrap();
    let trouble = go(2).unwrap_err().to_string();
    assert!(trouble.contains("does not say that a change was made; it will still be undone"), "{trouble}");
    assert_eq!(cpus_of(root, 4001), "0-1,3");
    fs::remove_file(root.join(LOSES_JOURNAL)).unwrap();
    journal_mode(root, 0o600);
    // Search for VMs at once.
    actuator.discovered = None;
    let seen = actuator.look().unwrap();
    assert_eq!((seen.vms.len(), seen.notes), (1, Vec::new()));
    assert_eq!(actuator.give_back(), [""; 0]);
    assert_eq!([4001, 4002, 4004].map(|tid| cpus_of(root, tid)), ["0-3"; 3]);
}

#[test]
fn an_interrupt_that_another_exitless_moved_since_stops_nothing() {
    let host = host(&[vm(4000, "web", false, "0-3")
        + "== /sys/class/net/eth0/device/msi_irqs/41\nmsix\n== /proc/irq/41/smp_affinity_list\n0-3\n"]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    // No search for VMs during this test, however long it takes.
    actuator.discovered = Some(Instant::now() + Duration::from_secs(3600));
    let mut go = |to: WorkerCore| move_io(&mut actuator, to).unwrap();
    let path = |number: u32| format!("/proc/irq/{number}/smp_affinity_list");
    let interrupt = |number: u32| {
        let text = fs::read_to_string(root.join(path(number).trim_start_matches('/'))).unwrap();
        text.trim().to_owned()
    };
    assert_eq!(go(Some(3)), [""; 0]);
    let places = || [interrupt(40), interrupt(41), cpus_of(root, 4004)];
    assert_eq!(places(), ["3", "3", "3"]);
    let mut others = Changes::begin(root, Kernel { root: root.to_owned() }, Vec::new()).unwrap();
    let change = Change::Value { path: path(40), value: "1".to_owned() };
    others.make(change, Lasting::UntilRestored).unwrap();
    let told = go(None);
    assert!(told.len() == 1 && told[0].contains("which rests on it"), "{told:?}");
    assert_eq!(places(), ["1", "0-3", "0-3"]);
}

#[test]
fn an_interrupt_is_moved_when_the_journal_can_be_written_again() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    assert_eq!(move_io(&mut actuator, Some(3)).unwrap(), [""; 0]);
    let new = "\n== /sys/class/net/eth0/device/msi_irqs/41\nmsix\n== /proc/irq/41/smp_affinity_list\n0-3\n";
    unpack(new, root).unwrap();
    let cpus = || fs::read_to_string(root.join("proc/irq/41/smp_affinity_list")).unwrap().trim().to_owned();
    journal_mode(root, 0o622);
    actuator.discovered = None;
    let trouble = actuator.look().unwrap_err();
    assert!(matches!(trouble, Trouble::Change(_)), "{trouble}");
    assert_eq!(cpus(), "0-3");
    journal_mode(root, 0o600);
    assert_eq!(actuator.look().unwrap().notes, [""; 0]);
    assert_eq!(cpus(), "3");
}

#[test]
fn what_could_not_be_restored_stays_pinned_until_it_can() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    // No search for VMs during this test, however long it takes.
    actuator.discovered = Some(Instant::now() + Duration::from_secs(3600));
    let queue = actuator.numbers.of[&ThreadId { pid: 4000, tid: 4004 }];
    assert_eq!(move_io(&mut actuator, Some(3)).unwrap(), [""; 0]);
    journal_mode(root, 0o622);
    move_io(&mut actuator, None).unwrap_err();
    let pinned = |tid| actuator.pinning.as_ref().unwrap().pinned_to(ThreadId { pid: 4000, tid }).unwrap();
    assert_eq!([4001, 4002, 4004].map(|tid| pinned(tid).to_string()), ["0-2", "0-2", "3"]);
    journal_mode(root, 0o600);
    let view = actuator.look().unwrap().view;
    assert_eq!(Layout::of(&view).cores_by_queue()[&queue], Some(3));
    assert_eq!(move_io(&mut actuator, None).unwrap(), [""; 0]);
    assert_eq!([4001, 4002, 4004].map(|tid| cpus_of(root, tid)), ["0-3"; 3]);
    assert!(!actuator.pinning.unwrap().holds());
}

#[test]
fn an_io_thread_that_could_not_be_restored_is_restored_although_its_vm_is_placed_again() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut actuator = actuator(root);
    actuator.look().unwrap();
    move_io(&mut actuator, Some(3)).unwrap();
    journal_mode(root, 0o622);
    for (cpus, is_placed) in [("1", false), ("0-2", true)] {
        fs::write(root.join("proc/4000/task/4001/status"), format!("Cpus_allowed_list:\t{cpus}\n")).unwrap();
        actuator.discovered = None;
        assert_eq!(actuator.look().is_ok(), is_placed, "{cpus}");
        assert_eq!(cpus_of(root, 4004), "3");
    }
    journal_mode(root, 0o600);
    actuator.discovered = None;
    let view = actuator.look().unwrap().view;
    assert!(Layout::of(&view).cores_by_queue().values().all(Option::is_none), "{view:?}");
    assert_eq!([4001, 4004].map(|tid| cpus_of(root, tid)), ["0-2", "0-3"]);
}

#[test]
fn what_another_exitless_moved_since_is_restored_when_that_has_undone_it() {
    for is_searched in [false, true] {
        let host = host(&[vm(4000, "web", false, "0-3")]);
        let root = host.path();
        let mut actuator = actuator(root);
        actuator.look().unwrap();
        let late = Instant::now() + Duration::from_secs(3600);
        actuator.discovered = Some(late);
        assert_eq!(move_io(&mut actuator, Some(3)).unwrap(), [""; 0]);
        let mut others = Changes::begin(root, Kernel { root: root.to_owned() }, Vec::new()).unwrap();
        let change = Change::Affinity { tid: 4001, start_ticks: 5001, cpus: "1".to_owned() };
        others.make(change, Lasting::WhileHeld).unwrap();
        let told = move_io(&mut actuator, None).unwrap();
        assert!(told.len() == 1 && told[0].contains("which rests on it"), "{told:?}");
        assert_eq!([4001, 4002, 4004].map(|tid| cpus_of(root, tid)), ["1", "0-3", "0-3"]);
        // A search leaves the VM alone, as long as the other exitless has the thread.
        actuator.discovered = (!is_searched).then_some(late);
        assert_eq!(actuator.look().is_err(), is_searched);
        drop(others);
        assert_eq!(cpus_of(root, 4001), "0-2", "where this one had pinned it");
        actuator.discovered = (!is_searched).then_some(late);
        assert_eq!(actuator.look().unwrap().vms.len(), 1);
        assert_eq!(cpus_of(root, 4001), "0-3");
        assert!(!actuator.pinning.unwrap().holds());
    }
}

#[test]
fn vms_that_come_are_placed_and_without_those_that_go_it_goes_on() {
    let host = host(&[vm(4000, "web", false, "0-3")]);
    let root = host.path();
    let mut monitor = Monitor::new(actuator(root), Settings::default(), false);
    monitor.step(0.0);
    run(root, &[(4000, 4004), (4000, 4003)], 1);
    assert!(monitor.step(1.0).layout.cores() > 0);
    let interrupt = || fs::read_to_string(root.join("proc/irq/40/smp_affinity_list")).unwrap();
    assert_ne!(interrupt().trim(), "0-3");

    unpack(&format!("\n{}", vm(5000, "db", false, "0-3")), root).unwrap();
    until_looked_for();
    monitor.step(2.0);
    run(root, &[(4000, 4004), (4000, 4003), (5000, 5004), (5000, 5003)], 2);
    let step = monitor.step(3.0);
    assert_eq!(step.seen.unwrap().vms.len(), 2);
    let beside = CpuSet::parse(&cpus_of(root, 5001)).unwrap();
    assert!(step.layout.0.keys().flatten().all(|core| !beside.contains(*core)), "{beside}");

    kill(root, 4000);
    until_looked_for();
    let step = monitor.step(4.0);
    let told = step.said.and_then(|said| said.trouble);
    let vms: Vec<String> = step.seen.unwrap().vms.into_iter().map(|vm| vm.name).collect();
    assert_eq!((told, vms), (None, vec!["db".to_owned()]));

    kill(root, 5000);
    until_looked_for();
    let said: Vec<_> = (5..8).filter_map(|time| monitor.step(f64::from(time)).said).collect();
    let [one] = &said[..] else { panic!("{said:?}") };
    assert!(one.trouble.as_ref().unwrap().contains("no VM that may be placed"), "{one:?}");
    assert!(one.actions.is_empty());
    assert_eq!(interrupt().trim(), "0-3", "no VM has the adapter any more");
    let _ = monitor.end();
    let restored = restore(root, &mut Kernel { root: root.to_owned() }, Restore::default()).unwrap();
    assert!(!restored.incomplete(), "{restored:?}");
}
