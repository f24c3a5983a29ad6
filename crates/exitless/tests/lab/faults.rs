//! Failures that must leave nothing behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::command::{LIMIT, bare, exitless, run, said};

/// The folders of runs in the cache that this process uses.
fn run_folders() -> Vec<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
    let runs = cache.join("exitless/lab/runs");
    fs::read_dir(runs).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path()).collect()
}

/// The number of processes whose working directory is a run's folder.
fn emulators_of(folder: &Path) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    // An emulator's working directory is its run's folder; if that was removed, the link ends with
    // "(deleted)".
    let places = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    places.filter(|place| place.to_string_lossy().starts_with(folder.to_str().unwrap())).count()
}

/// The folder of the run whose emulator is a child of `parent`: other tests have runs at the same time.
fn folder_of(parent: u32) -> PathBuf {
    let folders = run_folders();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let children = processes.filter(|process| {
        let status = fs::read_to_string(process.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
    });
    let mut places = children.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    places.find(|place| folders.contains(place)).expect("an emulator runs in the folder of its run")
}

/// A laboratory whose command has started, and the folder of its run. Killed when dropped, so that it does
/// not take CPU time from other tests after a failure.
struct Sleeping {
    child: Child,
    folder: PathBuf,
}

impl Sleeping {
    fn start() -> Self {
        let script = "echo begun; while :; do :; done";
        let options = ["lab", "run", "amd-svm", "--bare", "--timeout", "120", "--", "sh", "-c", script];
        let child = exitless(&options).stdout(Stdio::piped()).spawn().unwrap();
        let mut started = Self { child, folder: PathBuf::new() };
        let mut line = String::new();
        BufReader::new(started.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        started.folder = folder_of(started.child.id());
        assert!(emulators_of(&started.folder) > 0);
        started
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

pub(crate) fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn unknown_names_list_the_known_ones() {
    let lab = run(&["lab", "run", "intel", "--", "true"]);
    assert_eq!(lab.status, 2);
    assert!(lab.err.contains("intel-apicv, amd-svm"), "{}", lab.err);
    let measure = run(&["prove", "--lab", "intel-apicv", "--measure", "ipi"]);
    assert_eq!(measure.status, 2);
    assert!(measure.err.contains("ipi-running") && measure.err.contains("msr-write"), "{}", measure.err);
}

#[test]
fn the_list_is_json_for_programs() {
    let listed = run(&["lab", "list", "--json"]).json();
    assert_eq!(listed[0]["name"], "intel-apicv");
    assert_eq!(listed[1]["emulator"], "QEMU");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_fetched() {
    let nothing = tempfile::tempdir().unwrap();
    let file = nothing.path().join("file");
    fs::write(&file, "").unwrap();
    let to_a_file = ["run", "amd-svm", "--get", "result", "--output", file.to_str().unwrap(), "--", "true"];
    for (arguments, status, why) in [
        (&["run", "amd-svm", "--put", "/no/such/file", "--", "true"][..], 2, "/no/such/file does not exist"),
        (&to_a_file, 2, "the folder for what is copied out; nothing was started"),
        (&["run", "amd-svm", "--speed", "300", "--", "true"], 2, "possible: 125, 250, 500, 1000"),
        (&["run", "amd-svm", "--hypervisor-argument", "apicv=0", "--", "true"], 2, "amd-svm has no Xen"),
        (&["run", "amd-svm", "--bare", "--guest-image", "--", "true"], 2, "has no place for it"),
        (&["shell", "amd-svm", "--bare"], 125, "lab run"),
    ] {
        let cache = nothing.path().join("cache");
        let arguments = [&["lab"][..], arguments].concat();
        let said = said(&exitless(&arguments).env("XDG_CACHE_HOME", &cache).output().unwrap());
        assert!(said.status == status && said.err.contains(why), "{}: {}", said.status, said.err);
        assert!(!said.err.contains("download") && !cache.join("exitless/lab/runs").exists(), "{}", said.err);
    }
}

#[test]
fn output_that_cannot_be_written_is_told_after_the_command() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = exitless(&["lab", "run", "amd-svm", "--bare", "--", "echo", "x"]);
    let said = said(&command.stdout(full).stderr(Stdio::piped()).output().unwrap());
    assert_eq!(said.status, 125, "{}", said.err);
    assert!(
        said.err.contains("Could not write all output of the command, which ended with status 0"),
        "{}",
        said.err
    );
}

/// The folder with the changes to the disk is a file system of 24 MiB, which only this run sees.
#[test]
fn a_host_whose_changes_to_the_disk_do_not_fit_gets_an_error() {
    let unshare = || std::process::Command::new("unshare");
    let tried = unshare().args(["--mount", "true"]).stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("not tested: this needs root who may mount, which a container's root may not");
        return;
    }
    // Makes the snapshot, if it is missing, for which there would not be enough space.
    assert_eq!(run(&["lab", "run", "amd-svm", "--", "true"]).status, 0);
    let runs = lab::Cache::of_user().unwrap().root().join("runs");
    let mount = "mount -t tmpfs -o size=24M runs \"$0\" && exec \"$@\"";
    let writes = "dd if=/dev/zero of=/root/large bs=1M count=100 conv=fsync 2>/dev/null; echo dd $?";
    let output = unshare()
        .args(["--mount", "sh", "-c", mount])
        .arg(&runs)
        .arg(env!("CARGO_BIN_EXE_exitless"))
        .args(["lab", "run", "amd-svm", "--timeout", LIMIT, "--", "sh", "-c", writes])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = said(&output);
    assert_eq!((said.status, said.out.as_str()), (0, "dd 1\n"), "{}", said.err);
    assert!(said.err.contains("free some space and repeat the run"), "{}", said.err);
}

#[test]
fn a_panic_inside_is_told_with_the_console() {
    let said = bare("amd-svm", "echo c > /proc/sysrq-trigger; while :; do :; done");
    assert_eq!(said.status, 125);
    assert!(said.err.contains("panicked") && said.err.contains("sysrq triggered crash"), "{}", said.err);
}

#[test]
fn a_boot_that_takes_too_long_is_told_with_its_limit() {
    let said = run(&["lab", "run", "amd-svm", "--bare", "--boot", "--boot-timeout", "1", "--", "true"]);
    assert_eq!(said.status, 125);
    assert!(said.err.contains("did not reach its user space within 1s"), "{}", said.err);
}

#[test]
fn a_command_that_takes_too_long_is_stopped() {
    let said =
        run(&["lab", "run", "amd-svm", "--bare", "--timeout", "1", "--", "sh", "-c", "while :; do :; done"]);
    assert_eq!(said.status, 125);
    assert!(said.err.contains("still running after 1s"), "{}", said.err);
}

#[test]
fn an_interrupt_leaves_no_emulator_and_no_file() {
    let mut sleeping = Sleeping::start();
    signal(&sleeping.child, "-INT");
    assert_eq!(sleeping.child.wait().unwrap().code(), Some(130));
    assert!(!sleeping.folder.exists());
    assert_eq!(emulators_of(&sleeping.folder), 0);
}

#[test]
fn after_a_kill_the_emulator_ends_and_the_next_run_sweeps_the_files() {
    let mut sleeping = Sleeping::start();
    sleeping.child.kill().unwrap();
    sleeping.child.wait().unwrap();
    soon("the emulator's end", || emulators_of(&sleeping.folder) == 0);
    assert_eq!(bare("amd-svm", "true").status, 0);
    assert!(!sleeping.folder.exists());
}

#[test]
fn two_laboratories_at_once_do_not_collide() {
    let start = |lab: &str, word: &str| {
        exitless(&["lab", "run", lab, "--bare", "--", "echo", word])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children = [start("intel-apicv", "one"), start("intel-apicv", "two"), start("amd-svm", "three")];
    let words = children.map(|child| said(&child.wait_with_output().unwrap()).out);
    assert_eq!(words, ["one\n", "two\n", "three\n"]);
}

#[test]
fn too_much_to_put_is_told_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len(300 << 20).unwrap();
    let said = run(&["lab", "run", "intel-apicv", "--bare", "--put", large.to_str().unwrap(), "--", "true"]);
    assert_eq!(said.status, 125);
    assert!(said.err.contains("putting large") && said.err.contains("No space left"), "{}", said.err);
}
