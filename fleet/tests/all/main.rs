//! Runs the program on real folders, with real outputs of exitless.

mod agent;
#[allow(dead_code)]
#[path = "../../../crates/report/tests/all/browser/mod.rs"]
mod browser;
mod data_set;
mod hosts;
mod object_store;
mod page;
mod queries;
mod readers;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The output of a run.
struct Said {
    status: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// Asserts that the run succeeded.
    fn well(self) -> Self {
        assert_eq!(self.status, 0, "{}{}", self.out, self.err);
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            status: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_exitless-fleet"))
}

fn run(arguments: &[&str]) -> Said {
    program().args(arguments).output().unwrap().into()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The output of `doctor --json` on another host, from the tests of the crate `report`.
fn examination(name: &str) -> String {
    let folder = "../crates/report/src/examination/snapshots/report__examination__tests__";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{folder}{name}-json.snap"));
    std::fs::read_to_string(path).unwrap().splitn(3, "---\n").nth(2).unwrap().to_owned()
}

/// A data set in a temporary folder.
struct DataSet {
    folder: tempfile::TempDir,
}

impl DataSet {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn store(&self) -> String {
        self.folder.path().join("store").display().to_string()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Said {
        run(&[&[command, "--store", &self.store()], arguments].concat())
    }

    fn add(&self, host: &str, time: &str, file: &str) -> Said {
        self.run("add", &["--host", host, "--time", time, file]).well()
    }

    fn add_fixture(&self, host: &str, time: &str, name: &str) {
        self.add(host, time, &fixture(name).display().to_string());
    }

    /// The rows of a query, which must succeed.
    fn rows(&self, sql: &str) -> Value {
        self.run("query", &["--json", sql]).well().json()["rows"].clone()
    }

    /// A data set with some rows in every table but `losses`, which only agents write.
    fn full() -> Self {
        let data = Self::new();
        for name in ["doctor.json", "verify.json", "vms.json", "stat.json"] {
            data.add_fixture("lab-1", "2026-03-01T12:00:00Z", name);
        }
        for host in ["zen2", "sapphire-rapids", "guest"] {
            let file = data.file(&format!("{host}.json"), &examination(host));
            data.add(host, "2026-03-02T00:00:00Z", &file);
        }
        data.add_fixture("mix-host", "2026-03-02T10:00:00Z", "report.json");
        data.add_fixture("prover", "2026-03-02T10:00:00Z", "prove.json");
        data.add_fixture("bench", "2026-03-02T10:00:00Z", "experiment.json");
        data
    }

    /// All files below the store, as relative paths.
    fn files(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, into) } else { into.push(path) }
            }
        }
        let mut all = Vec::new();
        walk(Path::new(&self.store()), &mut all);
        all.sort();
        all
    }
}
