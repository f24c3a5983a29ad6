//! Tests of the page of a synthetic evaluation.

use super::*;
use iocm_monitor::evaluation::EVALUATION_FORMAT;

fn made(monitor: u64) -> Evaluation {
    let one = |phase: &str, arrangement, served: u64| Measured {
        front_ends: 8,
        arrangement,
        phase: phase.to_owned(),
        asked_per_second: 1000.0,
        served_per_second: served as f64,
        p99_us: 1500,
        cpu_us_per_request: 2.5,
        windows: vec![served / 5; 10],
    };
    let of = |phase: &str| {
        [
            one(phase, Arrangement::ThreadEach, 800),
            one(phase, Arrangement::Shared(1), 500),
            one(phase, Arrangement::Shared(2), 1000),
            one(phase, Arrangement::Monitor, monitor),
        ]
    };
    Evaluation {
        evaluation: EVALUATION_FORMAT,
        cpus: 2,
        phase_seconds: 2.0,
        window_seconds: 0.2,
        measured: [of("small"), of("<b>bulk")].concat(),
    }
}

/// The page without its script's test for NaN.
fn written(measured: &Evaluation) -> String {
    page(measured).replace("Number.isNaN", "")
}

#[test]
fn the_page_says_what_was_aimed_for_and_draws_each_figure() {
    let page = written(&made(990));
    assert!(page.contains("2 of 2 phases as aimed for") && page.contains("at least 99.0 %"), "{page}");
    // The charts of the course, served requests, latency and CPU.
    assert_eq!(page.matches("<svg role=\"img\"").count(), 4);
    assert!(page.contains("1.50 ms") && page.contains("2 shared workers") && !page.contains("<b>"));
    for nonsense in ["NaN", "inf%", "inf\"", "http://", "https://"] {
        assert!(!page.contains(nonsense), "{nonsense}");
    }
    assert!(!page.contains("class=\"missed\""));
}

#[test]
fn a_miss_is_marked() {
    let page = page(&made(600));
    assert!(page.contains("0 of 2 phases") && page.contains("class=\"missed\"") && page.contains("never"));
}

#[test]
fn nothing_measured_is_a_page_too() {
    let page = written(&Evaluation { measured: Vec::new(), ..made(1) });
    assert!(page.contains("was not measured") && !page.contains("NaN"));
}
