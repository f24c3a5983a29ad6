//! A Linux guest with AVIC in everything that looks at VMs: a recording of `trace-cmd`, the metrics, `verify` and
//! `vms`. It boots once for all of them.

use std::fs;

use serde_json::Value;

use crate::command::{LIMIT, Said, quick_boot, run};

/// A QEMU guest that boots, powers off and stays in that state, so that its counters no longer change.
const STILL_GUEST: &str = concat!(
    "qemu-system-x86_64 -name guest=web,,1,debug-threads=on \
     -M microvm,accel=kvm,pit=off,pic=off,rtc=off,isa-serial=on,kernel-irqchip=split -cpu host -smp 2 -m 256 \
     -kernel /opt/exitless/guest/vmlinux -initrd /opt/exitless/guest/initrd.img \
     -append 'console=ttyS0 panic=-1 reboot=t quiet ",
    quick_boot!(),
    "' -nographic -nodefaults -no-user-config -no-shutdown \
     -object iothread,id=iothread1 -qmp unix:/tmp/qmp,server=on,wait=off -serial file:/tmp/serial & QEMU=$!; \
     until grep -q 'Power down' /tmp/serial; do sleep 1; done; sleep 2"
);

/// Starts the exporter, and records all exits while the guest boots. Exits are exported from the guest's boot;
/// its state is read only every 30 seconds.
const OBSERVED: &str = "\
    busybox ip link set lo up; exitless exporter --listen 127.0.0.1:9 --node-features features & EXPORTER=$!; \
    ask() { busybox wget -q -O metrics http://127.0.0.1:9/metrics; }; until ask; do sleep 0.5; done; \
    trace-cmd record -q -o /tmp/trace.dat -e kvm:kvm_exit \
        sh -c 'touch /tmp/tracing; until [ -e /tmp/over ]; do sleep 0.5; done' & TRACE=$!; \
    until [ -e /tmp/tracing ] || ! kill -0 $TRACE; do sleep 0.1; done";

/// Ends the observation.
const ENOUGH: &str = "\
    touch /tmp/over; wait $TRACE && ls -s /tmp/trace.dat >&2 || exit 8; \
    until grep -q virtualization.*active metrics; do sleep 2; ask; done; cat features >&2; \
    kill -TERM $EXPORTER; wait $EXPORTER; echo exporter ended with $? >&2";

/// Verifies the guest, which must have powered off: `verify` takes longer to start here than the guest to boot.
const VERIFIED: &str = "\
    exitless verify --json --duration 100ms > verify.json; \
    cat /sys/kernel/debug/kvm/$QEMU-*/irq_window_exits > windows; \
    echo virtual GIF: $(cat /sys/module/kvm_amd/parameters/vgif) >&2";

/// Lists the VM while its QMP connection is free, and while a machine without devices holds it.
const LISTED: &str = "\
    exitless vms --statistics --json > qmp.json || exit 9; \
    qemu-system-x86_64 -M none -accel tcg -nodefaults -display none \
        -chardev socket,id=holder,path=/tmp/qmp & HOLD=$!; sleep 2; \
    exitless vms --statistics --json > taken.json || exit 9; kill $HOLD; \
    exitless vms --vm nobody; echo status $?; cat /sys/kernel/debug/kvm/$QEMU-*/exits > debugfs; \
    exitless vms --vm web,1 --statistics; kill $QEMU; wait $QEMU; exitless vms";

#[test]
fn a_linux_guest_with_avic_is_recorded_exported_verified_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let files = ["/tmp/serial", "metrics", "verify.json", "windows", "qmp.json", "taken.json", "debugfs"];
    let script = format!("{OBSERVED}; {STILL_GUEST}; {ENOUGH}; {VERIFIED}; {LISTED}");
    let options = [&["--get"][..], &files, &["--output", output, "--", "sh", "-c", &script]].concat();
    let said = run(&[&["lab", "run", "amd-avic", "--timeout", LIMIT][..], &options[..]].concat());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);

    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(text("serial").contains("exitless guest up after"), "{}", text("serial"));
    assert_exported(&text("metrics"), &said);
    let json = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap();
    assert_verified(&json("verify.json"), &text("windows"), &said);
    let listed = [("qmp", json("qmp.json")), ("descriptors", json("taken.json"))];
    assert_listed(listed, text("debugfs").trim().parse().unwrap(), &said);
}

