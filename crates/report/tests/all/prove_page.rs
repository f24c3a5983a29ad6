//! Tests of the page of `prove`: its content, resources that it must not load, and hostile text.

use probe::measure::Measure;
use prove::synthetic::{only_off, recording};
use prove::{Plan, Proof, Recording, Tracing, Warning, analyse};

fn sample() -> Recording {
    let measures = vec![Measure::Floor, Measure::IpiRunning, Measure::Eoi, Measure::Cpuid];
    recording(Plan { measures, samples: 40, counted_samples: 100, ..Plan::quick() }, 1)
}

fn page(recording: &Recording) -> (Proof, String) {
    let outcome = analyse(recording).unwrap();
    let page = report::prove::page(&outcome, recording);
    (outcome, page)
}

fn one_arm() -> Recording {
    let mut one = only_off(sample(), "kvm_intel was loaded with enable_apicv=N");
    one.tracing = Tracing::Statistics { why: "tracefs may only be used by root".to_owned() };
    one.counted.iter_mut().for_each(|counted| counted.exits = None);
    one
}

#[test]
fn a_page_as_it_was_when_it_was_last_looked_at() {
    // One element per line, so that changes are easy to see.
    let lines = page(&sample()).1.replace("><", ">\n<");
    insta::assert_snapshot!(lines);
}

#[test]
fn nothing_is_loaded_from_anywhere() {
    for recording in [sample(), one_arm()] {
        let page = page(&recording).1;
        for load in ["http://", "https://", "//cdn", "<script", "<link", "<img", "@import", "url("] {
            assert!(!page.contains(load), "{load}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn hostile_text_stays_text() {
    const HOSTILE: &str = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";
    let mut hostile = sample();
    hostile.version = HOSTILE.to_owned();
    hostile.fingerprint.kernel_release = Some(HOSTILE.to_owned());
    hostile.fingerprint.cmdline = Some(HOSTILE.to_owned());
    hostile.fingerprint.virtualization = Some(HOSTILE.to_owned());
    hostile.fingerprint.missing = vec![HOSTILE.to_owned()];
    hostile.tracing = Tracing::Statistics { why: HOSTILE.to_owned() };
    hostile.arm_checks[0].note = HOSTILE.to_owned();
    hostile.emulated = Some(HOSTILE.to_owned());
    let mut outcome = analyse(&hostile).unwrap();
    outcome.evidence.reason = Some(HOSTILE.to_owned());
    outcome.evidence.notes = vec![HOSTILE.to_owned()];
    outcome.warnings.push(Warning::Nested { below: HOSTILE.to_owned() });
    let page = report::prove::page(&outcome, &hostile);
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn no_figure_is_nonsense() {
    let mut empty_runs = sample();
    empty_runs.timed.retain(|timed| timed.run.measure != Measure::Cpuid);
    let mut zeros = sample();
    for timed in &mut zeros.timed {
        timed.run.cycles.fill(if timed.run.measure == Measure::Floor { 0 } else { 7 });
    }
    for recording in [sample(), one_arm(), empty_runs, zeros] {
        let page = page(&recording).1;
        for nonsense in ["NaN", "inf%", "inf\"", "-nan"] {
            assert!(!page.contains(nonsense), "{nonsense}");
        }
    }
}

#[test]
fn every_chart_has_words() {
    let page = page(&sample()).1;
    let charts = page.matches("<svg role=\"img\"").count();
    assert_eq!(page.matches("<title>").count(), charts + 1);
    assert!(charts >= 9, "{charts}");
}

#[test]
fn one_arm_alone_is_never_compared() {
    let (_, page) = page(&one_arm());
    for word in ["95 % interval", "interrupt virtualization on", "Change, %"] {
        assert!(!page.contains(word), "{word}");
    }
}
