//! Real outputs first, hostile ones second.

use super::*;
use proptest::prelude::*;

const DOCTOR: &str = include_str!("../../tests/fixtures/doctor.json");
const VERIFY: &str = include_str!("../../tests/fixtures/verify.json");
const VMS: &str = include_str!("../../tests/fixtures/vms.json");
const STAT: &str = include_str!("../../tests/fixtures/stat.json");
const REPORT: &str = include_str!("../../tests/fixtures/report.json");
const PROVE: &str = include_str!("../../tests/fixtures/prove.json");
const EXPERIMENT: &str = include_str!("../../tests/fixtures/experiment.json");
const ALL: &[&str] = &[DOCTOR, VERIFY, VMS, STAT, REPORT, PROVE, EXPERIMENT];

fn origin() -> Origin {
    Origin {
        file: "x.json".to_owned(),
        host: Some("web-1".to_owned()),
        time: DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
    }
}

fn of(text: &str) -> Rows {
    rows(text.as_bytes(), &origin()).unwrap()
}

fn refused(text: &str) -> String {
    rows(text.as_bytes(), &origin()).unwrap_err().to_string()
}

fn snapshot(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/report/");
    let text = std::fs::read_to_string(format!("{folder}{name}")).unwrap();
    text.splitn(3, "---\n").nth(2).unwrap().to_owned()
}

fn examination(name: &str) -> Rows {
    of(&snapshot(&format!("src/examination/snapshots/report__examination__tests__{name}-json.snap")))
}

#[test]
fn doctor_tells_what_a_host_could_do_and_does() {
    let fact = |rows: &Rows, name: &str| rows["hosts"][0][name].clone();
    let zen2 = examination("zen2");
    for (name, value) in [
        ("outcome", json!("switched-off")),
        ("kernel", json!("6.1.0-25-amd64")),
        ("module", json!("kvm_amd")),
        ("isa", json!("svm")),
        ("mechanism", json!("AVIC")),
        ("capable", json!(true)),
        ("enabled", json!(false)),
        ("fail", json!(1)),
    ] {
        assert_eq!(fact(&zen2, name), value, "{name}");
    }
    let xeon = examination("sapphire-rapids");
    assert_eq!((fact(&xeon, "mechanism"), fact(&xeon, "enabled")), (json!("APICv"), json!(true)));
    assert_eq!(fact(&xeon, "ipi_virtualization"), json!(true));
    let guest = examination("guest");
    assert_eq!((fact(&guest, "capable"), fact(&guest, "enabled")), (json!(false), Value::Null));
    let parameter = |rows: &Rows, name: &str| {
        let found = rows["parameters"].iter().find(|row| row["parameter"] == name);
        found.map(|row| row["value"].clone())
    };
    assert_eq!(parameter(&zen2, "avic"), Some(json!("N")));
    assert_eq!(parameter(&xeon, "enable_device_posted_irqs"), None, "it is not there");
}

#[test]
fn every_finding_of_doctor_is_a_row_with_its_fixes() {
    let zen2 = examination("zen2");
    let find = |rule: &str| zen2["findings"].iter().find(|row| row["rule"] == rule).unwrap();
    // 1 fail, 7 warn, 39 pass, 7 skip.
    assert_eq!(zen2["findings"].len(), 54);
    assert_eq!(find("kvm-interrupt-virtualization")["state"], "warn");
    assert!(find("pit-lost-ticks")["fixes"][0].as_str().unwrap().starts_with("definition: ["));
    assert_eq!(find("pit-lost-ticks")["section"], "web");
    assert!(!find("kernel-avic-id")["reason"].is_null());
}

