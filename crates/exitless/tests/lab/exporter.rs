//! Metrics of an emulated host with a guest.

use crate::amd_svm::STILL_GUEST;
use crate::command::{LIMIT, run};

/// The value of the series with all of these labels.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let lines =
        text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    let mut found = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
    found.next()?.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn prometheus_is_told_of_a_guests_exits_and_of_avic() {
    // Exits are counted from the guest's boot; its state is read only every 30 seconds.
    let script = format!(
        "busybox ip link set lo up; exitless exporter --listen 127.0.0.1:9 --node-features features & EXPORTER=$!; \
         ask() {{ busybox wget -q -O metrics http://127.0.0.1:9/metrics; }}; until ask; do sleep 0.5; done; \
         {STILL_GUEST}; until grep -q virtualization.*active metrics; do sleep 2; ask; done; cat features >&2; cat metrics; \
         kill -TERM $EXPORTER; wait $EXPORTER; echo exporter ended with $? >&2; kill $QEMU"
    );
    let said = run(&["lab", "run", "amd-avic", "--timeout", LIMIT, "--", "sh", "-c", &script]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert!(said.err.contains("exporter ended with 0"), "{}", said.err);
    for feature in ["mechanism=AVIC", "enabled=true"] {
        assert!(said.err.contains(&format!("exitless-interrupt-virtualization.{feature}\n")), "{}", said.err);
    }
    let of = |name, labels: &[&str]| value(&said.out, name, labels);
    assert!(said.out.ends_with("# EOF\n"), "{}", said.out);
    assert_eq!(of("exitless_interrupt_virtualization", &["state=\"active\""]), Some(1.0), "{}", said.out);
    assert_eq!(of("exitless_interrupt_virtualization", &["state=\"inhibited\""]), Some(0.0));
    assert_eq!(of("exitless_vm_vcpus", &[]), Some(2.0));
    assert_eq!(of("exitless_lost_exits_total", &[]), Some(0.0));
    assert!(of("exitless_vcpu_run_seconds_total", &[]) > Some(0.0));
    assert!(of("exitless_halt_poll_seconds_total", &["result=\"failed\""]).is_some(), "{}", said.out);
    assert!(of("exitless_doctor_findings", &["state=\"pass\""]) > Some(10.0));
    assert!(of("exitless_exits_total", &["reason=\"hlt\""]) > Some(0.0), "{}", said.out);
    let infinite = of("exitless_exit_duration_seconds_bucket", &["le=\"+Inf\""]);
    assert!(infinite.is_some(), "{}", said.out);
    assert_eq!(infinite, of("exitless_exit_duration_seconds_count", &[]));
}
