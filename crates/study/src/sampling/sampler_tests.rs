use super::*;
use crate::sampling::table::tests::rows_of;
use crate::sampling::{ExitCounting, is_sampled};
use std::fs;

/// A host with two CPUs, and a guest with two vCPUs, an I/O thread and a vhost worker in the kernel.
pub(crate) const GUEST: &str = "
== /proc/stat
cpu  1000 0 500 8000 300 0 0 0 600 0
cpu0 500 0 250 4000 150 0 0 0 300 0
cpu1 500 0 250 4000 150 0 0 0 300 0
ctxt 1000
btime 1700000000
== /proc/interrupts
           CPU0       CPU1
 24:          7          0  PCI-MSIX-0000:00:05.0   0-edge      nvme0q1
LOC:       1000       2000   Local timer interrupts
== /sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq each=2
1200000
== /proc/4000/comm
qemu-system-x86
== /proc/4000/cmdline arguments
qemu-system-x86_64
-name
web
== /proc/4000/exe -> /usr/bin/qemu-system-x86_64
== /proc/4000/stat
4000 (qemu-system-x86) S 1 4000 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 4 0 341 0 0
== /proc/4000/fd/10 -> anon_inode:kvm-vm
== /proc/4000/fd/11 -> anon_inode:kvm-vcpu:0
== /proc/4000/fd/12 -> anon_inode:kvm-vcpu:1
== /proc/4000/task/4000/comm
qemu-system-x86
== /proc/4000/task/4000/stat
4000 (qemu-system-x86) S 1 4000 0 0 -1 0 0 0 0 0 10 5 0 0 20 0 4 0 341 0 0
== /proc/4000/task/4000/schedstat
100000000 1000 9
== /proc/4000/task/4001/comm
CPU 0/KVM
== /proc/4000/task/4001/stat
4001 (CPU 0/KVM) S 1 4000 0 0 -1 0 0 0 0 0 10 5 0 0 20 0 4 0 342 0 0
== /proc/4000/task/4001/schedstat
100000000 1000 9
== /proc/4000/task/4002/comm
CPU 1/KVM
== /proc/4000/task/4002/stat
4002 (CPU 1/KVM) S 1 4000 0 0 -1 0 0 0 0 0 10 5 0 0 20 0 4 0 343 0 0
== /proc/4000/task/4002/schedstat
100000000 1000 9
== /proc/4000/task/4003/comm
IO iothread1
== /proc/4000/task/4003/stat
4003 (IO iothread1) S 1 4000 0 0 -1 0 0 0 0 0 10 5 0 0 20 0 4 0 344 0 0
== /proc/4000/task/4003/schedstat
100000000 1000 9
== /proc/4010/comm
vhost-4000
== /proc/4010/stat
4010 (vhost-4000) S 2 0 0 0 -1 2129984 0 0 0 0 10 5 0 0 20 0 1 0 345 0 0
== /proc/4010/cmdline
== /proc/4010/task/4010/comm
vhost-4000
== /proc/4010/task/4010/stat
4010 (vhost-4000) S 2 0 0 0 -1 0 0 0 0 0 10 5 0 0 20 0 1 0 345 0 0
== /proc/4010/task/4010/schedstat
100000000 1000 9
";

fn value(metrics: &[Metric], name: &str) -> f64 {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}: {metrics:?}")).value
}

fn long() -> SamplePlan {
    SamplePlan {
        interval: "60s".parse().unwrap(),
        exits: ExitCounting::During(false),
        ..SamplePlan::default()
    }
}

