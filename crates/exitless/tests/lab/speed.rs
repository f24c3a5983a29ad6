//! `lab run --speed`: the same instructions take less of the emulated clock.

use crate::command::run;

/// Prints the nanoseconds that a loop took.
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
        // A snapshot would serve this test alone.
        let (own, faster) = (loop_ns(lab, &[]), loop_ns(lab, &["--boot", "--speed", speed]));
        let measured = own / faster;
        // The loop includes timer interrupts, of which there are fewer in a shorter time.
        assert!((measured / ratio - 1.0).abs() < 0.03, "{lab}: {own} ns and {faster} ns, {measured} times");
    }
}

#[test]
fn a_speed_that_an_emulator_cannot_count_by_is_refused_before_anything_boots() {
    let said = run(&["lab", "run", "amd-svm", "--speed", "300", "--", "true"]);
    assert_eq!(said.status, 125, "{}", said.err);
    assert!(
        said.err.contains("possible: 125, 250, 500, 1000") && !said.err.contains("Starting"),
        "{}",
        said.err
    );
}
