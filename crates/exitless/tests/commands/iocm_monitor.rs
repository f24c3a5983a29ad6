//! The monitor as a command: with a real daemon, and in the simulator.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iocm_monitor::State;
use serde_json::Value;

use crate::command::command;
use crate::said::{Said, said};

fn exitless(arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.env("NO_COLOR", "1").env("COLUMNS", "80");
    command
}

fn run(arguments: &[&str]) -> Said {
    said(&exitless(arguments).output().unwrap())
}

/// A daemon with one worker on CPU 0 and a null disk.
struct Served {
    directory: tempfile::TempDir,
    child: Child,
}

impl Served {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let text = format!(
            "[workers]\ncpus = [\"0\"]\n[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {:?}\n[control]\n\
             socket = {:?}\nmount = \"\"\n",
            file("disk.sock"),
            file("control"),
        );
        std::fs::write(file("iocm.toml"), text).unwrap();
        let child = Self::daemon(&directory);
        Self { directory, child }
    }

    fn daemon(directory: &tempfile::TempDir) -> Child {
        let config = directory.path().join("iocm.toml");
        let child =
            exitless(&["iocm", "serve", "--config"]).arg(config).stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let control = directory.path().join("control");
        while run(&["iocm", "get", "pid", "--socket", control.to_str().unwrap()]).status != 0 {
            assert!(Instant::now() < end, "the daemon does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }

    /// Kills the daemon like `kill -9`.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = Self::daemon(&self.directory);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    fn workers(&self) -> Value {
        let said = run(&["iocm", "get", "workers", "--json", "--socket", &self.path("control")]);
        said.json()["workers"].take()
    }

    fn monitor(&self, more: &[&str]) -> Command {
        let mut command = exitless(&["iocm", "monitor", "--json", "--every", "50ms", "--socket"]);
        command.arg(self.path("control")).arg("--state").arg(self.path("state")).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn signal(child: &Child, number: i32) {
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: kill() has no memory safety requirement, and the child has not been waited for, so its ID is
    // not reused.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

/// Runs a monitor until it finds a spare core, however long that takes on a busy machine, and then for
/// `longer`. Returns that decision, and the later ones.
fn said_until_spare(mut monitor: Command, longer: Duration) -> (Value, Vec<Value>) {
    let mut monitor = monitor.args(["--for", "60s"]).spawn().unwrap();
    let told = BufReader::new(monitor.stdout.take().unwrap()).lines();
    let mut said = told.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut before = Vec::new();
    let spare = loop {
        match said.next() {
            Some(one) if one["reason"]["reason"] == "spare" => break one,
            Some(one) => before.push(one),
            None => panic!("it ended without: {before:?}"),
        }
    };
    std::thread::sleep(longer);
    signal(&monitor, libc::SIGTERM);
    let rest = said.collect();
    assert_eq!(monitor.wait().unwrap().code(), Some(0));
    (spare, rest)
}

#[test]
fn a_core_without_io_is_given_back_and_a_dry_run_only_says_so() {
    if cpus() < 2 {
        println!("not tested: the monitor needs two CPUs");
        return;
    }
    let served = Served::start();
    let (spare, rest) = said_until_spare(served.monitor(&["--dry-run"]), Duration::from_millis(500));
    assert!(spare["dry_run"] == true && spare["cores_before"][0] == 0, "{spare}");
    assert_eq!(spare["cores"], serde_json::json!([]));
    assert_eq!(rest, [Value::Null; 0], "it wants the same in each of the periods that follow");
    assert_eq!(served.workers()["w.0"]["cpu"], "0", "a dry run changes nothing");

    let (trace, other) = (served.path("load.trace"), served.path("other"));
    std::fs::write(&other, "kept").unwrap();
    std::fs::hard_link(&other, &trace).unwrap();
    let (spare, _) = said_until_spare(served.monitor(&["--record", &trace]), Duration::from_millis(1500));
    assert!(
        spare["figures"]["useful"].as_f64() < Some(0.5) && spare["actions"].as_array().unwrap().len() == 2,
        "{spare}"
    );
    let workers = served.workers();
    assert!(workers["w.0"].is_null() && workers["w.1"]["cpu"] != "0", "{workers}");
    assert!(!served.file("state").exists(), "nobody tells anything any more");
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.starts_with("{\"trace\":1,\"machine\""), "{trace}");
    assert_eq!(std::fs::read_to_string(other).unwrap(), "kept", "a trace writes into no file that is there");
}

#[test]
fn a_reader_that_does_not_read_keeps_the_monitor_from_nothing() {
    if cpus() < 2 {
        println!("not tested: the monitor needs two CPUs");
        return;
    }
    let served = Served::start();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: it concerns a descriptor that is open.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    writer.write_all(&vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
    let mut monitor = served.monitor(&["--dry-run"]).stdout(writer).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !std::fs::read_to_string(served.file("state")).is_ok_and(|state| state.contains("spare")) {
        assert!(Instant::now() < end, "it decides nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&monitor, libc::SIGTERM);
    let end = Instant::now() + Duration::from_secs(20);
    while monitor.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            monitor.kill().unwrap();
            panic!("it waits for its reader");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(monitor.wait().unwrap().code(), Some(0));
    assert!(!served.file("state").exists());
}

#[test]
fn the_end_of_the_daemon_is_told_and_the_next_one_is_served() {
    if cpus() < 2 {
        println!("not tested: the monitor needs two CPUs");
        return;
    }
    let mut served = Served::start();
    let mut monitor = served.monitor(&["--for", "60s"]).spawn().unwrap();
    let mut told = BufReader::new(monitor.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&told.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["trouble"], Value::Null, "{first}");
    let Said { status, out, err } =
        run(&["iocm", "status", "--socket", &served.path("control"), "--state", &served.path("state")]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("disk") && out.contains("Last decisions"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let told = told.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    // The first decision may already be about the core.
    let mut told = std::iter::once(first).chain(told);
    for _ in 0..2 {
        // Each daemon has a core that it does not need; for the monitor, each is a new daemon.
        let spare = told.find(|said| said["reason"]["reason"] == "spare").unwrap();
        assert_eq!(
            (&spare["cores_before"][0], &spare["trouble"]),
            (&Value::from(0), &Value::Null),
            "{spare}"
        );
        served.kill();
        let trouble = told.find(|said| !said["trouble"].is_null()).unwrap();
        assert!(trouble["trouble"].as_str().is_some_and(|why| why.contains("I/O daemon")), "{trouble}");
        assert_eq!(trouble["actions"], serde_json::json!([]));
        served.start_again();
        // The first report says that the daemon did not answer, the next that it cannot be reached.
        let again = told.find(|said| said["trouble"].is_null()).unwrap();
        assert!(again["figures"].is_object(), "{again}");
    }
    let said = run(&[
        "iocm",
        "status",
        "--json",
        "--socket",
        &served.path("control"),
        "--state",
        &served.path("state"),
    ]);
    assert_eq!((said.status, &said.json()["monitor"]["runs"]), (0, &Value::Bool(true)));
    let second = served.monitor(&["--for", "60s"]).stderr(Stdio::piped()).output().unwrap();
    let err = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(125), "{err}");
    assert!(err.contains(&format!("process {}", monitor.id())) && err.contains("--state"), "{err}");
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let Said { out, .. } =
        run(&["iocm", "status", "--socket", &served.path("control"), "--state", &served.path("state")]);
    assert!(out.contains("has ended"), "{out}");
}

#[test]
fn that_exits_are_not_counted_is_said_once_and_all_else_goes_on() {
    if cpus() < 2 {
        println!("not tested: the monitor needs two CPUs");
        return;
    }
    let served = Served::start();
    let said = |more: &[&str]| {
        let mut monitor = served.monitor(more);
        // The monitor looks for exits once a second.
        let monitor = monitor.args(["--for", "60s"]).stderr(Stdio::piped()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(3);
        let mut state = Value::Null;
        while Instant::now() < end || state.is_null() {
            let kept = std::fs::read(served.file("state")).unwrap_or_default();
            state = serde_json::from_slice(&kept).unwrap_or(state);
            std::thread::sleep(Duration::from_millis(50));
        }
        signal(&monitor, libc::SIGTERM);
        let out = monitor.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0));
        let err = String::from_utf8(out.stderr).unwrap();
        let why: Vec<String> =
            err.lines().filter_map(|line| Some(line.split_once("not counted: ")?.1.to_owned())).collect();
        (why, state)
    };
    let (why, state) = said(&[]);
    assert!(state["figures"].is_object(), "{state}");
    match state["exits_missing"].as_str() {
        Some(missing) => assert_eq!(why, [missing]),
        // KVM is loaded, and this user may count its exits.
        None => assert_eq!(why, [""; 0]),
    }
    let (why, state) = said(&["--no-exits"]);
    assert_eq!((why, &state["exits_missing"]), (Vec::new(), &Value::Null));
}

#[test]
fn without_a_daemon_and_without_a_monitor_there_is_no_status() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let Said { status, err, .. } =
        run(&["iocm", "status", "--socket", &file("none"), "--state", &file("state")]);
    assert!(status == 125 && err.contains("iocm serve"), "{err}");
    // The state of a monitor that was killed is no answer, and one of another version may be of one that runs.
    let killed = State::new(Path::new("/nowhere"), "vhost".to_owned(), false, 0.1);
    killed.write(Path::new(&file("state"))).unwrap();
    let Said { status, err, .. } =
        run(&["iocm", "status", "--socket", &file("none"), "--state", &file("state")]);
    assert!(status == 125 && err.contains("iocm serve"), "{err}");
    State { format: 9, ..killed }.write(Path::new(&file("state"))).unwrap();
    for command in ["status", "monitor"] {
        let Said { status, err, .. } =
            run(&["iocm", command, "--socket", &file("none"), "--state", &file("state")]);
        assert!(status == 125 && err.contains("format 9"), "{command}: {err}");
    }
    // The duration ends the wait for the next decision.
    let mut short =
        exitless(&["iocm", "monitor", "--no-exits", "--every", "1h", "--for", "10ms", "--socket"]);
    let short = short.arg(file("none")).arg("--state").arg(file("other")).output().unwrap();
    assert_eq!(short.status.code(), Some(0), "{}", String::from_utf8_lossy(&short.stderr));
    let Said { status, err, .. } = run(&["iocm", "watch", "--every", "5ms", "--socket", &file("none")]);
    assert!(status == 2 && err.contains("--every"), "{err}");
    let Said { status, err, .. } = run(&["iocm", "monitor", "--apply"]);
    assert!(status == 2 && err.contains("--vhost"), "{err}");
    std::fs::write(file("settings"), "add-above = 0.5\n").unwrap();
    let Said { status, err, .. } =
        run(&["iocm", "simulate", "--made", "steps", "--settings", &file("settings")]);
    assert!(status == 2 && err.contains("below `add-above`"), "{err}");
}

#[test]
fn a_made_load_is_replayed_kept_and_replayed_again() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("load.trace").to_str().unwrap().to_owned();
    let Said { status, out: table, err } =
        run(&["iocm", "simulate", "--made", "steps", "--devices", "64", "--cores", "16", "--write", &trace]);
    assert_eq!(status, 0, "{err}");
    assert!(table.contains("small messages") && table.contains("A thread for each device"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let Said { status, out: again, .. } = run(&["iocm", "simulate", &trace]);
    assert_eq!((status, &again), (0, &table));
    let Said { status, err, .. } = run(&["iocm", "simulate", &trace, "--devices", "3"]);
    assert!(status == 2 && err.contains("belong to --made; the trace has its own"), "{err}");
    let Said { status, err, .. } = run(&["iocm", "simulate", "--devices", "3"]);
    assert!(status == 2 && err.contains("--made <KIND>"), "{err}");
    let said = run(&["iocm", "simulate", &trace, "--json"]);
    let json = said.json();
    assert_eq!((said.status, json["outcome"]["phases"].as_array().unwrap().len()), (0, 6));
    for phase in json["outcome"]["phases"].as_array().unwrap() {
        let [settled, best] =
            [&phase["settled"], &phase["best"]["attained"]].map(|one| one.as_f64().unwrap());
        assert!(settled > 0.945 * best, "{phase}");
    }

    let whole = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, &whole[..whole.len() - 9]).unwrap();
    let said = run(&["iocm", "simulate", &trace, "--json"]);
    assert!(said.status == 4 && said.err.contains("At byte"), "{}", said.err);
    let cut = said.json();
    assert_eq!(cut["outcome"]["phases"].as_array().unwrap().len(), 5);
    assert_eq!(cut["damage"].as_array().unwrap().len(), 1);
    std::fs::write(&trace, "nonsense").unwrap();
    let Said { status, err, .. } = run(&["iocm", "simulate", &trace]);
    assert!(status == 2 && err.contains("is not a trace"), "{err}");
    let Said { status, err, .. } = run(&["iocm", "simulate", "/nowhere/at/all"]);
    assert!(status == 2 && err.contains("Cannot read the trace"), "{err}");
}