#[test]
fn what_changes_between_two_readings_is_in_the_figures_and_in_the_table() {
    let root = tempfile::tempdir().unwrap();
    host::fake::unpack(GUEST, root.path()).unwrap();
    let guests = [SampledGuest { name: "web".to_owned(), process: 4000 }];
    let sampler = Sampler::start(&long(), root.path(), &guests).unwrap();
    let put = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
    put(
        "proc/stat",
        "cpu  1100 0 500 8060 340 0 0 0 680 0\ncpu0 600 0 250 4000 150 0 0 0 380 0\n\
         cpu1 500 0 250 4060 190 0 0 0 300 0\nctxt 1300\n",
    );
    put("proc/interrupts", "CPU0 CPU1\n24: 9 0 nvme0q1\nLOC: 1004 2000 Local timer interrupts\n");
    put("proc/4000/task/4001/schedstat", "100000500 1600 12\n");
    put("proc/4010/task/4010/schedstat", "100000200 1000 12\n");
    let samples = sampler.finish();
    let metrics = samples.metrics();
    assert_eq!(samples.warnings(), Vec::<String>::new());
    // Every figure must be in the list that plans are checked against.
    let unknown = metrics.iter().find(|metric| !is_sampled(&metric.name));
    assert_eq!(unknown, None);
    for (name, expected) in [
        ("cpu.busy", 50.0),
        ("cpu.guest", 40.0),
        ("cpu.user", 10.0),
        ("cpu.iowait", 20.0),
        ("cpu.idle", 30.0),
    ] {
        assert!((value(&metrics, name) - expected).abs() < 1e-9, "{name}: {metrics:?}");
    }
    let rates = value(&metrics, "interrupts.LOC") / value(&metrics, "interrupts.devices");
    assert!((rates - 2.0).abs() < 1e-9, "4 against 2");
    assert!(
        (value(&metrics, "cpu.context-switches") / value(&metrics, "interrupts.total") - 50.0).abs() < 1e-9
    );
    // 600 ns of waiting and 500 ns of running over two vCPUs' time.
    let times = value(&metrics, "vcpu.run-queue-wait") / value(&metrics, "vcpu.running");
    assert!((times - 1.2).abs() < 1e-9, "{metrics:?}");
    assert!((value(&metrics, "vcpu.cpu") / value(&metrics, "vhost.cpu") - 2.5).abs() < 1e-9);
    assert_eq!(value(&metrics, "cpu.frequency"), 1.2e9);
    let sampling = value(&metrics, "sampling.cpu");
    assert!(sampling > 0.0);
    assert_eq!(value(&metrics, "cpu.without-sampling"), (50.0 - sampling).max(0.0));

    let folder = tempfile::tempdir().unwrap();
    samples.write(folder.path()).unwrap();
    assert!(!folder.path().join("exits.json").exists());
    let rows = rows_of(fs::read(folder.path().join("host.parquet")).unwrap());
    let values = |texts: [&str; 3]| -> Vec<u64> {
        rows.iter().filter(|row| row.1.each_ref().map(String::as_str) == texts).map(|row| row.2).collect()
    };
    assert_eq!(values(["cpu", "all", "user"]), [1000, 1100]);
    assert_eq!(values(["cpu", "cpu1", "iowait"]), [150, 190]);
    assert_eq!(values(["interrupts", "LOC", "count"]), [3000, 3004]);
    assert_eq!(values(["interrupts", "cpu0", "count"]), [1007, 1013]);
    assert_eq!(values(["thread", "web/vcpu0/4001", "wait-ns"]), [1000, 1600]);
    assert_eq!(values(["thread", "web/vhost/4010", "run-ns"]), [100_000_000, 100_000_200]);
    assert_eq!(values(["frequency", "cpu1", "khz"]), [1_200_000, 1_200_000]);
}

#[test]
fn what_is_not_there_is_said_and_the_rest_is_sampled() {
    let root = tempfile::tempdir().unwrap();
    host::fake::unpack("== /proc/stat\ncpu 1 2 3 4\n", root.path()).unwrap();
    let plan = SamplePlan { exits: ExitCounting::During(true), ..long() };
    let sampler = Sampler::start(&plan, root.path(), &[]).unwrap();
    fs::write(root.path().join("proc/stat"), "cpu 2 2 3 5\n").unwrap();
    let samples = sampler.finish();
    assert_eq!(value(&samples.metrics(), "cpu.busy"), 50.0);
    assert!(samples.profile().is_none());
    let warnings = samples.warnings().join("\n");
    for named in ["no cpufreq", "proc/interrupts has no line of CPUs", "VM exits were not counted by reason"]
    {
        assert!(warnings.contains(named), "{named}: {warnings}");
    }
}

#[test]
fn this_host_is_read_at_every_interval() {
    let plan = SamplePlan {
        interval: "50ms".parse().unwrap(),
        exits: ExitCounting::During(false),
        ..SamplePlan::default()
    };
    let this = SampledGuest { name: "this".to_owned(), process: i32::try_from(std::process::id()).unwrap() };
    let begun = Instant::now();
    let sampler = Sampler::start(&plan, Path::new("/"), &[this]).unwrap();
    std::thread::sleep(Duration::from_millis(230));
    let samples = sampler.finish();
    let most = 2 + usize::try_from(begun.elapsed().as_millis() / 50).unwrap();
    let rows = rows_of(samples.table.clone());
    let times: BTreeSet<u64> = rows.iter().map(|row| row.0).collect();
    // A busy machine may be late, but the first and the last reading are always there.
    assert!((2..=most).contains(&times.len()), "{times:?}");
    let metrics = samples.metrics();
    assert!(value(&metrics, "sampling.cpu") < 100.0);
    assert!(value(&metrics, "emulator.cpu") >= 0.0);
    let shares = ["busy", "idle", "iowait", "steal"].map(|state| value(&metrics, &format!("cpu.{state}")));
    assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{metrics:?}");
}

#[test]
fn a_sampler_that_is_dropped_ends() {
    let root = tempfile::tempdir().unwrap();
    let Sampler { stop, thread } = Sampler::start(&long(), root.path(), &[]).unwrap();
    drop(stop);
    assert!(!thread.join().unwrap().warnings.is_empty());
}
