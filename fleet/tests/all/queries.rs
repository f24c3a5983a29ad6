//! SQL: the views, the refusals, and the limits.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::DataSet;

fn document(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(super::fixture(name)).unwrap()).unwrap()
}

#[test]
fn every_view_answers() {
    let data = DataSet::full();
    for (view, rows) in [
        ("hosts", 5),
        ("vms", 2),
        ("findings", 51 + 43 + 18 + 40),
        ("apicv_state", 6),
        ("exits_by_reason", 20),
        ("ipi_cost", 2),
        ("experiments", 6),
        ("parameters", 20),
    ] {
        let found = data.rows(&format!("SELECT * FROM {view}"));
        let found = found.as_array().unwrap().len();
        // Where the fixtures have many rows, only check that there are some.
        assert!(if rows < 10 { found == rows } else { found > 5 }, "{view}: {found}");
    }
    let tables = data.run("query", &["SHOW TABLES"]).well();
    assert!(tables.out.contains("exits_by_reason") && tables.out.contains("raw"), "{}", tables.out);
    assert!(data.run("query", &["DESCRIBE hosts"]).well().out.contains("next_step"));
    assert!(data.run("query", &["EXPLAIN SELECT * FROM hosts"]).well().out.contains("raw"));
}

#[test]
fn tables_without_files_are_empty() {
    let data = DataSet::new();
    data.add_fixture("a", "2026-03-01T12:00:00Z", "vms.json");
    for view in ["experiments", "findings", "ipi_cost", "exits_by_reason", "raw.losses", "vms"] {
        let found = data
            .rows(&format!("SELECT host_name FROM raw.losses UNION ALL SELECT 'x' FROM {view} ORDER BY 1"));
        assert_eq!(found.as_array().unwrap().is_empty(), view != "vms", "{view}: {found}");
    }
}

