//! The files of the data set: written atomically and once, under harmless names; joined and deleted.

use std::process::Stdio;
use std::time::Instant;

use serde_json::json;

use super::{DataSet, fixture, program};

const COUNT: &str = "SELECT (SELECT count(*) FROM raw.exits) AS exits, (SELECT sum(exits) FROM raw.exits) AS sum, \
                     (SELECT count(*) FROM raw.vms) AS vms, (SELECT count(*) FROM raw.findings) AS findings";

#[test]
fn what_is_added_twice_is_there_once() {
    let data = DataSet::new();
    let file = fixture("stat.json").display().to_string();
    let first = data.add("a", "2026-03-01T12:00:00Z", &file);
    assert!(first.out.ends_with("rows in 2 files\n"), "{}", first.out);
    let again = data.add("a", "2026-03-01T12:00:00Z", &file);
    assert_eq!(again.out, "Added 0 rows in 0 files; 2 had been added before\n");
    assert_eq!(data.rows(COUNT)[0]["sum"], 360 + 369);
}

#[test]
fn a_refused_file_is_named_and_the_others_are_added() {
    let data = DataSet::new();
    let bad = data.file("bad.json", "{\"format\": 1}");
    let said =
        data.run("add", &["--host", "a", &bad, &fixture("vms.json").display().to_string(), "/nowhere"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains("bad.json, document 1: this is not the --json output of"), "{}", said.err);
    assert!(said.err.contains("Opening /nowhere failed"), "{}", said.err);
    assert!(said.out.starts_with("Added 2 rows in 1 file"), "{}", said.out);
}

#[test]
fn hostile_names_stay_below_the_store_and_come_back_as_they_are() {
    let data = DataSet::new();
    let names = [
        "../../../etc/cron.d",
        "a=b/host=c",
        "<script>alert(1)</script>",
        "\u{1b}[2J\u{202e}x",
        "..",
        "%2e%2e",
        " é\n",
    ];
    let vm = "../x=y\u{1b}]0;\u{7}<b>";
    let document = json!({"format": 1, "version": "0", "unreadable": 0,
        "vms": [{"pid": 1, "name": vm, "vmm": "qemu"}]});
    let file = data.file("vms.json", &document.to_string());
    for name in names {
        data.add(name, "2026-03-01T12:00:00Z", &file);
    }
    let outside = std::fs::read_dir(data.folder.path()).unwrap().count();
    assert_eq!(outside, 2, "the store and the file");
    assert_eq!(data.files().len(), names.len());
    for path in data.files() {
        let path = path.strip_prefix(data.store()).unwrap().to_str().unwrap().to_owned();
        let [table, date, host, name] = path.split('/').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((table, date), ("vms", "date=2026-03-01"));
        assert!(host.starts_with("host=") && !host[5..].contains(['=', '<', '\u{1b}', ' ']), "{host}");
        assert!(name.ends_with(".parquet"));
    }
    let rows = data.rows("SELECT host, vm FROM vms");
    let mut seen: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["host"].as_str().unwrap()).collect();
    seen.sort_unstable();
    let mut names = names;
    names.sort_unstable();
    assert_eq!(seen, names);
    assert_eq!(rows[0]["vm"], vm);
    let table = data.run("query", &["SELECT host, vm FROM vms"]).well();
    assert!(!table.out.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{:?}", table.out);
}

#[test]
fn joined_files_hold_the_same_rows_and_a_second_time_does_nothing() {
    let data = DataSet::full();
    data.add_fixture("lab-1", "2026-03-01T13:00:00Z", "stat.json");
    data.add_fixture("lab-1", "2026-03-01T14:00:00Z", "stat.json");
    let (before, files) = (data.rows(COUNT), data.files().len());
    let said = data.run("compact", &["--until", "2026-03-01"]).well();
    // Hosts: doctor and verify; VMs: verify and vms; three times stat; parameters of doctor and verify.
    assert!(said.out.starts_with("Joined 5 days of hosts; deleted 12 files"), "{}", said.out);
    assert_eq!(data.files().len(), files - 12 + 5);
    assert_eq!(data.rows(COUNT), before);
    assert!(data.run("compact", &["--until", "2026-03-01"]).well().out.starts_with("Joined 0 days"));
    // The rows of joined files are known, and not added again.
    data.add_fixture("lab-1", "2026-03-01T13:00:00Z", "stat.json");
    assert_eq!(data.rows(COUNT), before);
    assert!(data.run("compact", &["--until", "2026-03-01"]).well().out.contains("deleted 2 files"));
    // More files lead to a second generation.
    data.add_fixture("lab-1", "2026-03-01T15:00:00Z", "stat.json");
    data.run("compact", &["--until", "2026-03-01"]).well();
    assert_eq!(data.rows(COUNT)[0]["sum"].as_i64().unwrap(), before[0]["sum"].as_i64().unwrap() + 729);
    data.add_fixture("lab-1", "2026-03-01T13:00:00Z", "stat.json");
    assert_eq!(data.rows(COUNT)[0]["sum"].as_i64().unwrap(), before[0]["sum"].as_i64().unwrap() + 729);
}

#[test]
fn a_compaction_that_was_killed_before_it_deleted_shows_nothing_twice() {
    let data = DataSet::new();
    for hour in 10..14 {
        data.add_fixture("a", &format!("2026-03-01T{hour}:00:00Z"), "stat.json");
    }
    let before = data.rows(COUNT);
    let small = data.files();
    let kept = tempfile::tempdir().unwrap();
    for (number, file) in small.iter().enumerate() {
        std::fs::copy(file, kept.path().join(number.to_string())).unwrap();
    }
    data.run("compact", &["--until", "2026-03-01"]).well();
    for (number, file) in small.iter().enumerate() {
        std::fs::copy(kept.path().join(number.to_string()), file).unwrap();
    }
    assert_eq!(data.rows(COUNT), before);
    assert!(data.run("compact", &["--until", "2026-03-01"]).well().out.contains("deleted 8 files"));
    assert_eq!((data.files().len(), data.rows(COUNT)), (2, before));
}

#[test]
fn queries_beside_two_compactions_see_each_row_once() {
    let data = DataSet::new();
    for minute in 10..40 {
        data.add_fixture("a", &format!("2026-03-01T10:{minute}:00Z"), "stat.json");
    }
    let before = data.rows(COUNT);
    let compact = || {
        let mut command = program();
        command.args(["compact", "--store", &data.store(), "--until", "2026-03-01"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut compactions = [compact(), compact()];
    while compactions.iter_mut().any(|one| one.try_wait().unwrap().is_none()) {
        assert_eq!(data.rows(COUNT), before);
    }
    data.run("compact", &["--until", "2026-03-01"]);
    assert_eq!((data.files().len(), data.rows(COUNT)), (2, before));
}

#[test]
fn old_days_are_counted_first_and_deleted_when_that_is_said() {
    let data = DataSet::new();
    data.add_fixture("a", "2026-03-01T10:00:00Z", "stat.json");
    data.add_fixture("a", "2026-03-02T10:00:00Z", "verify.json");
    let files = data.files().len();
    let dry = data.run("retain", &["--days", "1"]).well();
    assert!(dry.out.contains("Would delete (--apply does)"), "{}", dry.out);
    assert_eq!(data.files().len(), files);
    let kept = data.run("retain", &["--days", "36500", "--apply", "--json"]).well();
    assert_eq!((kept.json()["files"].clone(), data.files().len()), (json!(0), files));
    let all = data.run("retain", &["--days", "1", "--apply", "--json"]).well();
    assert_eq!((all.json()["files"].clone(), data.files().len()), (json!(files), 0));
    assert_eq!(data.rows("SELECT count(*) AS n FROM hosts")[0]["n"], 0);
}

#[test]
fn a_kill_at_any_time_leaves_whole_files_alone() {
    let data = DataSet::new();
    let stat = fixture("doctor.json").display().to_string();
    let began = Instant::now();
    data.add_fixture("b", "2026-03-01T12:00:00Z", "doctor.json");
    let took = began.elapsed();
    for round in 0..40_u32 {
        let time = format!("2026-03-01T12:00:{round:02}Z");
        let mut child = program()
            .args(["add", "--store", &data.store(), "--host", "a", "--time", &time, &stat])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(took * round / 30);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let said = data.run("query", &["--json", "--strict", "SELECT count(*) AS n FROM raw.findings"]).well();
    assert_eq!(said.json()["left_out"], json!([]));
    for path in data.files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(".unfinished-") || name.ends_with(".parquet"), "{name}");
    }
}

#[test]
fn a_place_that_is_none_is_refused() {
    let data = DataSet::new();
    for (store, why) in [
        ("ftp://x/y", "ftp:// is not known"),
        ("http://x/y", "http:// is not known"),
        ("/nowhere/at/all", "Opening the folder /nowhere/at/all failed"),
    ] {
        let said = super::run(&["query", "--store", store, "SELECT 1"]);
        assert_eq!(said.status, 125);
        assert!(said.err.contains(why), "{}", said.err);
    }
    drop(data);
}