#[test]
fn verify_and_vms_tell_the_state_of_each_vm() {
    let rows = of(VERIFY);
    let [pit, split] = rows["vms"].as_slice() else { panic!("{rows:?}") };
    assert_eq!(
        (&pit["vm_name"], &pit["state"], &pit["mode"]),
        (&json!("pit"), &json!("inhibited"), &json!("none"))
    );
    assert_eq!(pit["inhibit_reasons"], json!(["PIT_REINJ"]));
    assert_eq!(pit["fixes"][0], "qemu: -machine kernel-irqchip=split");
    assert_eq!((&pit["ipi_state"], &pit["ipi_why"]), (&json!("off"), &json!("inhibited")));
    assert_eq!((&split["state"], &split["active_vcpus"]), (&json!("unknown"), &json!(2)));
    assert_eq!(rows["hosts"][0]["capable"], false);
    assert_eq!(rows["parameters"][0]["parameter"], "avic");
    assert_eq!(of(VMS)["vms"][0]["vm_uuid"], "0f1d2c3b-4a59-6877-8695-a4b3c2d1e0f1");
}

#[test]
fn intervals_of_stat_follow_each_other_and_the_last_ends_at_the_time_of_the_file() {
    let rows = of(STAT);
    let [first, second] = rows["intervals"].as_slice() else { panic!("{rows:?}") };
    let end = 1_800_000_000_000_000_i64;
    assert_eq!(second["interval_end"], end);
    assert_eq!(second["interval_start"], end - 1_000_002);
    assert_eq!(first["interval_end"], end - 1_000_002);
    let sum = |table: &str| rows[table].iter().map(|row| row["exits"].as_i64().unwrap()).sum::<i64>();
    assert_eq!((sum("intervals"), sum("exits")), (360 + 369, 360 + 369));
    assert!(
        rows["exits"]
            .iter()
            .all(|row| row["source"] == "stat" && row["kernel"] == "6.12.118+deb13-cloud-amd64")
    );
}

#[test]
fn a_recording_keeps_its_exits_by_vm_and_reason() {
    let rows = of(REPORT);
    assert_eq!(rows["exits"][0]["vm_name"], "mix");
    assert_eq!((&rows["exits"][0]["reason"], &rows["exits"][0]["exits"]), (&json!("msr"), &json!(12115)));
    assert_eq!(rows["intervals"][0]["format"], "perf-data");
    // The host name of the guest that recorded it was never set.
    let unnamed = Origin { host: None, ..origin() };
    let error = rows_of(REPORT, &unnamed);
    assert_eq!(error, "x.json, document 1 (report) does not name its host; give --host NAME");
}

fn rows_of(text: &str, origin: &Origin) -> String {
    rows(text.as_bytes(), origin).unwrap_err().to_string()
}

#[test]
fn clocks_of_different_hosts_and_of_recordings_are_not_compared() {
    const HUNDRED_DAYS_NS: i64 = 100 * 24 * 3600 * 1_000_000_000;
    let at = |text: &str, host: &str, later_ns: i64| {
        let mut document: Value =
            serde_json::Deserializer::from_str(text).into_iter().next().unwrap().unwrap();
        document["files"][0]["origin"]["host"] = json!(host);
        for end in ["first_ns", "last_ns"] {
            document["span"][end] = json!(document["span"][end].as_i64().unwrap() + later_ns);
        }
        document.to_string()
    };
    for (text, host) in [(STAT, "web-2"), (REPORT, "web-2"), (REPORT, "web-1")] {
        let both = at(text, "web-1", 0) + &at(text, host, HUNDRED_DAYS_NS);
        let rows = rows(both.as_bytes(), &Origin { host: None, ..origin() }).unwrap();
        let ends: Vec<&Value> = rows["intervals"].iter().map(|row| &row["interval_end"]).collect();
        assert_eq!(ends, [1_800_000_000_000_000_i64; 2], "{host}");
    }
}

#[test]
fn recordings_of_two_hosts_are_not_put_down_to_one() {
    let two = snapshot("tests/all/snapshots/all__recordings__json_of_a_profile.snap");
    assert_eq!(
        refused(&two),
        "x.json, document 1 (report): field files: they are of host-17 and host-18; give one document for each host"
    );
}