#[test]
fn a_cluster_is_asked_by_a_program_of_its_own() {
    let data = DataSet::new();
    let sql = "SELECT 1";
    let ask = |path: &std::path::Path| -> super::Said {
        let arguments = [
            "query",
            "--store",
            "/x",
            "--cluster",
            "http://127.0.0.1:1",
            "--json",
            "--since",
            "2026-01-01",
            "--strict",
            sql,
        ];
        super::program().args(arguments).env("PATH", path).output().unwrap().into()
    };
    let none = ask(data.folder.path());
    assert_eq!(none.status, 125);
    assert!(none.err.contains("cargo build --release -p exitless-fleet-cluster builds it"), "{}", none.err);
    let script = data.file("exitless-fleet-cluster", "#!/bin/sh\necho \"$@\"\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let said = ask(data.folder.path()).well();
    let wanted =
        "query --store /x --cluster http://127.0.0.1:1 --json --since 2026-01-01 --strict SELECT 1\n";
    assert_eq!(said.out, wanted);
}

#[test]
fn a_host_is_what_is_last_known_of_it() {
    let data = DataSet::full();
    let host = &data.rows("SELECT * FROM hosts WHERE host = 'lab-1'")[0];
    // The outcome comes from doctor, the CPU from verify.
    assert_eq!((&host["module"], &host["cpu_model"]), (&json!("kvm_amd"), &json!("AMD EPYC Processor")));
    assert!(host["outcome"].is_string());
    // A later observation wins; facts that it does not have are kept.
    let mut later = document("verify.json");
    later["host"]["kernel"] = json!("7.0.0");
    later["host"]["enabled"] = Value::Null;
    later["vms"].as_array_mut().unwrap().truncate(1);
    let file = data.file("later.json", &later.to_string());
    data.add("lab-1", "2026-03-03T12:00:00Z", &file);
    let host = &data.rows("SELECT * FROM hosts WHERE host = 'lab-1'")[0];
    assert_eq!((&host["kernel"], &host["enabled"]), (&json!("7.0.0"), &json!(true)));
    // The VM that it no longer sees is gone.
    assert_eq!(
        data.rows("SELECT vm, vm_uuid FROM vms"),
        json!([{"vm": "pit", "vm_uuid": "0f1d2c3b-4a59-6877-8695-a4b3c2d1e0f1"}])
    );
    assert_eq!(data.rows("SELECT count(*) AS n FROM raw.vms")[0]["n"], 5);
}

#[test]
fn what_a_command_no_longer_says_is_gone() {
    let data = DataSet::full();
    let (mut doctor, mut verify) = (document("doctor.json"), document("verify.json"));
    assert!(doctor["conclusion"]["next"].is_string() && verify["vms"][0]["activation"]["mode"].is_string());
    doctor["conclusion"]["outcome"] = json!("unavailable");
    doctor["conclusion"]["next"] = Value::Null;
    let vm = &mut verify["vms"][0];
    (vm["activation"]["status"], vm["activation"]["mode"]) = (json!("unknown"), Value::Null);
    vm["ipi_virtualization"] = json!({"state": "on"});
    let file = data.file("later.json", &format!("{doctor}{verify}"));
    data.add("lab-1", "2026-03-03T12:00:00Z", &file);
    assert_eq!(
        data.rows("SELECT outcome, next_step FROM hosts WHERE host = 'lab-1'"),
        json!([{"outcome": "unavailable", "next_step": null}])
    );
    // Its UUID is from vms, which did not run again.
    assert_eq!(
        data.rows(
            "SELECT state, mode, ipi_state, ipi_why, vm_uuid IS NULL AS lost FROM vms WHERE vm = 'pit'"
        ),
        json!([{"state": "unknown", "mode": null, "ipi_state": "on", "ipi_why": null, "lost": false}])
    );
}

#[test]
fn several_vms_of_one_process_are_as_many_and_have_its_uuid() {
    let data = DataSet::new();
    let (mut verify, mut vms) = (document("verify.json"), document("vms.json"));
    let (name, pid) = (json!("two"), json!(77));
    vms["vms"].as_array_mut().unwrap().truncate(1);
    for (number, vm) in verify["vms"].as_array_mut().unwrap().iter_mut().enumerate() {
        (vm["name"], vm["pid"], vm["which"]) = (name.clone(), pid.clone(), json!(number + 1));
    }
    (vms["vms"][0]["name"], vms["vms"][0]["pid"]) = (name, pid);
    let tick = |time: &str, verify: &Value| {
        let file = data.file("tick.json", &format!("{verify}{vms}"));
        data.add("lab-1", time, &file);
    };
    let uuid = "0f1d2c3b-4a59-6877-8695-a4b3c2d1e0f1";
    let all = || data.rows("SELECT which, vm_uuid, state FROM vms ORDER BY which");
    tick("2026-03-01T12:00:00Z", &verify);
    let two = json!([
        {"which": 1, "vm_uuid": uuid, "state": "inhibited"},
        {"which": 2, "vm_uuid": uuid, "state": "unknown"}
    ]);
    assert_eq!(all(), two);
    assert_eq!(data.rows("SELECT count(*) AS n FROM vms"), json!([{"n": 2}]));
    // When one of the two VMs ends, the other has no number any more.
    verify["vms"].as_array_mut().unwrap().truncate(1);
    verify["vms"][0]["which"] = Value::Null;
    tick("2026-03-01T12:01:00Z", &verify);
    assert_eq!(all(), json!([{"which": null, "vm_uuid": uuid, "state": "inhibited"}]));
}

#[test]
fn rows_of_a_clock_that_was_ahead_are_not_the_last() {
    let data = DataSet::full();
    let (mut verify, mut doctor) = (document("verify.json"), document("doctor.json"));
    verify["host"]["kernel"] = json!("7.0.0");
    verify["vms"] = json!([]);
    doctor["sections"].as_array_mut().unwrap().truncate(1);
    let file = data.file("ahead.json", &format!("{verify}{doctor}"));
    let questions = [
        "SELECT * FROM hosts ORDER BY host",
        "SELECT * FROM parameters ORDER BY host, module, parameter",
        "SELECT * FROM vms ORDER BY vm",
        "SELECT host, seen, count(*) AS n FROM findings GROUP BY host, seen ORDER BY host",
    ];
    let answers = || questions.map(|sql| data.rows(sql));
    let before = answers();
    // The second time is too late for 64 bits of nanoseconds.
    for ahead in [(Utc::now() + TimeDelta::hours(8)).to_rfc3339(), "9000-01-01T00:00:00Z".to_owned()] {
        data.add("lab-1", &ahead, &file);
        assert_eq!(answers(), before, "{ahead}");
    }
    assert_eq!(data.rows("SELECT count(*) AS n FROM raw.hosts WHERE kernel = '7.0.0'")[0]["n"], 2);
}

#[test]
fn days_bound_what_is_read() {
    let data = DataSet::full();
    let count = |arguments: &[&str]| {
        let sql = ["--json", "SELECT count(DISTINCT host_name) AS n FROM raw.hosts"];
        data.run("query", &[arguments, &sql].concat()).well().json()["rows"][0]["n"].as_i64().unwrap()
    };
    assert_eq!(count(&["--since", "2026-03-02"]), 3);
    assert_eq!(count(&["--until", "2026-03-01", "--since", "2026-01-01"]), 1);
    let wrong = data.run("query", &["--since", "1.3.2026", "SELECT 1"]);
    assert_eq!(wrong.status, 2);
}

#[test]
fn nothing_but_reading_is_allowed() {
    let data = DataSet::full();
    let files = data.files();
    let target = data.folder.path().join("out.csv");
    for sql in [
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 'fleet://store/hosts/'",
        "DROP VIEW hosts",
        "INSERT INTO raw.losses SELECT * FROM raw.losses",
        "DELETE FROM raw.hosts",
        "UPDATE raw.hosts SET kernel = 'x'",
        "TRUNCATE TABLE raw.hosts",
        &format!("COPY (SELECT 1) TO '{}' STORED AS CSV", target.display()),
        "COPY (SELECT 1) TO 'fleet://store/x.parquet' STORED AS PARQUET",
        "EXPLAIN ANALYZE INSERT INTO raw.losses SELECT * FROM raw.losses",
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "PREPARE p AS SELECT 1",
        "BEGIN TRANSACTION",
        "CREATE FUNCTION f() RETURNS INT RETURN 1",
        "SELECT 1; DROP VIEW hosts",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'file:///etc/passwd'",
        "SELECT * FROM \"/etc/passwd\"",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
        "SELECT FROM WHERE",
        "",
    ] {
        let said = data.run("query", &[sql]);
        assert_eq!(said.status, 2, "{sql}: {}{}", said.out, said.err);
        assert!(
            said.err.starts_with("exitless-fleet: the query cannot be answered: "),
            "{sql}: {}",
            said.err
        );
        assert_eq!(said.out, "", "{sql}");
    }
    assert!(!target.exists());
    assert_eq!(data.files(), files);
}

#[test]
fn rows_time_memory_and_length_have_bounds() {
    let data = DataSet::new();
    data.add_fixture("a", "2026-03-01T12:00:00Z", "stat.json");
    let cut = data.run("query", &["--json", "--rows", "7", "SELECT * FROM generate_series(1, 1000000000)"]);
    assert_eq!((cut.status, cut.json()["is_cut"].clone()), (1, json!(true)));
    assert_eq!(cut.json()["rows"].as_array().unwrap().len(), 7);
    assert!(cut.err.contains("Only the first 7 rows are shown; --rows shows more"), "{}", cut.err);

    let began = std::time::Instant::now();
    let endless =
        "SELECT sum(a.value * b.value) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b";
    let late = data.run("query", &["--time", "1", endless]);
    assert_eq!(late.status, 125, "{}", late.err);
    assert!(late.err.contains("the query took longer than 1 s"), "{}", late.err);
    assert!(began.elapsed().as_secs() < 30);

    let large = "SELECT value FROM generate_series(1, 100000000) ORDER BY value DESC";
    let full = data.run("query", &["--memory", "16", large]);
    assert_eq!(full.status, 125);
    assert!(full.err.starts_with("exitless-fleet: the query failed: Resources exhausted"), "{}", full.err);

    // Memory that no operator accounts for ends the process, but does not exhaust the machine.
    let huge = data.run("query", &["--memory", "64", "SELECT length(repeat('xxxxxxxxxx', 200000000))"]);
    assert_eq!(huge.status, -1, "it is ended by a signal");
    assert!(huge.err.contains("memory allocation of 2000000000 bytes failed"), "{}", huge.err);

    let long = data.run("query", &[&format!("SELECT {}1", "1+".repeat(40_000))]);
    assert_eq!(long.status, 2);
    assert!(long.err.contains("at most 16384 are taken"), "{}", long.err);
    for term in ["1", "exits"] {
        let sum = |terms| format!("SELECT {}{term} FROM raw.intervals", format!("{term}+").repeat(terms));
        // Planning is slow but bounded in time, and does not overflow the stack.
        let deep = data.run("query", &["--time", "5", &sum(1_900)]);
        assert!([0, 2, 125].contains(&deep.status), "{} {}", deep.status, deep.err);
        let deeper = data.run("query", &[&sum(2_500)]);
        assert!(deeper.err.contains("at most 4000 are taken"), "{}", deeper.err);
    }
    let nested = data.run("query", &[&format!("SELECT {}1{}", "(".repeat(1_900), ")".repeat(1_900))]);
    assert_eq!(nested.status, 2, "{}", nested.err);
}

#[test]
fn a_query_works_on_many_cpus_and_says_when_its_threads_do_not_fit() {
    let data = DataSet::new();
    data.add_fixture("a", "2026-03-01T12:00:00Z", "stat.json");
    let store = data.store();
    let ask = ["query", "--store", &store, "SELECT count(*) FROM raw.exits"];
    // tokio takes this as the number of worker threads.
    let many = super::program().args(ask).env("TOKIO_WORKER_THREADS", "128").output().unwrap();
    super::Said::from(many).well();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -d 400000 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_exitless-fleet")]);
    let few = super::Said::from(shell.args(ask).output().unwrap());
    assert_eq!((few.status, few.out.as_str()), (125, ""), "{}", few.err);
    assert!(
        few.err.starts_with("exitless-fleet: This process may have 390 MiB of data (ulimit -d), and"),
        "{}",
        few.err
    );
}

#[test]
fn torn_and_foreign_files_are_named_and_the_rest_is_answered() {
    let data = DataSet::full();
    let sql = "SELECT sum(exits) AS n FROM raw.exits";
    let before = data.rows(sql);
    let folder = std::path::PathBuf::from(data.store()).join("exits/date=2026-03-01/host=lab-1");
    let good = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&good).unwrap();
    std::fs::write(folder.join("torn.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(folder.join("empty.parquet"), "").unwrap();
    std::fs::write(folder.join("text.parquet"), "PAR1 is not all").unwrap();
    // Same length, so that offsets in the metadata stay valid.
    let at = bytes.windows(15).position(|part| part == b"exitless.schema").unwrap();
    let value = bytes[at..].iter().position(|byte| *byte == b'1').unwrap();
    let mut newer = bytes.clone();
    newer[at + value] = b'2';
    std::fs::write(folder.join("newer.parquet"), newer).unwrap();
    // A file of another table, and one that does not belong to the data set.
    std::fs::write(folder.join("README"), "mine").unwrap();
    let other = data.files().into_iter().find(|path| path.to_str().unwrap().contains("/intervals/")).unwrap();
    std::fs::copy(other, folder.join("other.parquet")).unwrap();

    let said = data.run("query", &["--json", sql]);
    assert_eq!((said.status, said.json()["rows"].clone()), (1, before));
    assert_eq!(said.json()["left_out"].as_array().unwrap().len(), 5);
    for (name, why) in [
        ("torn", "it is no whole Parquet file"),
        ("empty", "it is no whole Parquet file"),
        ("text", "it is no whole Parquet file"),
        ("newer", "its schema is version 2, and this program reads 1"),
        ("other", "it is of table intervals, not of exits"),
    ] {
        let line = said
            .err
            .lines()
            .find(|line| line.contains(&format!("/{name}.parquet")))
            .unwrap_or_else(|| panic!("{}", said.err));
        assert!(line.contains(why), "{line}");
    }
    assert!(said.err.contains("Left out: 5 files"), "{}", said.err);
    let strict = data.run("query", &["--strict", sql]);
    assert_eq!(strict.status, 125);
    assert!(strict.err.contains("5 files cannot be read, and --strict was given"), "{}", strict.err);
    // Valid metadata at the end, but a damaged page.
    let mut damaged = bytes.clone();
    damaged[4..60].fill(0xff);
    std::fs::write(folder.join("damaged.parquet"), damaged).unwrap();
    let failed = data.run("query", &["SELECT * FROM raw.exits"]);
    assert_eq!(failed.status, 125, "{}", failed.err);
    std::fs::remove_file(folder.join("damaged.parquet")).unwrap();
    // These files are not joined, and stay.
    assert_eq!(data.run("compact", &["--until", "2026-03-01"]).status, 1);
    assert!(folder.join("torn.parquet").exists());
}

#[test]
fn an_answer_has_three_forms() {
    let data = DataSet::full();
    let sql = "SELECT vm, inhibit_reasons, vcpus FROM vms WHERE vm = 'pit'";
    assert_eq!(data.rows(sql), json!([{"vm": "pit", "inhibit_reasons": ["PIT_REINJ"], "vcpus": 2}]));
    let csv = data.run("query", &["--output", "csv", sql]).well();
    assert_eq!(csv.out, "vm,inhibit_reasons,vcpus\npit,[PIT_REINJ],2\n");
    let table = data.run("query", &[sql]).well();
    assert!(table.out.lines().next().unwrap().contains("inhibit_reasons"), "{}", table.out);
    let none = "SELECT host, fail FROM hosts WHERE false";
    assert_eq!(data.rows(none), json!([]));
    assert_eq!(data.run("query", &["--output", "csv", none]).well().out, "host,fail\n");
}

#[test]
fn names_command_neither_a_terminal_nor_a_spreadsheet() {
    let data = DataSet::new();
    let names = ["=cmd|'/C calc'!A0", "a\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\u{202e}", "-1.5"];
    let vms: Vec<Value> =
        (1..).zip(names).map(|(pid, name)| json!({"pid": pid, "name": name, "vmm": "qemu"})).collect();
    let document = json!({"format": 1, "version": "0", "unreadable": 0, "vms": vms});
    data.add("a", "2026-03-01T12:00:00Z", &data.file("vms.json", &document.to_string()));
    let sql = "SELECT vm FROM vms ORDER BY pid";
    let csv = data.run("query", &["--output", "csv", sql]).well();
    let cells = "'=cmd|'/C calc'!A0\na\u{fffd}]0;x\u{fffd}\u{fffd}2J\u{fffd}\u{fffd}\n-1.5\n";
    assert_eq!(csv.out, format!("vm\n{cells}"));
    let json = data.run("query", &["--json", sql]).well();
    assert!(!json.out.trim_end().contains(exits::is_harmful), "{:?}", json.out);
    assert_eq!(json.json()["rows"], json!(names.map(|name| json!({"vm": name}))));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let data = DataSet::new();
    let file = super::fixture("stat.json").display().to_string();
    let large = "SELECT * FROM generate_series(1, 9000)";
    for arguments in [
        &["add", "--host", "a", &file][..],
        &["query", "--json", large],
        &["query", "--output", "csv", large],
        &["query", large],
        &["report", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut program = super::program();
        program.args(arguments).env("EXITLESS_FLEET_STORE", data.store()).stdout(writer);
        let said = super::Said::from(program.output().unwrap()).well();
        assert_eq!(said.err, "", "{arguments:?}");
    }
}

#[test]
fn a_file_that_is_refused_is_told_even_if_nobody_reads_the_summary() {
    let data = DataSet::new();
    let bad = data.folder.path().join("bad.json");
    std::fs::write(&bad, "{}").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut program = super::program();
    program.args(["add", "--host", "a"]).arg(&bad).arg(super::fixture("stat.json"));
    program.env("EXITLESS_FLEET_STORE", data.store()).stdout(writer);
    let said = super::Said::from(program.output().unwrap());
    assert!(said.status == 1 && said.err.contains("bad.json"), "{}: {}", said.status, said.err);
}
