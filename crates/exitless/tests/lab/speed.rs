//! `lab run --speed`: the same instructions take less emulated time.

use crate::command::run;

/// Prints the duration of a loop in nanoseconds.
const LOOP: &str = "\
    BEGAN=$(date +%s%N); I=0; while [ $I -lt 10000 ]; do I=$((I + 1)); done; ENDED=$(date +%s%N); echo $((ENDED - BEGAN))";

fn loop_ns(lab: &str, options: &[&str]) -> f64 {
    let said = run(&[&["lab", "run", lab][..], options, &["--", "sh", "-c", LOOP]].concat());
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    said.out.trim().parse().unwrap_or_else(|error| panic!("{error}: {}\n{}", said.out, said.err))
}

#[test]
fn a_cpu_of_twice_the_speed_takes_half_the_time() {
    for (lab, speed, ratio) in [("amd-svm", "500", 4.0), ("intel-apicv", "100", 2.0)] {
        // No other test could use the snapshot.
        let (own, faster) = (loop_ns(lab, &[]), loop_ns(lab, &["--boot", "--speed", speed]));
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
