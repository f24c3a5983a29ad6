use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A root with processes in the kernel's format.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.write("proc/stat", "cpu 1 2 3\nbtime 1700000000\n");
        host
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(&self, pid: i32, executable: &str, arguments: &[&str]) {
        let name: String =
            Path::new(executable).file_name().unwrap().to_str().unwrap().chars().take(15).collect();
        let home = format!("proc/{pid}");
        self.write(&format!("{home}/comm"), &format!("{name}\n"));
        self.write(
            &format!("{home}/cmdline"),
            &arguments.iter().map(|one| format!("{one}\0")).collect::<String>(),
        );
        self.write(&format!("{home}/stat"), &format!("{pid} ({name}) S 1{} 1234 5 6\n", " 0".repeat(17)));
        fs::create_dir_all(self.0.path().join(format!("{home}/fd"))).unwrap();
        symlink(executable, self.0.path().join(format!("{home}/exe"))).unwrap();
        self.thread(pid, pid, &name);
    }

    fn thread(&self, pid: i32, tid: i32, name: &str) {
        self.write(&format!("proc/{pid}/task/{tid}/comm"), &format!("{name}\n"));
    }

    fn descriptors(&self, pid: i32, targets: &[&str]) {
        for (number, target) in (3..).zip(targets) {
            symlink(target, self.0.path().join(format!("proc/{pid}/fd/{number}"))).unwrap();
        }
    }

    fn discover(&self) -> Vms {
        Vms::discover(self.0.path()).unwrap()
    }

    fn only(&self) -> Vm {
        let mut found = self.discover();
        assert_eq!((found.vms.len(), found.unreadable), (1, 0));
        found.vms.remove(0)
    }
}

fn threads(vm: &Vm) -> Vec<(u32, Option<i32>, Option<i32>)> {
    vm.vcpus.iter().map(|one| (one.number, one.fd, one.thread)).collect()
}

fn names(threads: &[NamedThread]) -> Vec<(i32, &str, bool)> {
    threads.iter().map(|one| (one.tid, one.name.as_str(), one.kernel)).collect()
}

fn qemu(host: &Host, pid: i32, name: &str) {
    let path = format!("unix:/run/{name}.qmp,server=on,wait=off");
    let arguments =
        ["/usr/bin/qemu-system-x86_64", "-name", name, "-qmp", &path, "-device", "vfio-pci,host=65:00.0"];
    host.process(pid, "/usr/bin/qemu-system-x86_64", &arguments);
    let links = [
        "/dev/kvm",
        "anon_inode:kvm-vm",
        "anon_inode:kvm-vcpu:0",
        "anon_inode:kvm-vcpu-stats:0",
        "anon_inode:kvm-vcpu:1",
        "anon_inode:kvm-vcpu-stats:1",
        "/dev/vfio/vfio",
        "/dev/vfio/12",
        "anon_inode:[eventfd]",
    ];
    host.descriptors(pid, &links);
    for (tid, name) in (pid + 1..).zip(["IO iothread1", "IO mon_iothread", "CPU 0/KVM", "CPU 1/KVM"]) {
        host.thread(pid, tid, name);
    }
}

#[test]
fn a_process_that_is_ending_is_no_vm_without_a_name() {
    let host = Host::new();
    qemu(&host, 7, "web");
    assert_eq!(host.only().name, "web");
    // A process may overwrite its command line, but it keeps its executable until it exits.
    host.write("proc/7/cmdline", "");
    assert_eq!(host.only().name, "qemu-system-x86");
    fs::remove_file(host.0.path().join("proc/7/exe")).unwrap();
    let found = host.discover();
    assert_eq!((found.vms.len(), found.unreadable), (0, 0));
}

#[test]
fn all_that_is_to_know_of_a_qemu() {
    let host = Host::new();
    qemu(&host, 4000, "guest=web,,1,debug-threads=on");
    host.process(1, "/sbin/init", &["/sbin/init"]);
    let vm = host.only();
    assert_eq!(
        (vm.pid, vm.vmm, vm.name.as_str(), vm.command.as_str()),
        (4000, Vmm::Qemu, "web,1", "qemu-system-x86")
    );
    assert_eq!((vm.start_ticks, vm.started), (1234, Some(1_700_000_012)));
    assert_eq!(vm.vm_fds, [4]);
    assert_eq!(threads(&vm), [(0, Some(5), Some(4003)), (1, Some(7), Some(4004))]);
    assert_eq!(vm.vcpus[1].statistics_fd, Some(8));
    assert_eq!(vm.threads, [4000, 4001, 4002, 4003, 4004]);
    assert_eq!(names(&vm.iothreads), [(4001, "iothread1", false)]);
    assert_eq!(vm.monitors[0].used, MonitorUse::Open);
    assert_eq!(vm.devices, [AssignedDevice::Pci("0000:65:00.0".to_owned())]);
    assert_eq!(vm.vfio, [Path::new("/dev/vfio/12")]);
    assert!(vm.debugfs.is_empty());
    assert_eq!(vm.arguments.len(), 7);
    let text = serde_json::to_string(&vm).unwrap();
    assert_eq!(serde_json::from_str::<Vm>(&text).unwrap(), vm);
}

