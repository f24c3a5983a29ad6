//! Studies with the real program: killed, interrupted, and on another machine.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use study::forecast::needed_programs;
use study::plan::SHIPPED;
use study::store::StudyFolder;
use study::workload::Place;

use crate::command::command;

const LIMIT: Duration = Duration::from_secs(120);

fn exitless(arguments: &[&str], folder: &Path) -> Command {
    let mut command = command(&["experiment"]);
    command.args(arguments).current_dir(folder).env("TMPDIR", folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    exitless(arguments, folder).output().unwrap()
}

/// Two arms of one script in three blocks: six runs.
pub(crate) fn plan(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("plan.toml");
    let text = format!(
        r#"
name = "tiny"
title = "A script on the host"
question = "Does it run?"
[order]
repeats = 3
warm_up = 0
attempts = 2
[guests]
kind = "host"
[[factors]]
name = "switch"
baseline = "off"
levels = [{{ name = "off" }}, {{ name = "on" }}]
[[workloads]]
name = "script"
tool = "command"
script = '{script}'
metrics = [{{ name = "said", unit = "count", better = "higher", combine = "sum", regex = '^said (\d+)$' }}]
[samples]
exits = false
"#
    );
    fs::write(&path, text).unwrap();
    path
}

fn whole(folder: &Path) -> usize {
    fs::read_dir(folder.join("result/runs")).map_or(0, Iterator::count)
}

fn wait_for_runs(child: &mut Child, folder: &Path, runs: usize) {
    let began = Instant::now();
    while whole(folder) < runs {
        assert!(began.elapsed() < LIMIT, "no {runs} runs within {LIMIT:?}");
        assert_eq!(child.try_wait().unwrap(), None, "the study ended before");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A script that waits while as many runs are whole as [`allow_runs`] says, or more.
fn waiting_script(folder: &Path) -> String {
    let step = "cd FOLDER; while [ $(ls result/runs 2> /dev/null | wc -l) -ge $(cat most) ]; do sleep 0.05; done; \
                echo said 7";
    step.replace("FOLDER", folder.to_str().unwrap())
}

/// Lets the study have this many whole runs. The script finds the number at once or not at all.
fn allow_runs(folder: &Path, most: usize) {
    fs::write(folder.join("most.new"), most.to_string()).unwrap();
    fs::rename(folder.join("most.new"), folder.join("most")).unwrap();
}

fn wait_for_file(child: &mut Child, file: &Path) {
    let began = Instant::now();
    while !file.exists() {
        assert!(began.elapsed() < LIMIT, "no {} within {LIMIT:?}", file.display());
        assert_eq!(child.try_wait().unwrap(), None, "the study ended before");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Asserts that all six runs exist once, with the script's output.
fn assert_complete(folder: &Path) {
    let read = StudyFolder::open(&folder.join("result")).unwrap();
    assert_eq!(read.warnings, Vec::<String>::new());
    let cells: BTreeSet<_> = read.runs.iter().map(|kept| kept.run.cell.clone()).collect();
    assert_eq!((read.runs.len(), cells.len()), (6, 6));
    for kept in &read.runs {
        assert_eq!(kept.run.guests[0][0].value, 7.0, "{:?}", kept.run);
        let said = fs::read_to_string(kept.folder.join("guest-0/command.out")).unwrap();
        assert_eq!(said, "said 7\n");
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_study_that_was_killed_goes_on_and_nothing_is_lost_or_double() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), &waiting_script(folder.path()));
    let arguments = ["run", plan.to_str().unwrap(), "--output", "result", "--json"];
    for runs in [1, 3] {
        allow_runs(folder.path(), runs);
        let mut child = exitless(&arguments, folder.path()).spawn().unwrap();
        wait_for_runs(&mut child, folder.path(), runs);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let before: Vec<u64> = started(folder.path());
    assert_eq!(before.len(), 3);
    allow_runs(folder.path(), 6);
    let output = run(&arguments, folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["complete"], &summary["runs"]), (&true.into(), &6.into()));
    assert_complete(folder.path());
    // The blocks that were whole before the kill are kept, and each block is of one session.
    let in_whole = before.len() / 2 * 2;
    assert_eq!(started(folder.path())[..in_whole], before[..in_whole]);
    let StudyFolder { study, runs, .. } = StudyFolder::open(&folder.path().join("result")).unwrap();
    let sessions: BTreeSet<_> = runs.iter().map(|kept| (kept.run.cell.block, kept.run.session)).collect();
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    assert_eq!(study.resumed.len(), 2);
    assert!(study.resumed.iter().all(|resumed| resumed.unlike.is_empty()));
}

/// The start time of each complete run, by its position in the order.
fn started(folder: &Path) -> Vec<u64> {
    let read = StudyFolder::open(&folder.join("result")).unwrap();
    read.runs.iter().map(|kept| kept.run.started).collect()
}

#[test]
fn an_interrupted_study_says_so_and_another_plan_does_not_go_on_with_it() {
    let folder = tempfile::tempdir().unwrap();
    // The second step does not end before the signal is answered.
    let step = "cd FOLDER; if [ -e first ]; then trap \"\" TERM; touch begun; \
                until grep -q \"a second Ctrl-C ends this at once\" told; do sleep 0.05; done; fi; \
                touch first; echo said 7";
    let path = plan(folder.path(), &step.replace("FOLDER", folder.path().to_str().unwrap()));
    let arguments = ["run", path.to_str().unwrap(), "--output", "result"];
    let told = fs::File::create(folder.path().join("told")).unwrap();
    let mut child = exitless(&arguments, folder.path()).stderr(told).spawn().unwrap();
    wait_for_file(&mut child, &folder.path().join("begun"));
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    assert!(text(&output).contains("the same command resumes it"), "{}", text(&output));
    let told = fs::read_to_string(folder.path().join("told")).unwrap();
    assert!(told.contains("a second Ctrl-C ends this at once"), "{told}");

    let other = plan(folder.path(), "echo said 8");
    let output = run(&["run", other.to_str().unwrap(), "--output", "result"], folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("workloads[0].script was"), "{}", text(&output));
}

#[test]
fn a_hang_up_of_the_terminal_interrupts_a_study_however_often_it_comes_and_not_under_nohup() {
    let folder = tempfile::tempdir().unwrap();
    // The steps do not end before the signal was given.
    let step = "cd FOLDER; touch begun; until [ -e given ]; do sleep 0.05; done; echo said 7";
    let path = plan(folder.path(), &step.replace("FOLDER", folder.path().to_str().unwrap()));
    let arguments = ["run", path.to_str().unwrap(), "--output", "result"];
    let begun = folder.path().join("begun");
    // The tests themselves may run under nohup.
    let start = |signal: &str| {
        let mut command = Command::new("env");
        command.args([signal, env!("CARGO_BIN_EXE_exitless"), "experiment"]).args(arguments);
        command.current_dir(folder.path()).env("TMPDIR", folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut child = start("--default-signal=HUP");
    wait_for_file(&mut child, &begun);
    signal(&child, "-HUP");
    signal(&child, "-HUP");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    assert!(text(&output).contains("the same command resumes it"), "{}", text(&output));

    fs::remove_file(&begun).unwrap();
    let mut child = start("--ignore-signal=HUP");
    wait_for_file(&mut child, &begun);
    signal(&child, "-HUP");
    fs::write(folder.path().join("given"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_complete(folder.path());
}

#[test]
fn a_study_that_is_terminated_more_than_once_still_cleans_up() {
    for first in ["-TERM", "-INT"] {
        let folder = tempfile::tempdir().unwrap();
        // The step does not end before the signals were given.
        let step =
            "cd FOLDER; trap \"\" TERM; touch begun; until [ -e given ]; do sleep 0.05; done; echo said 7";
        let path = plan(folder.path(), &step.replace("FOLDER", folder.path().to_str().unwrap()));
        let arguments = ["run", path.to_str().unwrap(), "--output", "result"];
        let mut child = exitless(&arguments, folder.path()).spawn().unwrap();
        wait_for_file(&mut child, &folder.path().join("begun"));
        for sent in [first, "-TERM", "-TERM"] {
            signal(&child, sent);
        }
        fs::write(folder.path().join("given"), "").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{first}: {}", text(&output));
        assert!(text(&output).contains("the same command resumes it"), "{first}: {}", text(&output));
    }
}

#[test]
fn a_study_goes_on_if_nobody_can_be_warned() {
    let folder = tempfile::tempdir().unwrap();
    let path = plan(folder.path(), "echo nothing to read");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = exitless(&["run", path.to_str().unwrap(), "--output", "result"], folder.path());
    let output = command.stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("failed for good"), "{}", text(&output));
}

#[test]
fn a_study_has_its_status_even_if_nobody_reads_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    let path = plan(folder.path(), "echo nothing to read");
    for json in [&["--json"][..], &[]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let arguments = [&["run", path.to_str().unwrap(), "--output", "result"][..], json].concat();
        let output = exitless(&arguments, folder.path()).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{json:?}: {}", text(&output));
    }
}

#[test]
fn without_a_terminal_each_run_has_a_line_and_a_shared_reason_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let lines = |script: &str, result: &str, beginning: &str| {
        let path = plan(folder.path(), script);
        let output = run(&["run", path.to_str().unwrap(), "--output", result], folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let runs = said.lines().filter(|line| line.starts_with(beginning)).count();
        (runs, said, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (runs, said, _) = lines("echo said 7", "good", "Run ");
    assert_eq!(runs, 6, "{said}");
    assert!(said.starts_with("Run 1 of 6: "), "{said}");

    let (attempts, said, summary) = lines("echo nothing to read", "bad", "Run ");
    assert_eq!(attempts, 12, "{said}");
    assert_eq!(said.matches("failed for the same reason").count(), 11, "{said}");
    assert_eq!(summary.matches("6 runs failed for good").count(), 1, "{summary}");
    assert_eq!(summary.lines().count(), 2, "{summary}");
}

#[test]
fn runs_that_fail_are_kept_with_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = plan(folder.path(), "echo nothing to read");
    let output = run(&["run", path.to_str().unwrap(), "--output", "result", "--json"], folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["failed_for_good"].as_array().unwrap().len(), 6);
    let read = StudyFolder::open(&folder.path().join("result")).unwrap();
    assert_eq!((read.runs.len(), read.failed.len()), (0, 12));
    assert!(read.failed.iter().all(|kept| kept.run.failure.as_ref().unwrap().contains("nothing to read")));
    let kept = fs::read_to_string(read.failed[0].folder.join("guest-0/command.out")).unwrap();
    assert_eq!(kept, "nothing to read\n");
}

#[test]
fn plans_are_listed_checked_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let listed: Value = serde_json::from_slice(&run(&["list", "--json"], folder.path()).stdout).unwrap();
    for plan in listed.as_array().unwrap() {
        let output = run(&["check", plan["name"].as_str().unwrap(), "--json"], folder.path());
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
        let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&checked["format"], checked["version"].is_string()),
            (&Value::from(1), true),
            "{checked}"
        );
        let sizes = match plan["suite"].as_bool().unwrap() {
            true => checked["studies"].as_array().unwrap().iter().map(|study| &study["runs"]).collect(),
            false => vec![&checked["forecast"]["runs"]],
        };
        assert!(sizes.iter().all(|runs| runs.as_u64().unwrap() > 0), "{checked}");
    }
    fs::write(folder.path().join("bad.toml"), "name = \"x\"\ncolour = 1\n").unwrap();
    let output = run(&["check", "bad.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("bad.toml:2: unknown field `colour`"), "{}", text(&output));
    assert_eq!(run(&["check", "no-such-plan"], folder.path()).status.code(), Some(2));
}

#[test]
fn control_characters_of_a_title_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = plan(folder.path(), "echo said 7");
    let hostile = r#"title = "a\u001b]0;x\u0007\u009b""#;
    let text = fs::read_to_string(&path).unwrap().replace("title = \"A script on the host\"", hostile);
    fs::write(&path, text).unwrap();
    let output = run(&["check", "plan.toml"], folder.path());
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("tiny: a\u{fffd}]0;x\u{fffd}\u{fffd}\n"), "{said:?}");
    assert!(said.chars().all(|one| one == '\n' || !one.is_control()), "{said:?}");
}

#[test]
fn a_suite_with_escape_sequences_in_its_name_is_refused_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let suite = r#"
name = "a\u001b]0;x\u0007"
title = "One study"
[[studies]]
name = "ipi"
plan = "ipi-cost-lab"
target = "lab:intel-apicv"
"#;
    fs::write(folder.path().join("suite.toml"), suite).unwrap();
    let output = run(&["check", "suite.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output);
    assert!(said.contains("suite.toml: name: expected lower-case letters"), "{said:?}");
    assert!(said.chars().all(|one| one == '\n' || !one.is_control()), "{said:?}");
}

/// An ssh server on the loopback address, with keys of its own. The test has the socket, so that nobody else gets the
/// port, and starts an sshd for each connection.
struct Server {
    connections: Arc<Mutex<Vec<Child>>>,
    folder: tempfile::TempDir,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        cut(self);
    }
}

fn server() -> Result<Server, String> {
    let program = Path::new("/usr/sbin/sshd");
    if !program.is_file() {
        return Err("there is no /usr/sbin/sshd (Debian package openssh-server)".to_owned());
    }
    // sshd refuses keys in a folder that others may write to; only /tmp itself is exempt.
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    for key in ["host", "user"] {
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err("ssh-keygen made no key".to_owned());
        }
    }
    fs::copy(at("user.pub"), at("authorized")).map_err(|error| error.to_string())?;
    let _ = fs::create_dir_all("/run/sshd");
    let (host, authorized) = (at("host"), format!("AuthorizedKeysFile={}", at("authorized")));
    let sshd = move |mode: &str| {
        let mut command = Command::new(program);
        command.args([mode, "-e", "-f", "/dev/null", "-h", &host, "-o", &authorized]);
        command.args(["-o", "StrictModes=no", "-o", "UsePAM=no"]).stderr(Stdio::null());
        command
    };
    if !sshd("-t").status().is_ok_and(|status| status.success()) {
        return Err("sshd does not start here".to_owned());
    }
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let connections = Arc::<Mutex<Vec<Child>>>::default();
    let started = Arc::clone(&connections);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = OwnedFd::from(stream.unwrap());
            let child = sshd("-i").stdin(stream.try_clone().unwrap()).stdout(stream).spawn().unwrap();
            started.lock().unwrap().push(child);
        }
    });
    let config = format!(
        "Host *\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nStrictHostKeyChecking accept-new\n",
        at("user"),
        at("known")
    );
    fs::write(at("config"), config).map_err(|error| error.to_string())?;
    Ok(Server { connections, folder, port })
}

