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
fn guests_with_other_settings_are_another_plan_and_names_of_the_host_are_listed() {
    let (mut before, mut after) = two();
    let guests = |vcpus: u32, bus: &str, pin: &str| {
        format!(r#"{{"kind":"qemu","vcpus":{vcpus},"disk":{{"bus":"{bus}"}},"pin":[{pin}]}}"#)
    };
    before.facts.guests = guests(2, "virtio-blk", "2,3");
    after.facts.guests = guests(4, "ide", "2,3");
    let error = difference(&before, &after).unwrap_err().to_string();
    let why = r#"the settings of their guests: disk.bus was "virtio-blk", is "ide"; vcpus was 2, is 4"#;
    assert!(error.contains(why), "{error}");
    after.facts.guests = guests(2, "virtio-blk", "2,5");
    let unlike = difference(&before, &after).unwrap().unlike;
    let pin = Unlike { field: "guests.pin[1]".to_owned(), values: vec![Some("3".into()), Some("5".into())] };
    assert_eq!(unlike.last(), Some(&pin));
    // Kept by an earlier version.
    after.facts.guests.clear();
    assert_eq!(difference(&before, &after).unwrap().unlike.len(), 1);
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
