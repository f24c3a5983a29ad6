//! A run with a seed is reproducible to the last byte and nanosecond, whatever else the machine does: other
//! tests boot their hosts meanwhile.

use std::fs;

use crate::command::run;
use crate::devices::DEVICES;
use crate::experiment::{shortened, study};

/// Starts programs from the disk, writes 100 scattered blocks at once, sleeps, draws random numbers, and lets
/// both CPUs work together. Prints the time after each step, and the interrupts of each CPU.
const JOB: &str = "
    for program in /usr/bin/f*; do md5sum $program; date +%N; done
    head -c 1M /dev/zero >file; sync
    perl -e 'open F, \"+<\", \"file\" or die;
        for (0 .. 99) { sysseek F, (2 * $_ + 1) * 4096, 0; (syswrite F, chr(0) x 4096) == 4096 or die }' || exit
    sync; date +%N
    for turn in 1 2 3 4 5; do sleep 0.02; date +%N; done
    head -c 100000 /dev/urandom | md5sum
    seq 1 3000 | sort -r | md5sum
    cat /proc/uptime /proc/interrupts";

fn the_same_twice(lab: &str, options: &[&str], command: &[&str]) {
    the_same_around(lab, options, command, || ());
}

/// Asserts that the command prints the same before and after `between`.
fn the_same_around(lab: &str, options: &[&str], command: &[&str], between: impl FnOnce()) {
    let arguments = [&["lab", "run", lab, "--seed", "7"], options, &["--"], command].concat();
    let first = run(&arguments);
    between();
    let second = run(&arguments);
    assert_eq!(first.status, 0, "{}\n{}", first.out, first.err);
    assert!(first.out.len() > 1000, "{}", first.out);
    let lines = first.out.lines().zip(second.out.lines());
    let differ = lines.filter(|(first, second)| first != second).take(3).collect::<Vec<_>>();
    assert_eq!(differ, [], "{lab}");
    assert_eq!(first.out.len(), second.out.len(), "{lab}");
}

#[test]
fn a_job_is_the_same_again_on_emulated_intel() {
    the_same_twice("intel-apicv", &[], &["sh", "-c", JOB]);
}

/// Also from another snapshot: the first one is removed, so it is made again.
#[test]
fn a_job_is_the_same_again_on_emulated_amd() {
    // No other test uses hosts of this shape.
    const ARGUMENT: &str = "exitless.saved=again";
    let forget = || {
        let snapshots = lab::Cache::of_user().unwrap().root().join("snapshots");
        let folders = fs::read_dir(&snapshots).unwrap().map(|entry| entry.unwrap().path());
        let is_of_this = |shape: String| shape.contains(ARGUMENT);
        let made =
            folders.filter(|folder| fs::read_to_string(folder.join("shape.json")).is_ok_and(is_of_this));
        let removed = made.map(|folder| fs::remove_dir_all(folder).unwrap()).count();
        // There may be another one, made by an earlier build of exitless.
        assert!(removed > 0, "this host has no snapshot");
    };
    the_same_around("amd-svm", &["--kernel-argument", ARGUMENT], &["sh", "-c", JOB], forget);
}

/// All cycles and exits of a VM in both arms.
#[test]
fn a_vm_is_the_same_again_on_emulated_amd() {
    let measures =
        ["--measure", "ipi-halted", "--measure", "eoi", "--measure", "pio-user", "--samples", "100"];
    the_same_twice("amd-avic", &[], &[&["exitless", "probe", "--json"], &measures[..]].concat());
}

/// A guest of QEMU with a disk: the time of its start, and the times that it sees.
#[test]
fn a_guest_is_the_same_again_on_emulated_amd() {
    assert_eq!(run(&["guest", "build"]).status, 0);
    let script = "for turn in 1 2 3 4 5; do sleep 0.02; date +%N; done; head -c 1000000 /dev/zero >file; sync; \
                  date +%N; cat /proc/uptime /proc/interrupts";
    let table = "memory = \"128M\"\nmachine = \"microvm\"\ndisk = { size = \"8M\" }";
    let command = ["exitless", "guest", "run", "--json", "--set", table, "--", script];
    the_same_twice("amd-svm", &["--guest-image"], &command);
}

/// A network card and its virtual function send to each other: the duration, and each interrupt that the
/// IOMMU remaps.
#[test]
fn a_network_card_is_the_same_again_on_emulated_amd() {
    let script = "set -e; CARD=/sys/bus/pci/devices/0000:02:00.0; FUNCTION=/sys/bus/pci/devices/0000:02:10.0
        modprobe igb; until PORT=$(ls $CARD/net); do sleep 0.1; done; date +%N; echo 1 > $CARD/sriov_numvfs
        busybox ip addr add 10.0.0.1/24 dev $PORT; busybox ip link set $PORT up
        modprobe igbvf; until OTHER=$(ls $FUNCTION/net); do sleep 0.1; done; date +%N
        unshare -n sleep 1000 & sleep 0.2; busybox ip link set $OTHER netns $!
        nsenter -t $! -n sh -c \"busybox ip addr add 10.0.0.2/24 dev $OTHER; busybox ip link set $OTHER up
            until busybox ping -c 1 -W 1 10.0.0.1; do sleep 1; done; busybox ping -c 5 -i 0.1 10.0.0.1\"
        kill $!; date +%N; cat /proc/uptime /proc/interrupts";
    the_same_twice("amd-avic", &DEVICES, &["sh", "-c", script]);
}

/// The runs of a study, with all samples of the host.
#[test]
fn a_study_with_a_seed_has_the_same_figures_again() {
    let folder = tempfile::tempdir().unwrap();
    let plan = include_str!("../../../../plans/ipi-cost-lab.toml");
    let mut workloads = plan.match_indices("[[workloads]]");
    let more = &plan[workloads.nth(1).unwrap().0..];
    let changes = [("repeats = 4", "repeats = 1\nseed = 5"), (more, "")];
    let plan = shortened(plan, &changes, folder.path());
    let [first, second] = ["first", "second"].map(|name| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        study(plan.to_str().unwrap(), "amd-avic", 2, &folder)
    });
    assert!(first["figures"].as_array().unwrap().len() > 7);
    assert_eq!(first["figures"], second["figures"]);
}
