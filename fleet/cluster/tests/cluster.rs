//! A scheduler and two executors on this machine give the same answers as the engine embedded in
//! `exitless-fleet`.

#[path = "../../../crates/study/tests/all/ports.rs"]
mod ports;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use exitless_fleet::document::{self, Origin};
use exitless_fleet::engine::{self, Bounds};
use exitless_fleet::report::QUESTIONS;
use exitless_fleet::store::{Days, Store};
use exitless_fleet::views::VIEWS;
use exitless_fleet::{output, write};
use serde_json::Value;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_exitless-fleet-cluster"))
}

/// The processes of a cluster, which end with the test.
struct Cluster {
    processes: Vec<Child>,
    scheduler: u16,
}

impl Cluster {
    fn start(store: &str, folder: &Path, executors: u16) -> Self {
        let start = |arguments: &[&str]| {
            program().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        // An executor takes two.
        let scheduler = ports::free(1 + 2 * executors);
        let at = format!("127.0.0.1:{scheduler}");
        let mut processes = vec![start(&["scheduler", "--store", store, "--listen", &at])];
        for number in 0..executors {
            let listen = format!("127.0.0.1:{}", scheduler + 1 + 2 * number);
            let work = folder.join(format!("work-{number}")).display().to_string();
            let arguments = ["--scheduler", &at, "--listen", &listen, "--work", &work, "--tasks", "2"];
            processes.push(start(&[&["executor", "--store", store][..], &arguments].concat()));
        }
        Self { processes, scheduler }
    }

    fn asking(&self, store: &str, sql: &str) -> Command {
        let cluster = format!("http://127.0.0.1:{}", self.scheduler);
        let mut command = program();
        command.args(["query", "--json", "--store", store, "--cluster", &cluster, "--time", "60", sql]);
        command
    }

    fn query(&self, store: &str, sql: &str) -> Output {
        self.asking(store, sql).output().unwrap()
    }

    /// The rows of a query. The first query waits until the executors have connected.
    fn rows(&self, store: &str, sql: &str) -> Vec<Value> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let said = self.query(store, sql);
            if said.status.success() {
                let document: Value = serde_json::from_slice(&said.stdout).unwrap();
                return document["rows"].as_array().unwrap().clone();
            }
            let why = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(Instant::now() < end && why.contains("onnect"), "{sql}: {why}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

async fn add(store: &Store, host: &str, time: &str, text: &str) {
    let time: DateTime<Utc> = time.parse().unwrap();
    let origin = Origin { file: "a test's".to_owned(), host: Some(host.to_owned()), time };
    write::rows(store, &document::rows(text.as_bytes(), &origin).unwrap()).await.unwrap();
}

/// Tests for equality, with a tolerance for the order of floating-point additions.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| alike(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            (one - other).abs() <= 1e-9 * one.abs().max(1.0)
        }
        (one, other) => one == other,
    }
}

