//! `exitless trace` on real KVMs, compared with perf.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::{LIMIT, quick_boot, run};

/// The start of the scripts. `traced NAME ARGUMENT...` starts a trace and returns when it runs; `ended NAME`
/// interrupts it and writes its status to a file.
const PRELUDE: &str = r#"
mkdir -p out; cd out
traced() {
    name=$1; shift
    "$@" > $name.out 2> $name.err & eval "${name}=$!"
    until grep -q 'ends it' $name.err; do sleep 0.1; done
}
ended() { eval "pid=\$$1"; kill -INT $pid; wait $pid; echo $? > $1.status; }
probe() { exitless probe --warm-up 0 --blocks 1 "$@" > probe.out 2> probe.err; }
"#;

/// Runs a script in a laboratory, and copies its folder of files out.
fn in_lab(lab: &str, script: &str, folder: &Path) -> impl Fn(&str) -> String {
    let script = format!("{PRELUDE}{script}");
    let output = folder.to_str().unwrap();
    let said = run(&[
        "lab",
        "run",
        lab,
        "--timeout",
        LIMIT,
        "--get",
        "out",
        "--output",
        output,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    let home = folder.join("out");
    move |name| fs::read_to_string(home.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

fn assert_in_order(lines: &[Value]) {
    assert!(
        lines.is_sorted_by_key(|line| line["time_ns"].as_u64()),
        "the lines are not in the order of time"
    );
}

#[test]
fn svm_windows_losses_and_cpus_that_come_and_go() {
    let script = r#"
traced windows exitless trace --json
perf stat -a -e kvm:kvm_exit --filter 'exit_reason == 0x64' -x, -o perf.csv \
    exitless probe --measure hlt --samples 500 --warm-up 0 --blocks 1 > /dev/null 2>&1
ended windows

traced few exitless trace --count 3 --event irq-window
probe --measure hlt --samples 100
wait $few; echo $? > few.status

traced stopped exitless trace --json --event irq-window
kill -STOP $stopped
perf stat -a -e kvm:kvm_exit --filter 'exit_reason == 0x64' -x, -o perf-stopped.csv \
    exitless probe --measure hlt --samples 8000 --warm-up 0 --blocks 1 > /dev/null 2>&1
kill -CONT $stopped; ended stopped

echo 0 > /sys/devices/system/cpu/cpu1/online
traced plug exitless trace --json --event irq-window
echo 1 > /sys/devices/system/cpu/cpu1/online; sleep 2
taskset -c 1 exitless probe --no-pin --measure hlt --samples 100 --warm-up 0 --blocks 1 > /dev/null 2>&1
echo 0 > /sys/devices/system/cpu/cpu1/online; sleep 2
probe --no-pin --measure hlt --samples 100
echo 1 > /sys/devices/system/cpu/cpu1/online; sleep 2
taskset -c 1 exitless probe --no-pin --measure hlt --samples 100 --warm-up 0 --blocks 1 > /dev/null 2>&1
taskset -c 0 exitless probe --no-pin --measure hlt --samples 100 --warm-up 0 --blocks 1 > /dev/null 2>&1
echo 0 > /sys/devices/system/cpu/cpu1/online; echo 1 > /sys/devices/system/cpu/cpu1/online; sleep 2
taskset -c 1 exitless probe --no-pin --measure hlt --samples 100 --warm-up 0 --blocks 1 > /dev/null 2>&1
ended plug

setpriv --reuid 65534 exitless trace > denied.out 2> denied.err; echo $? > denied.status
chmod -R a+rX /sys/kernel/tracing
setpriv --reuid 65534 exitless trace > events.out 2> events.err; echo $? > events.status
exitless trace --duration 300ms --json > brief.out 2> brief.err; echo $? > brief.status
modprobe -r kvm_amd kvm
exitless trace > nothing.out 2> nothing.err; echo $? > nothing.status
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = in_lab("amd-svm", script, folder.path());
    let counted = |name: &str| -> u64 {
        let text = file(name);
        let line =
            text.lines().find(|line| line.contains("kvm:kvm_exit")).unwrap_or_else(|| panic!("{text}"));
        line.split(',').next().unwrap().parse().unwrap()
    };

    // As many windows as perf counted in the same run, each with its VM and vCPU.
    let lines = json(&file("windows.out"));
    let windows = of_kind(&lines, "irq-window");
    assert!(counted("perf.csv") > 500, "{}", file("perf.csv"));
    assert_eq!(windows.len() as u64, counted("perf.csv"), "{}", file("windows.err"));
    for window in windows {
        assert_eq!((&window["exit"], &window["process"]), (&"vintr".into(), &"exitless".into()), "{window}");
        assert!(window["vcpu"].as_u64().unwrap() < 2 && window["vm"].as_u64().unwrap() > 1, "{window}");
    }
    assert_in_order(&lines);
    assert!(file("windows.err").contains("none lost"), "{}", file("windows.err"));
    assert_eq!(file("windows.status").trim(), "0");

    let few = file("few.out");
    assert_eq!((few.lines().count(), file("few.status").trim()), (3, "0"), "{few}");
    assert!(few.lines().all(|line| line.ends_with("irq-window       vintr") && line.len() < 80), "{few}");

    // All events lost while the trace was stopped are counted.
    let lines = json(&file("stopped.out"));
    let lost: u64 = of_kind(&lines, "lost").iter().map(|line| line["events"].as_u64().unwrap()).sum();
    assert!(lost > 0, "{}", file("stopped.err"));
    assert_eq!(lost + of_kind(&lines, "irq-window").len() as u64, counted("perf-stopped.csv"));
    assert!(file("stopped.err").contains(" lost ("), "{}", file("stopped.err"));

    // A CPU is traced when it comes online, also for the second time, and if it was offline for less than a look.
    let mut cpus: Vec<u64> =
        json(&file("plug.out")).iter().map(|line| line["cpu"].as_u64().unwrap()).collect();
    assert!(cpus.len() > 500, "{}", file("plug.err"));
    cpus.dedup();
    assert_eq!(cpus, [1, 0, 1, 0, 1], "{}", file("plug.err"));
    assert_eq!(file("plug.status").trim(), "0");

    assert_eq!(file("denied.status").trim(), "125");
    assert!(file("denied.err").contains("/sys/kernel/tracing"), "{}", file("denied.err"));
    assert_eq!(file("events.status").trim(), "125");
    assert!(file("events.err").contains("CAP_PERFMON"), "{}", file("events.err"));
    assert_eq!((file("brief.out").as_str(), file("brief.status").trim()), ("", "0"));
    assert_eq!(file("nothing.status").trim(), "125");
    assert!(file("nothing.err").contains("modprobe kvm_intel"), "{}", file("nothing.err"));
}

#[test]
fn avics_inhibit_reasons_of_a_qemu_have_names_and_states() {
    let script = concat!(
        r#"
modprobe -r kvm_amd; modprobe kvm_amd avic=1 force_avic=1
traced web exitless trace --vm web
traced lines exitless trace --json --event all --unchanged
traced other exitless trace --vm other
qemu-system-x86_64 -name guest=web,debug-threads=on -M pc,accel=kvm -cpu host -smp 2 -m 256 \
    -kernel /opt/exitless/guest/vmlinux -initrd /opt/exitless/guest/initrd.img \
    -append 'console=ttyS0 panic=-1 reboot=t quiet "#,
        quick_boot!(),
        r#"' -nographic -no-reboot -nodefaults -no-user-config \
    -serial stdio > qemu.out 2>&1 < /dev/null & QEMU=$!
# All of it comes before user space, while the PIC delivers the timer.
seen() { grep -q 'cleared IRQWIN' web.out && grep -q 'irq-window .*vintr' web.out && grep -q '"changed":false' lines.out; }
until seen || ! kill -0 $QEMU; do sleep 0.2; done
kill $QEMU; wait $QEMU
ended web; ended lines; ended other
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let file = in_lab("amd-svm", script, folder.path());
    let text = file("web.out");
    for line in [
        "web             inhibit          set ABSENT: inhibited",
        "web             inhibit          cleared ABSENT: active",
        "web             inhibit          set PIT_REINJ: inhibited",
        "web             inhibit          set IRQWIN, beside PIT_REINJ",
        "web             inhibit          cleared IRQWIN: still PIT_REINJ",
        "web/0           irq-window       vintr",
    ] {
        assert!(text.lines().any(|found| found.get(13..) == Some(line)), "{line}\n{text}");
    }
    let cure = "fix: use -global kvm-pit.lost_tick_policy=discard";
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words.matches(cure).count(), 1, "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(file("other.out"), "");

    let lines = json(&file("lines.out"));
    assert_in_order(&lines);
    let changes = of_kind(&lines, "inhibit");
    let is_odd = |change: &&&Value| change["vm_name"] != "web" || change["complete"] != true;
    assert_eq!(changes.iter().find(is_odd), None, "{}", file("lines.err"));
    let reinjected = changes.iter().find(|change| change["reason"] == "PIT_REINJ").unwrap();
    assert_eq!(
        (&reinjected["state"], &reinjected["inhibited_by"][0]),
        (&"inhibited".into(), &"PIT_REINJ".into())
    );
    let shown = text.lines().filter(|line| line.contains(" inhibit  ")).count();
    let unchanged = changes.iter().filter(|change| change["changed"] == false).count();
    assert_eq!(shown + unchanged, changes.len(), "{}", file("web.err"));
    // Line breaks vary with the figures, so ignore them.
    let said = file("web.err").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unchanged > 0 && said.contains("that changed no inhibit reason"), "{}", file("web.err"));
}

#[test]
fn apicvs_windows_and_inhibit_changes_come_from_the_off_arm() {
    let script = r#"
traced lines exitless trace --json --event all
traced text exitless trace
probe --measure hlt --measure ipi-running --samples 50
ended lines; ended text
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = in_lab("intel-apicv", script, folder.path());
    let lines = json(&file("lines.out"));
    assert_in_order(&lines);
    // APICv is switched off before the first window, and on after the last.
    let mut active = false;
    let mut windows = 0;
    for line in &lines {
        match line["kind"].as_str().unwrap() {
            "inhibit" => active = line["state"] == "active",
            "irq-window" => {
                assert!(!active, "{line}");
                assert_eq!(line["exit"], "INTERRUPT_WINDOW");
                windows += 1;
            }
            _ => {}
        }
    }
    assert!(windows >= 50, "{windows}\n{}", file("lines.err"));
    let changes = of_kind(&lines, "inhibit");
    let blocked = |change: &str| {
        changes.iter().filter(|line| line["reason"] == "BLOCKIRQ" && line["change"] == change).count()
    };
    assert!(blocked("set") > 0 && blocked("cleared") > 0, "{}", file("lines.out"));
    assert!(!of_kind(&lines, "accept-irq").is_empty(), "{}", file("lines.err"));
    for line in ["set BLOCKIRQ: inhibited", "cleared BLOCKIRQ: active", "INTERRUPT_WINDOW"] {
        assert!(file("text.out").lines().any(|found| found.ends_with(line)), "{line}\n{}", file("text.out"));
    }
}

#[test]
fn exits_that_take_long_say_what_the_host_did_meanwhile() {
    // Busy loops compete with the vCPUs for CPUs. The bound is longer than the emulator's exits take, and
    // shorter than a time slice.
    let script = r#"
traced long exitless trace --json --longer-than 1ms
busy() { taskset -c $1 sh -c 'while :; do :; done' & }
busy 0; zero=$!; busy 1; one=$!
perf stat -a -e kvm:kvm_exit -x, -o perf.csv \
    exitless probe --measure cpuid --samples 5000 --warm-up 0 --blocks 1 > /dev/null 2>&1
kill $zero $one
ended long
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = in_lab("amd-svm", script, folder.path());
    assert_eq!(file("long.status").trim(), "0", "{}", file("long.err"));
    let summary = file("long.err").replace(',', "");
    let lines = json(&file("long.out"));
    let perf = file("perf.csv");
    let perf: u64 = perf
        .lines()
        .find(|line| line.contains("kvm:kvm_exit"))
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(perf >= 5_000 && summary.contains("none lost"), "{summary}");
    assert!(summary.contains(&format!("ends it.\n{} of ", lines.len())), "{summary}");
    assert_in_order(&lines);
    let number = |line: &Value, name: &str| line["meanwhile"][name].as_u64().unwrap();
    let mut preempted = 0;
    for line in &lines {
        assert_eq!(line["kind"], "long-exit", "{line}");
        let handling = line["handling_ns"].as_u64().unwrap();
        assert!(handling >= 1_000_000 && line["thread"].as_u64().unwrap() > 1, "{line}");
        if line["meanwhile"].is_null() {
            continue;
        }
        let parts = ["preempted_ns", "blocked_ns", "interrupts_ns", "user_ns", "kernel_ns"];
        assert_eq!(parts.iter().map(|part| number(line, part)).sum::<u64>(), handling, "{line}");
        let by_loop = line["meanwhile"]["instead"] == "sh" && number(line, "preempted_ns") > handling / 2;
        preempted += u64::from(by_loop);
    }
    assert!(preempted > 0, "no exit was preempted by a loop:\n{}", file("long.out"));
}
