use super::super::synthetic::{Made, study};
use super::*;

fn two() -> (Collected, Collected) {
    let before = study(&Made { shared: 0.01, ..Made::default() });
    let mut after = study(&Made { shared: 0.01, seed: 2, ..Made::default() });
    after.facts.target = "ssh://other".to_owned();
    for stored in &mut after.runs {
        stored.run.fingerprint.kernel_release = Some("6.18.0-example".to_owned());
        for metric in stored.run.guests.iter_mut().flatten().filter(|metric| metric.name == "throughput") {
            metric.value *= 1.1;
        }
    }
    (before, after)
}

#[test]
fn a_faster_host_is_seen_and_the_factor_does_the_same_on_both() {
    let (before, after) = two();
    let found = difference(&before, &after).unwrap();
    assert_eq!(
        found.unlike.iter().map(|unlike| unlike.field.as_str()).collect::<Vec<_>>(),
        ["kernel_release"]
    );
    let rows: Vec<_> = found.rows.iter().filter(|row| row.figure.metric == "throughput").collect();
    assert_eq!(rows.len(), 3 * 3 * 2);
    for row in rows {
        let change = row.change.unwrap();
        assert!((change.estimate - 10.0).abs() < 4.0, "{row:?}");
        assert_eq!((row.finding, change.is_paired), (Finding::Raised, false));
    }
    let throughput = found.effects.iter().filter(|row| row.figure.metric == "throughput");
    let differ = throughput.clone().filter(|row| row.finding.is_found()).count();
    assert!(differ <= 1, "{differ} of {}", throughput.count());
    assert!(found.only_one.is_empty());
}

#[test]
fn other_plans_are_refused() {
    let (before, mut after) = two();
    after.facts.workloads[0].settings = "{}".to_owned();
    let error = difference(&before, &after).unwrap_err().to_string();
    assert!(error.contains("their workloads or the settings of these"), "{error}");
    after.facts.name = "other".to_owned();
    assert!(difference(&before, &after).unwrap_err().to_string().contains("\"iozone-apicv\" and \"other\""));
}

#[test]
fn what_one_study_lacks_is_named() {
    let (before, mut after) = two();
    after.runs.retain(|stored| stored.run.cell.guests != 4 || stored.run.cell.workload != "pread");
    let found = difference(&before, &after).unwrap();
    assert_eq!(
        found.only_one,
        ["apicv off, 4 guests, pread (before only)", "apicv on, 4 guests, pread (before only)"]
    );
    after.runs.clear();
    assert!(matches!(difference(&before, &after), Err(NotCompared::NoRuns { .. })));
}
