//! The agent, with scripts that stand in for exitless.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{DataSet, Said, fixture, program};

/// A script that prints what exitless would print.
pub(super) fn exitless(data: &DataSet, script: &str) -> String {
    let fixtures = fixture("").display().to_string();
    let path = data.file("exitless", &format!("#!/bin/sh\nfixtures={fixtures}\n{script}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// `stat` prints one interval, as `--count 1` does.
pub(super) const GOOD: &str = "case $1 in stat) head -n 1 $fixtures/stat.json;; *) cat $fixtures/$1.json;; esac; \
                    case $1 in verify|doctor) exit 1;; esac";

fn spool(data: &DataSet) -> String {
    data.folder.path().join("spool").display().to_string()
}

fn agent(data: &DataSet, store: &str, exitless: &str, arguments: &[&str]) -> Child {
    program()
        .args(["agent", "--store", store, "--spool", &spool(data), "--exitless", exitless, "--host", "web-1"])
        .args(["--interval", "200ms", "--watch", "100ms"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ended(child: Child) -> Said {
    child.wait_with_output().unwrap().into()
}

fn spooled(data: &DataSet) -> usize {
    let files = std::fs::read_dir(spool(data)).unwrap().flatten();
    files.filter(|file| file.file_name().to_string_lossy().contains('-')).count()
}

#[test]
fn each_tick_is_in_the_data_set_once() {
    let data = DataSet::new();
    let exitless = exitless(&data, GOOD);
    let said = ended(agent(&data, &data.store(), &exitless, &["--count", "3"])).well();
    assert_eq!(said.err, "");
    let rows = data.rows(
        "SELECT count(*) AS n, count(DISTINCT time) AS ticks, min(host_name) AS host FROM raw.intervals",
    );
    assert_eq!(rows, json!([{"n": 3, "ticks": 3, "host": "web-1"}]));
    // doctor runs only once in ten minutes.
    assert_eq!(data.rows("SELECT count(*) AS n FROM raw.hosts WHERE source = 'doctor'")[0]["n"], 1);
    assert_eq!(data.rows("SELECT count(*) AS n FROM vms")[0]["n"], 2);
    assert_eq!(spooled(&data), 0);
}

#[test]
fn exits_are_counted_by_one_command_at_a_time() {
    let data = DataSet::new();
    let log = data.folder.path().join("log");
    let script = format!(
        "case $1 in stat|verify) echo $1 >> {log}; sleep 0.05; echo end >> {log};; esac; {GOOD}",
        log = log.display()
    );
    let exitless = exitless(&data, &script);
    ended(agent(&data, &data.store(), &exitless, &["--count", "1"])).well();
    // The interval of `stat` ends at the time of the collection.
    assert_eq!(std::fs::read_to_string(log).unwrap(), "verify\nend\nstat\nend\n");
}

#[test]
fn what_a_command_prints_is_checked_and_the_others_go_on() {
    let data = DataSet::new();
    let script = format!(
        "case $1 in stat) echo 'KVM is not there' >&2; exit 125;; vms) echo '{{\"vms\": 1}}'; exit;; esac; {GOOD}"
    );
    let exitless = exitless(&data, &script);
    let said = ended(agent(&data, &data.store(), &exitless, &["--count", "1"])).well();
    assert!(said.err.contains("exitless stat: exit status: 125: KVM is not there"), "{}", said.err);
    assert!(said.err.contains("exitless vms: its output, document 1"), "{}", said.err);
    assert_eq!(data.rows("SELECT count(*) AS n FROM vms")[0]["n"], 2);
}

#[test]
fn a_store_that_is_lost_costs_nothing_until_the_spool_is_full() {
    let data = DataSet::new();
    let exitless = exitless(&data, GOOD);
    // Put a file where the folder of a table should be.
    std::fs::create_dir(data.store()).unwrap();
    let blocked = Path::new(&data.store()).join("exits");
    std::fs::write(&blocked, "").unwrap();
    let said = ended(agent(&data, &data.store(), &exitless, &["--count", "3"])).well();
    assert!(said.err.contains("Delivery failed, and is tried again"), "{}", said.err);
    assert_eq!(spooled(&data), 3);
    // Once the store works again, nothing is missing.
    std::fs::remove_file(&blocked).unwrap();
    ended(agent(&data, &data.store(), &exitless, &["--count", "1"])).well();
    assert_eq!(data.rows("SELECT count(DISTINCT time) AS n FROM raw.exits")[0]["n"], 4);
    assert_eq!(spooled(&data), 0);
}

#[test]
fn a_full_spool_drops_the_oldest_and_the_data_set_says_how_many() {
    let data = DataSet::new();
    // About 300 KB per document, in a field that no row has.
    let script = format!(
        "printf '{{\"padding\": \"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\", '; {{ {GOOD}; }} | tail -c +2"
    );
    let exitless = exitless(&data, &script);
    std::fs::create_dir(data.store()).unwrap();
    let blocked = Path::new(&data.store()).join("exits");
    std::fs::write(&blocked, "").unwrap();
    ended(agent(&data, &data.store(), &exitless, &["--count", "4", "--spool-limit", "2", "--examine", "1d"]))
        .well();
    assert_eq!(spooled(&data), 2, "each has more than 900 KB");
    std::fs::remove_file(&blocked).unwrap();
    ended(agent(&data, &data.store(), &exitless, &["--count", "2", "--spool-limit", "2"])).well();
    let lost = data.rows("SELECT sum(ticks) AS ticks, min(reason) AS reason FROM raw.losses");
    let kept = data.rows("SELECT count(DISTINCT time) AS n FROM raw.exits")[0]["n"].as_i64().unwrap();
    assert_eq!(lost[0]["reason"], "spool-full");
    assert_eq!(lost[0]["ticks"].as_i64().unwrap() + kept, 6, "{lost} {kept}");
}

#[test]
fn a_killed_agent_loses_at_most_the_tick_it_was_in_and_repeats_none() {
    let data = DataSet::new();
    let exitless = exitless(&data, GOOD);
    let began = Instant::now();
    ended(agent(&data, &data.store(), &exitless, &["--count", "2", "--examine", "100ms"])).well();
    let took = began.elapsed();
    for round in 1..=8_u32 {
        let mut child = agent(&data, &data.store(), &exitless, &["--examine", "100ms"]);
        std::thread::sleep(took * round / 6);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    ended(agent(&data, &data.store(), &exitless, &["--count", "1"])).well();
    let rows = data.rows("SELECT time, count(*) AS n FROM raw.intervals GROUP BY time HAVING count(*) > 1");
    assert_eq!(rows, json!([]));
    assert_eq!(data.run("query", &["--strict", "SELECT count(*) FROM raw.exits"]).well().err, "");
    assert_eq!(spooled(&data), 0);
}

#[test]
fn a_command_that_hangs_does_not_outlive_the_agent() {
    let data = DataSet::new();
    let exitless = exitless(&data, "echo $$ >> $(dirname $0)/pids; exec sleep 600");
    let mut child = agent(&data, &data.store(), &exitless, &[]);
    let pids = data.folder.path().join("pids");
    let began = Instant::now();
    // `stat` waits for `verify`.
    while std::fs::read_to_string(&pids).map_or(0, |text| text.lines().count()) < 3 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    // systemd sends SIGTERM.
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    for pid in std::fs::read_to_string(&pids).unwrap().lines() {
        let gone = || {
            !Path::new(&format!("/proc/{pid}/exe")).exists()
                || std::fs::read_link(format!("/proc/{pid}/exe")).is_err()
        };
        let began = Instant::now();
        while !gone() {
            assert!(began.elapsed() < Duration::from_secs(10), "process {pid} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_full_disk_is_delivered_around() {
    let data = DataSet::new();
    let exitless = exitless(&data, GOOD);
    let mount = data.folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    // Mount a file system of one page for the spool, in a new mount namespace.
    let script = format!(
        "mount -t tmpfs -o size=4k tmpfs {mount} && exec {program} agent --store {store} --spool {mount}/spool \
         --exitless {exitless} --host web-1 --interval 200ms --watch 100ms --count 2",
        mount = mount.display(),
        program = env!("CARGO_BIN_EXE_exitless-fleet"),
        store = data.store(),
    );
    let mut unshare = std::process::Command::new("unshare");
    // Its messages are compared below.
    let unshared = unshare.args(["--mount", "sh", "-c", &script]).env("LC_ALL", "C").output();
    let said: Said = match unshared {
        Ok(output) => output.into(),
        Err(error) => return println!("not tested: unshare cannot be run: {error}"),
    };
    if said.err.contains("unshare failed") || said.err.contains("mount:") {
        return println!("not tested: no mount namespace here: {}", said.err);
    }
    let said = said.well();
    assert!(
        said.err.contains("The spool cannot keep what was collected: No space left on device"),
        "{}",
        said.err
    );
    assert_eq!(data.rows("SELECT count(DISTINCT time) AS n FROM raw.exits")[0]["n"], 2);
}
