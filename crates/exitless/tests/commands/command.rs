//! Runs `exitless` on the recordings of the tests, and parses its output.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/fixtures/perf")
}

pub(crate) fn recording(name: &str) -> String {
    folder().join(format!("{name}.perf.data.zst")).to_str().unwrap().to_owned()
}

pub(crate) fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exitless"));
    command.args(arguments).stdin(Stdio::null()).env_remove("COLUMNS").env("LC_ALL", "C.UTF-8");
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Makes the command run as a user other than root, who has no journal, and gives that user the paths.
pub(crate) fn as_nobody(command: &mut Command, paths: &[&Path]) {
    const NOBODY: u32 = 65534;
    // SAFETY: geteuid() has no arguments and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        for path in paths {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        command.uid(NOBODY).gid(NOBODY);
    }
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The contents of all files with this extension below a folder.
pub(crate) fn text_files(folder: &std::path::Path, extension: &str) -> Vec<String> {
    let mut open = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|own| own == extension) {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}