#[test]
fn prove_and_probe_give_the_cost_of_each_arm() {
    let rows = of(PROVE);
    let [off, on] = rows["costs"].as_slice() else { panic!("{rows:?}") };
    assert_eq!(
        (&off["arm"], &off["median_cycles"], &on["median_cycles"]),
        (&json!("off"), &json!(3138.0), &json!(244.0))
    );
    assert_eq!((&off["effect"], &on["effect"]), (&Value::Null, &json!("fewer")));
    assert_eq!(off["time"], 1_750_000_000_000_000_i64, "its own time");
    assert_eq!(rows["parameters"].len(), 3);
    let probe = format!(r#"{{"result":{PROVE},"recording":{{}}}}"#);
    assert_eq!(of(&probe)["costs"].len(), 2);
}

#[test]
fn a_study_gives_each_figure_and_nothing_about_an_emulated_host() {
    let rows = of(EXPERIMENT);
    assert_eq!(rows["experiments"].len(), 6);
    let on =
        rows["experiments"].iter().find(|row| row["arm"] == "apicv on" && row["metric"] == "events").unwrap();
    assert_eq!(
        (&on["is_baseline"], &on["finding"], &on["runs"]),
        (&json!(false), &json!("not-seen"), &json!(17))
    );
    assert!(!rows.contains_key("hosts"));
}

#[test]
fn what_is_wrong_is_named_by_file_document_and_field() {
    let changed = |pointer: &str, value: Value| {
        let mut document: Value = serde_json::from_str(VERIFY).unwrap();
        *document.pointer_mut(pointer).unwrap() = value;
        refused(&document.to_string())
    };
    let begin = "x.json, document 1 (verify): field ";
    assert_eq!(
        changed("/vms/0/pid", json!("1")),
        format!("{begin}vms[0].pid: invalid type: string \"1\", expected i64")
    );
    assert_eq!(
        changed("/watched_ns", json!(u64::MAX)),
        format!("{begin}watched_ns: invalid value: integer `18446744073709551615`, expected i64")
    );
    assert!(
        changed("/vms/1/activation/status", json!("great"))
            .starts_with(&format!("{begin}vms[1].activation.status: "))
    );
    assert_eq!(changed("/format", json!(2)), format!("{begin}format: it is 2, and this program reads 1"));
    let second = format!("{VMS}\n{{\"vms\": []}}");
    assert!(
        refused(&second).starts_with("x.json, document 2: this is not the --json output of"),
        "{}",
        refused(&second)
    );
    assert!(refused("{\"a\": ").starts_with("x.json is not JSON: EOF"));
    assert_eq!(refused(" \n"), "x.json is empty");
    assert!(refused(&"[".repeat(10_000)).contains("recursion limit"));
}

#[test]
fn long_texts_are_cut_and_keep_no_host_from_being_reported() {
    let mut document: Value = serde_json::from_str(VERIFY).unwrap();
    // The limit is in the middle of a two-byte character.
    document["vms"][0]["name"] = json!(format!("x{}", "é".repeat(LONGEST_TEXT)));
    document["version"] = json!("y".repeat(2 * LONGEST_TEXT));
    let rows = of(&document.to_string());
    assert_eq!(rows["vms"][0]["vm_name"], json!(format!("x{}", "é".repeat(LONGEST_TEXT / 2 - 1))));
    assert_eq!(rows["vms"][1]["vm_name"], "split");
    assert_eq!(rows["vms"][0]["tool_version"].as_str().map(str::len), Some(LONGEST_TEXT));
    assert!(crate::write::check(&rows).is_ok());
}

#[test]
fn of_a_list_that_is_too_long_the_first_texts_stay() {
    let (half, most) = ("x".repeat(LONGEST_TEXT / 2), "é".repeat(LONGEST_TEXT / 2));
    let cut = |list: &[&str]| {
        let mut list = json!(list);
        shorten(&mut list);
        list
    };
    assert_eq!(cut(&["", "a", &half]), json!(["", "a", half]));
    assert_eq!(cut(&[&half, &half]), json!([half, half]));
    let rest = "é".repeat(LONGEST_TEXT / 4 - 1);
    assert_eq!(cut(&["a", &half, &most, "b", ""]), json!(["a", half, rest, ""]));
}

#[test]
fn rows_and_the_texts_that_they_repeat_have_bounds() {
    let document = |findings: usize| {
        let mut document: Value = serde_json::from_str(DOCTOR).unwrap();
        let mut section = document["sections"][0].clone();
        let mut finding = section["findings"][0].clone();
        finding["children"] = json!([]);
        section["title"] = json!("x".repeat(1 << 20));
        section["findings"] = json!(vec![finding; findings]);
        document["sections"] = json!([section]);
        document.to_string()
    };
    let why = "(doctor): field (all): the file gives more than 134217728 bytes of texts; \
               add its documents as several files";
    let half = document(1_100);
    assert_eq!(of(&half)["findings"].len(), 1_100);
    assert_eq!(refused(&format!("{half}{half}")), format!("x.json, document 2 {why}"));
    assert_eq!(refused(&document(2_100)), format!("x.json, document 1 {why}"));

    // No more is held than the limit.
    let mut gathered = Gathered { version: Some("y".repeat(LONGEST_TEXT)), ..Gathered::default() };
    let taken = (0..=MOST_ROWS).take_while(|_| gathered.row("vms", json!({})).is_ok()).count();
    assert_eq!((taken, gathered.rows["vms"].len()), (2048, 2048));
    let mut size = Size::default();
    assert!(size.add(&Size { rows: MOST_ROWS, text: 0 }).is_ok());
    let full = size.add(&Size { rows: 1, text: 0 }).unwrap_err();
    assert_eq!(full.why, "the file gives more than 200000 rows; add its documents as several files");
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let mut document: Value = serde_json::from_str(VERIFY).unwrap();
    document["news"] = json!({"a": [1]});
    document["vms"][0]["activation"]["news"] = json!(null);
    assert_eq!(of(&document.to_string())["vms"].len(), 2);
}

#[test]
fn single_accesses_are_not_taken_for_exits() {
    let text = REPORT.replacen(r#""vm","#, r#""msr","#, 1).replacen("\"vm\"", "\"msr\"", 1);
    assert!(
        refused(&text).contains("rows by msr are single accesses, not exits; use --by vm,reason"),
        "{}",
        refused(&text)
    );
}

#[test]
fn names_of_hosts_have_bounds() {
    for (name, length) in [(String::new(), 0), ("x".repeat(254), 254)] {
        let error = rows_of(VMS, &Origin { host: Some(name), ..origin() });
        assert_eq!(error, format!("x.json: the host's name has {length} bytes; it may have 1 to 253"));
    }
}

/// Documents with one value replaced.
fn damaged() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        any::<String>().prop_map(|text| json!(text)),
        Just(json!([])),
        Just(json!({})),
    ];
    (0..ALL.len(), any::<prop::sample::Index>(), value).prop_map(|(which, at, value)| {
        let text = ALL[which];
        let mut document: Value =
            serde_json::Deserializer::from_str(text).into_iter().next().unwrap().unwrap();
        let mut pointers = Vec::new();
        gather_pointers(&document, String::new(), &mut pointers);
        *document.pointer_mut(&pointers[at.index(pointers.len())]).unwrap() = value;
        document.to_string()
    })
}

fn gather_pointers(value: &Value, at: String, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                gather_pointers(value, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), into);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                gather_pointers(value, format!("{at}/{number}"), into);
            }
        }
        _ => {}
    }
    into.push(at);
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        let _ = rows(&bytes, &origin());
    }

    #[test]
    fn one_wrong_value_is_refused_by_name_or_fits_the_schema(text in damaged()) {
        match rows(text.as_bytes(), &origin()) {
            Ok(rows) => prop_assert!(crate::write::check(&rows).is_ok(), "{:?}", crate::write::check(&rows)),
            Err(error) => prop_assert!(error.to_string().starts_with("x.json"), "{error}"),
        }
    }

    #[test]
    fn any_prefix_is_refused_or_read(which in 0..ALL.len(), at in any::<prop::sample::Index>()) {
        let bytes = ALL[which].as_bytes();
        let _ = rows(&bytes[..at.index(bytes.len())], &origin());
    }
}