#[test]
fn two_executors_answer_every_ready_question_as_the_engine_inside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store").display().to_string();
    let fixture = |name: &str| {
        std::fs::read_to_string(format!("{}/../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::open(&path, true).unwrap();
    runtime.block_on(async {
        for (number, host) in ["a", "b", "x' y", "c"].into_iter().enumerate() {
            let time = format!("2026-03-0{}T12:00:00Z", number + 1);
            for name in ["doctor.json", "verify.json", "stat.json"] {
                add(&store, host, &time, &fixture(name)).await;
            }
        }
        add(&store, "p", "2026-03-02T10:00:00Z", &fixture("prove.json")).await;
        add(&store, "e", "2026-03-02T10:00:00Z", &fixture("experiment.json")).await;
        // A host whose AVIC is off, from the tests of the crate `report`.
        let idle = "../../crates/report/src/examination/snapshots/report__examination__tests__zen2-json.snap";
        let idle = std::fs::read_to_string(format!("{}/{idle}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        add(&store, "idle", "2026-03-02T10:00:00Z", idle.splitn(3, "---\n").nth(2).unwrap()).await;
        for hour in 0..12 {
            let kernel = if hour < 6 { "6.1.0" } else { "6.12.0" };
            let line = fixture("stat.json").lines().next().unwrap().to_owned();
            let mut document: Value = serde_json::from_str(&line).unwrap();
            document["files"][0]["origin"]["kernel"] = kernel.into();
            add(&store, "changed", &format!("2026-03-04T{hour:02}:30:00Z"), &document.to_string()).await;
        }
    });
    let cluster = Cluster::start(&path, folder.path(), 2);
    let bounds = Bounds {
        memory: 512 << 20,
        time: Duration::from_secs(60),
        rows: 10_000,
        days: Days::default(),
        strict: true,
    };
    let views: Vec<(&str, String)> =
        VIEWS.iter().map(|(name, _)| (*name, format!("SELECT * FROM {name}"))).collect();
    let questions = QUESTIONS.iter().map(|(name, sql)| (*name, (*sql).to_owned())).chain(views);
    let mut asked = 0;
    for (name, sql) in questions {
        let inside = runtime.block_on(engine::answer(&store, &bounds, &sql)).unwrap();
        let rows = output::rows(&inside.batches).unwrap();
        let mut inside: Vec<Value> = serde_json::from_str(rows.get()).unwrap();
        let mut outside = cluster.rows(&path, &sql);
        // Rows have no order unless the query asks for one.
        if !sql.contains("ORDER BY") || sql.starts_with("SELECT *") {
            inside.sort_by_key(Value::to_string);
            outside.sort_by_key(Value::to_string);
        }
        assert!(!inside.is_empty(), "{name}");
        let all = inside.len() == outside.len()
            && inside.iter().zip(&outside).all(|(one, other)| alike(one, other));
        assert!(all, "{name}:\n{inside:#?}\n{outside:#?}");
        asked += 1;
    }
    assert!(asked >= 14, "{asked}");
    // What a foreign file contains is escaped before it reaches the terminal.
    let exits = folder.path().join("store/exits/date=2026-03-01/host=a");
    let file = std::fs::read_dir(&exits).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(file).unwrap();
    let key = bytes.windows(14).position(|part| part == b"exitless.table").unwrap();
    let value = bytes[key..].windows(5).position(|part| part == b"exits").unwrap();
    bytes[key + value..][..5].copy_from_slice(b"\x1b]0;\x07");
    let foreign = exits.join("foreign.parquet");
    std::fs::write(&foreign, bytes).unwrap();
    let said = cluster.query(&path, "SELECT count(*) FROM raw.exits");
    let why = String::from_utf8_lossy(&said.stderr);
    assert!(why.contains("it is of table ") && !why.contains(['\u{1b}', '\u{7}']), "{why:?}");
    assert_eq!(said.status.code(), Some(1));
    std::fs::remove_file(foreign).unwrap();
    // Nobody reads the answer.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = cluster.asking(&path, "SELECT host FROM hosts").stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
    // Only queries that read are allowed.
    for sql in [
        "CREATE TABLE t AS SELECT 1",
        "COPY (SELECT 1) TO '/tmp/x.csv' STORED AS CSV",
        "SELECT * FROM '/etc/passwd'",
    ] {
        let said = cluster.query(&path, sql);
        assert_eq!(said.status.code(), Some(2), "{sql}: {}", String::from_utf8_lossy(&said.stderr));
    }
}

#[test]
fn a_store_that_does_not_answer_is_given_up_after_the_limit_of_time() {
    // It takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = program()
        .args(["query", "--time", "1", "--store", "s3://fleet/data"])
        .args(["--cluster", "http://127.0.0.1:1", "SELECT 1"])
        .env("AWS_ENDPOINT_URL", format!("http://{}", silent.local_addr().unwrap()))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ACCESS_KEY_ID", "a")
        .env("AWS_SECRET_ACCESS_KEY", "b")
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&said.stderr);
    assert!(why.contains("the query took longer than 1 s"), "{why}");
    assert_eq!(said.status.code(), Some(125));
}