/// The value of the series with all of these labels.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let lines =
        text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    let mut found = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
    found.next()?.rsplit_once(' ')?.1.parse().ok()
}

/// Prometheus is told of the guest's exits and of AVIC.
fn assert_exported(metrics: &str, said: &Said) {
    assert!(said.err.contains("exporter ended with 0"), "{}", said.err);
    for feature in ["mechanism=AVIC", "enabled=true"] {
        assert!(said.err.contains(&format!("exitless-interrupt-virtualization.{feature}\n")), "{}", said.err);
    }
    let of = |name, labels: &[&str]| value(metrics, name, labels);
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert_eq!(of("exitless_interrupt_virtualization", &["state=\"active\""]), Some(1.0), "{metrics}");
    assert_eq!(of("exitless_interrupt_virtualization", &["state=\"inhibited\""]), Some(0.0));
    assert_eq!(of("exitless_vm_vcpus", &[]), Some(2.0));
    assert_eq!(of("exitless_lost_exits_total", &[]), Some(0.0));
    assert!(of("exitless_vcpu_run_seconds_total", &[]) > Some(0.0));
    assert!(of("exitless_halt_poll_seconds_total", &["result=\"failed\""]).is_some(), "{metrics}");
    assert!(of("exitless_doctor_findings", &["state=\"pass\""]) > Some(10.0));
    assert!(of("exitless_exits_total", &["reason=\"hlt\""]) > Some(0.0), "{metrics}");
    let infinite = of("exitless_exit_duration_seconds_bucket", &["le=\"+Inf\""]);
    assert!(infinite.is_some(), "{metrics}");
    assert_eq!(infinite, of("exitless_exit_duration_seconds_count", &[]));
}

/// `verify` has it from the kernel that AVIC is active.
fn assert_verified(seen: &Value, windows: &str, said: &Said) {
    assert_eq!(seen["status"], "active", "{seen}");
    let vm = &seen["vms"][0];
    assert_eq!((&vm["activation"]["mode"], &vm["activation"]["active_vcpus"]), (&"x2avic".into(), &2.into()));
    // AVIC is supported and enabled: bits 31 and 30 of int_ctl (AMD64 APM vol. 2, 15.29).
    assert_eq!(vm["activation"]["doubts"], serde_json::json!([]));
    for vcpu in vm["state"]["last"]["vcpus"].as_array().unwrap() {
        assert_eq!(vcpu["controls"]["svm"]["int_ctl"].as_u64().unwrap() >> 30, 3, "{vcpu}");
    }
    // Without virtual GIF, AVIC would interrupt a nested hypervisor that has cleared GIF.
    assert!(said.err.contains("virtual GIF: 1"), "{}", said.err);
    // Without AVIC a boot opens some 500 interrupt windows.
    let count: u32 = windows.trim().parse().unwrap();
    assert!(count < 100, "{count}");
}

/// `vms` finds the guest, and its counters are the kernel's from every source.
fn assert_listed(listed: [(&str, Value); 2], exits: u64, said: &Said) {
    assert!(exits > 1000, "{exits}");
    for ((origin, document), failures) in listed.iter().zip([0, 1]) {
        let vm = &document["vms"][0];
        assert_eq!(document["vms"].as_array().unwrap().len(), 1);
        assert_eq!((&vm["name"], &vm["vmm"]), (&"web,1".into(), &"qemu".into()));
        assert_eq!(vm["vcpus"].as_array().unwrap().len(), 2);
        assert_eq!(vm["iothreads"][0]["name"], "iothread1");
        let statistics = &vm["statistics"];
        assert_eq!(statistics["origin"], *origin, "{statistics}");
        assert_eq!(statistics["failures"].as_array().unwrap().len(), failures, "{statistics}");
        assert_eq!(statistics["total"]["exits"], exits, "by {origin}");
        let of_vcpus: u64 =
            ["0", "1"].iter().map(|one| statistics["vcpus"][one]["exits"].as_u64().unwrap()).sum();
        assert_eq!(of_vcpus, exits, "by {origin}");
    }
    let taken = listed[1].1["vms"][0]["statistics"]["failures"][0]["cause"].to_string();
    assert!(taken.contains("another program is connected"), "{taken}");
    assert!(said.out.contains("status 2") && said.err.contains("running: web,1 ("), "{}", said.err);
    assert!(
        said.out.contains("KVM's counters by QMP") && said.out.ends_with("No VM was found.\n"),
        "{}",
        said.out
    );
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
}
