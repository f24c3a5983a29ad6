//! The predefined queries.

use serde_json::{Value, json};

use super::{DataSet, fixture};

/// A data set with a change of the kernel: six hours of each, with twice as many exits under the second.
fn fleet() -> DataSet {
    let data = DataSet::full();
    let line = std::fs::read_to_string(fixture("stat.json")).unwrap().lines().next().unwrap().to_owned();
    for hour in 0..12 {
        let mut document: Value = serde_json::from_str(&line).unwrap();
        let (kernel, scale) = if hour < 6 { ("6.1.0", 1) } else { ("6.12.0", 2) };
        document["files"][0]["origin"]["kernel"] = json!(kernel);
        for pointer in ["/totals/exits", "/totals/time_ns"] {
            let value = document.pointer_mut(pointer).unwrap();
            *value = json!(value.as_i64().unwrap() * scale + i64::from(hour % 3) * 4);
        }
        let file = data.file("hour.json", &document.to_string());
        data.add("changed", &format!("2026-03-04T{hour:02}:30:00Z"), &file);
    }
    data
}

#[test]
fn the_questions_of_a_fleet_are_answered() {
    let data = fleet();
    let report = data.run("report", &["--json"]).well().json();
    assert_eq!(report["idle_hosts"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["idle_hosts"][0]["host"], "zen2");
    // Its kernel does not handle its CPU's erratum, so there is no command.
    assert_eq!(report["idle_hosts"][0]["next_step"], json!(null));
    assert_eq!(report["inhibited_vms"][0]["inhibit_reasons"], json!(["PIT_REINJ"]));
    let reasons = report["reasons"].as_array().unwrap();
    assert!(
        reasons.iter().all(|row| !row["reason"].as_str().unwrap().eq_ignore_ascii_case("hlt")),
        "{reasons:?}"
    );
    let share: f64 = reasons.iter().map(|row| row["percent"].as_f64().unwrap()).sum();
    assert!((share - 100.0).abs() < 1e-6, "{share}");
    let drift = report["drift"].as_array().unwrap();
    assert!(
        drift.iter().any(|row| row["host"] == "zen2" && row["parameter"] == "avic" || row["host"] == "lab-1"),
        "{drift:?}"
    );
    let kernel = &report["kernels"][0];
    assert_eq!(
        (&kernel["host"], &kernel["before"], &kernel["after"]),
        (&json!("changed"), &json!("6.1.0"), &json!("6.12.0"))
    );
    assert_eq!((&kernel["hours"], &kernel["exits"]["finding"]), (&json!([6, 6]), &json!("more")));
    let (low, high) = (kernel["exits"]["low"].as_f64().unwrap(), kernel["exits"]["high"].as_f64().unwrap());
    assert!(low < 100.0 && 100.0 < high && low > 80.0, "{low} {high}");
    // 941 ms of each second, of which the guests slept for 930.
    let handling = kernel["handling_percent"][0].as_f64().unwrap();
    assert!((handling - 1.07).abs() < 0.01, "{handling}");
}

#[test]
fn handling_is_unknown_where_sleep_is_not_told_from_it() {
    let data = DataSet::new();
    let line = std::fs::read_to_string(fixture("stat.json")).unwrap().lines().next().unwrap().to_owned();
    for hour in 0..6 {
        let mut document: Value = serde_json::from_str(&line).unwrap();
        document["files"][0]["origin"]["kernel"] = json!(if hour < 3 { "6.1.0" } else { "6.12.0" });
        if hour < 3 {
            document["by"] = json!(["vm"]);
            for row in document["rows"].as_array_mut().unwrap() {
                (row["reason"], row["reason_code"]) = (Value::Null, Value::Null);
            }
        }
        let file = data.file("hour.json", &document.to_string());
        data.add("mixed", &format!("2026-03-04T{hour:02}:30:00Z"), &file);
    }
    let report = data.run("report", &["--json"]).well().json();
    let kernel = &report["kernels"][0];
    assert_eq!((&kernel["hours"], &kernel["handling"]), (&json!([3, 3]), &Value::Null));
    assert_eq!(kernel["handling_percent"][0], Value::Null);
    let after = kernel["handling_percent"][1].as_f64().unwrap();
    assert!((after - 1.07).abs() < 0.01, "{after}");
}

#[test]
fn the_page_has_80_columns_and_no_control_characters() {
    let data = fleet();
    let hostile = format!("{}\u{1b}[31m<b>{}", "a-very-long-name-of-a-host.".repeat(4), "\u{202e}");
    let file = data.file("zen2.json", &super::examination("zen2"));
    data.add(&hostile, "2026-03-02T00:00:00Z", &file);
    let said = data.run("report", &[]).well();
    for line in said.out.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    assert!(!said.out.contains(['\u{1b}', '\u{202e}']));
    for word in ["Hosts that could run guests", "PIT_REINJ", "95 % interval", "zen2", "6.12.0"] {
        assert!(said.out.contains(word), "{word}: {}", said.out);
    }
}

#[test]
fn a_baseline_is_a_host_of_the_data_set() {
    let data = fleet();
    let report = data.run("report", &["--json", "--baseline", "sapphire-rapids"]).well().json();
    assert!(
        report["drift"].as_array().unwrap().iter().all(|row| row["host"] != "sapphire-rapids"),
        "{report}"
    );
    let said = data.run("report", &["--baseline", "nobody"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("no parameters of the baseline host nobody"), "{}", said.err);
}

#[test]
fn a_host_of_which_only_exits_are_known_is_counted() {
    let data = DataSet::new();
    data.add_fixture("only-exits", "2026-03-01T12:00:00Z", "stat.json");
    assert!(data.run("report", &[]).well().out.starts_with("1 host with 0 VMs\n"));
}

#[test]
fn an_empty_data_set_is_no_error() {
    let data = DataSet::new();
    std::fs::create_dir(data.store()).unwrap();
    assert!(data.run("report", &[]).well().out.starts_with("0 hosts with 0 VMs\n"));
}