/// Breaks the connections to a server by killing their processes.
fn cut(server: &Server) {
    for mut child in server.connections.lock().unwrap().drain(..) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn a_study_by_ssh_loses_no_run_when_the_link_breaks() {
    let server = match server() {
        Ok(server) => server,
        Err(why) => return println!("not tested: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = plan(folder.path(), &waiting_script(folder.path()));
    allow_runs(folder.path(), 2);
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let target = format!("ssh://{}@127.0.0.1:{}", user.trim(), server.port);
    let config = server.folder.path().join("config");
    let mut command = exitless(
        &["run", path.to_str().unwrap(), "--output", "result", "--json", "--target", &target, "--ssh-config"],
        folder.path(),
    );
    let mut child = command.arg(&config).spawn().unwrap();
    wait_for_runs(&mut child, folder.path(), 2);
    cut(&server);
    allow_runs(folder.path(), 6);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("trying again in"), "{}", text(&output));
    assert_complete(folder.path());
}

#[test]
fn what_the_plans_for_laboratories_need_is_in_the_images() {
    for shipped in SHIPPED.iter().filter(|shipped| shipped.text.starts_with("# For --target lab:")) {
        let lab = if shipped.name.contains("xen") { "xen" } else { "amd-svm" };
        let host = lab::Lab::find(lab).unwrap().requested_packages();
        for needed in needed_programs(&shipped.plan().unwrap()) {
            let packages = match needed.place {
                Place::Host => host,
                Place::Guest => lab::GuestImage::REQUESTED_PACKAGES,
            };
            // xen-utils-4.20 contains `xl`; xen-utils-common depends on it.
            let package = needed.package.replace("xen-utils-common", "xen-utils-4.20");
            assert!(packages.contains(&package.as_str()), "{}: {needed:?}", shipped.name);
        }
    }
}