#[test]
fn workers_of_vhost_in_both_layouts() {
    let host = Host::new();
    qemu(&host, 4000, "web");
    host.thread(4000, 4009, "vhost-4000");
    // Before Linux 6.4: kernel threads, named after the thread that set them up.
    for (pid, name) in [(4010, "vhost-4003"), (4011, "vhost-5000")] {
        host.process(pid, "/kthread", &[]);
        host.write(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        host.write(&format!("proc/{pid}/stat"), &format!("{pid} ({name}) S 2 0 0 0 -1 2129984\n"));
    }
    host.process(4012, "/tmp/vhost-4000", &["vhost-4000"]);
    // A process that has ended has no command line either, until its parent waits for it.
    host.process(4013, "/tmp/vhost-4000", &[]);
    assert_eq!(names(&host.only().vhost), [(4009, "vhost-4000", false), (4010, "vhost-4003", true)]);
}

#[test]
fn the_other_vmms() {
    let table = [
        (
            "/usr/bin/cloud-hypervisor",
            vec!["--api-socket", "/run/ch.sock"],
            "vcpu",
            Vmm::CloudHypervisor,
            "ch",
        ),
        ("/usr/bin/crosvm", vec!["run", "--name", "cros"], "crosvm_vcpu", Vmm::Crosvm, "cros"),
        ("/firecracker", vec!["--id", "fc", "--api-sock", "/x"], "fc_vcpu ", Vmm::Firecracker, "fc"),
        ("/usr/bin/lkvm", vec!["run", "-k", "x"], "kvm-vcpu-", Vmm::Other, "lkvm"),
    ];
    for (executable, arguments, thread, vmm, name) in table {
        let host = Host::new();
        host.process(70, executable, &[&[executable][..], &arguments].concat());
        host.descriptors(70, &["anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0", "anon_inode:kvm-vcpu:1"]);
        host.thread(70, 72, &format!("{thread}1"));
        host.thread(70, 73, &format!("{thread}0"));
        let vm = host.only();
        assert_eq!((vm.vmm, vm.name.as_str()), (vmm, name), "{executable}");
        assert_eq!(threads(&vm), [(0, Some(4), Some(73)), (1, Some(5), Some(72))], "{executable}");
        assert!(vm.monitors.is_empty() && vm.iothreads.is_empty());
    }
}

#[test]
fn several_micro_vms_of_one_process_with_the_kernels_word_on_their_threads() {
    let host = Host::new();
    host.process(80, "/usr/bin/sandbox", &["sandbox"]);
    let links = ["anon_inode:kvm-vm", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0", "anon_inode:kvm-vcpu:0"];
    host.descriptors(80, &links);
    for tid in [81, 82] {
        host.thread(80, tid, "worker");
    }
    host.write("sys/kernel/debug/kvm/80-3/vcpu0/pid", "81\n");
    host.write("sys/kernel/debug/kvm/80-4/vcpu0/pid", "82\n");
    host.write("sys/kernel/debug/kvm/90-3/vcpu0/pid", "91\n");
    host.write("sys/kernel/debug/kvm/exits", "7\n");
    let vm = host.only();
    assert_eq!(vm.vm_fds, [3, 4]);
    assert_eq!(threads(&vm), [(0, Some(5), Some(81)), (0, Some(6), Some(82))]);
    let kvm = host.0.path().join("sys/kernel/debug/kvm");
    assert_eq!(vm.debugfs, [kvm.join("80-3"), kvm.join("80-4")]);
}

#[test]
fn a_process_with_a_vms_name_alone_is_none() {
    let host = Host::new();
    host.process(5, "/usr/bin/qemu-system-x86_64", &["qemu-system-x86_64", "-accel", "tcg"]);
    host.thread(5, 6, "CPU 0/TCG");
    assert_eq!(host.discover(), Vms::default());
}

#[test]
fn processes_of_others_are_counted_and_vms_suspected() {
    use std::os::unix::fs::PermissionsExt;
    let host = Host::new();
    qemu(&host, 4000, "web");
    host.process(9, "/usr/bin/other", &["other"]);
    let homes = [4000, 9].map(|pid| host.0.path().join(format!("proc/{pid}/fd")));
    let allow = |mode| {
        homes.iter().for_each(|home| fs::set_permissions(home, fs::Permissions::from_mode(mode)).unwrap())
    };
    allow(0);
    let denied = fs::read_dir(&homes[0]).is_err();
    let found = host.discover();
    allow(0o755);
    if !denied {
        println!("not tested: root may look into every process");
        return;
    }
    assert_eq!((found.vms.len(), found.unreadable), (0, 2));
    let likely = LikelyVm { pid: 4000, command: "qemu-system-x86".to_owned(), vcpu_threads: 2 };
    assert_eq!(found.likely, [likely]);
}

#[test]
fn vms_are_chosen_by_name_or_process() {
    let host = Host::new();
    qemu(&host, 4000, "web");
    qemu(&host, 5000, "db");
    qemu(&host, 6000, "4000");
    let found = host.discover();
    let chosen = |wanted: &[&str]| {
        let wanted: Vec<String> = wanted.iter().map(|&one| one.to_owned()).collect();
        found.select(&wanted).map(|vms| vms.iter().map(|vm| vm.pid).collect::<Vec<_>>())
    };
    assert_eq!(chosen(&[]).unwrap(), [4000, 5000, 6000]);
    assert_eq!(chosen(&["db", "web", "5000"]).unwrap(), [4000, 5000]);
    assert_eq!(chosen(&["4000"]).unwrap(), [4000], "a process goes before a name");
    let error = chosen(&["web", "7000"]).unwrap_err().to_string();
    assert_eq!(
        error,
        "No VM is called \"7000\" nor has it as its process; running: web (4000), db (5000), 4000 (6000)"
    );
    for (unreadable, expected) in [(1, "1 process"), (2, "2 processes")] {
        let none = Vms { unreadable, ..Vms::default() }.select(&["x".to_owned()]).unwrap_err().to_string();
        let end = format!("no VM was found; {expected} cannot be inspected: {AS_ROOT}");
        assert!(none.ends_with(&end), "{none}");
    }
}

#[test]
fn names_are_cut_however_long_a_command_line_is() {
    let host = Host::new();
    let long = "x".repeat(1 << 19);
    qemu(&host, 4000, &long);
    let vm = host.only();
    assert_eq!(vm.name, "x".repeat(256));
    assert_eq!(name_of(host.0.path(), 4000).as_ref(), Some(&vm.name));
    assert_eq!(names_of(host.0.path(), 4000).unwrap().0.as_ref(), Some(&vm.name));
    assert_eq!(
        host.discover().select(std::slice::from_ref(&long)).unwrap().len(),
        1,
        "by the whole name too"
    );
    let texts = |vm: &Vm| serde_json::to_string(&vm.management).unwrap();
    assert!(texts(&vm).len() < 512, "{}", texts(&vm));

    // Names in Kubernetes have two parts, may be longer, and are not cut.
    let (space, pod) = ("s".repeat(63), [&"p".repeat(63)[..]; 3].join(".") + ".pppp");
    let arguments = ["qemu-kvm", "-name", &format!("{space}_{pod}"), "-smbios"];
    let smbios = [format!("type=1,manufacturer=KubeVirt,serial={long}")];
    let arguments: Vec<&str> = arguments.into_iter().chain(smbios.iter().map(String::as_str)).collect();
    host.write("proc/4000/cmdline", &arguments.iter().map(|one| format!("{one}\0")).collect::<String>());
    let vm = host.only();
    assert_eq!(vm.name.len(), 256);
    assert_eq!(vm.management.namespaced, Some((space, pod)));
    assert!(texts(&vm).len() < 1024, "{}", texts(&vm));
}

#[test]
fn a_command_line_of_nothing_but_ends_takes_little_memory() {
    let host = Host::new();
    qemu(&host, 4000, "web");
    host.write("proc/4000/cmdline", &"\0".repeat(1 << 20));
    assert!(host.only().arguments.len() <= 16_384);
}

#[test]
fn a_root_without_processes_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(Vms::discover(root.path()), Err(Error::Read { .. })));
}

#[test]
fn odd_files_are_survived() {
    let host = Host::new();
    host.write("proc/stat", &format!("btime {}\n", u64::MAX));
    host.process(7, "/bin/x", &["x"]);
    host.descriptors(7, &["anon_inode:kvm-vm", "anon_inode:kvm-vcpu:-1", "anon_inode:kvm-vcpu:99999999999"]);
    host.write("proc/8", "no directory");
    host.write("proc/7/cmdline", "\u{0}\u{0}\u{fffd}");
    let vm = host.only();
    assert_eq!((vm.vcpus.len(), vm.name.as_str(), vm.started), (0, "x", None));
    host.write("proc/7/stat", "cut");
    assert!(host.discover().vms.is_empty(), "without its start it cannot be told from a later process");
}
