//! `lab run --speed`: the same instructions take less emulated time.

use crate::command::run;

/// Prints the parameter `nested` of KVM's module, and the duration of a loop in nanoseconds, five times.
const LOOP: &str = "\
    test -c /dev/kvm || exit 9; cat /sys/module/kvm_*/parameters/nested; \
    for TIME in 1 2 3 4 5; do BEGAN=$(date +%s%N); I=0; while [ $I -lt 10000 ]; do I=$((I + 1)); done; \
    ENDED=$(date +%s%N); echo $((ENDED - BEGAN)); done";

/// The parameter, and the shortest duration of the loop. A loop is longer if the kernel gave its CPU to another task
/// meanwhile, never shorter.
fn looped(lab: &str, options: &[&str]) -> (String, f64) {
    let said = run(&[&["lab", "run", lab][..], options, &["--", "sh", "-c", LOOP]].concat());
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    let mut lines = said.out.lines();
    let nested = lines.next().unwrap_or_default().to_owned();
    let durations: Vec<f64> = lines.map_while(|line| line.parse().ok()).collect();
    assert_eq!(durations.len(), 5, "{}\n{}", said.out, said.err);
    (nested, durations.into_iter().fold(f64::INFINITY, f64::min))
}

#[test]
fn a_cpu_of_twice_the_speed_takes_half_the_time_and_kvms_parameters_can_be_chosen() {
    let faster_amd = ["--boot", "--speed", "500", "--kernel-argument", "kvm_amd.nested=0"];
    let faster_intel = ["--boot", "--speed", "100"];
    for (lab, options, ratio) in [("amd-svm", &faster_amd[..], 4.0), ("intel-apicv", &faster_intel[..], 2.0)]
    {
        // No other test could use the snapshot.
        let ((_, own), (nested, faster)) = (looped(lab, &[]), looped(lab, options));
        assert!(lab != "amd-svm" || nested == "0", "{nested}");
        let measured = own / faster;
        // Timer interrupts are part of the loop; a shorter loop has fewer of them.
        assert!((measured / ratio - 1.0).abs() < 0.03, "{lab}: {own} ns and {faster} ns, {measured} times");
    }
}

#[test]
fn a_speed_that_an_emulator_cannot_count_by_is_refused_before_anything_boots() {
    let said = run(&["lab", "run", "amd-svm", "--speed", "300", "--", "true"]);
    assert_eq!(said.status, 2, "{}", said.err);
    assert!(
        said.err.contains("possible: 125, 250, 500, 1000") && !said.err.contains("Starting"),
        "{}",
        said.err
    );
}
