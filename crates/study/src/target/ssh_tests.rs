//! Tests with local programs in place of ssh.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use super::*;
use crate::engine::Past;
use crate::plan::Plan;
use crate::record::{Cell, Run};
use crate::stream::STREAM_FORMAT;

const PLAN: &str = include_str!("../plan/small.toml");
const LONG: Duration = Duration::from_secs(60);

/// A mock of ssh that runs this script; the remote command is the script's last argument.
fn ssh(folder: &Path, script: &str) -> Ssh {
    let client = folder.join("ssh");
    fs::write(&client, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o700)).unwrap();
    let machine = Ssh::new("there", None, None, Vec::new(), Arc::default());
    Ssh { client, program: Some("exitless".to_owned()), ..machine }
}

/// A request that is larger than a pipe's buffer.
fn request() -> Request {
    let cell = Cell { block: 0, arm: [].into(), guests: 1, workload: "first".to_owned() };
    let runs = vec![Run::begun(cell, 0, 0); 2000];
    Request {
        format: STREAM_FORMAT,
        study: "test".to_owned(),
        plan: Plan::read(PLAN, "small.toml").unwrap(),
        seed: 5,
        past: Past { runs, ..Past::default() },
    }
}

#[test]
fn a_machine_that_reads_no_request_delays_neither_the_connection_nor_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut ssh = ssh(folder.path(), "exec sleep 1000");
    let begun = Instant::now();
    let mut connection = ssh.connect(&request()).unwrap();
    assert_eq!(connection.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    connection.ask_to_stop();
    assert_eq!(connection.end().as_deref(), Some(""));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn a_login_that_hangs_is_not_waited_for_after_an_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let mut ssh = Ssh { program: None, stop, ..ssh(folder.path(), "exec sleep 1000") };
    let begun = Instant::now();
    assert!(matches!(ssh.connect(&request()), Err(RemoteError::Unreachable(_))));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn a_machine_reads_the_whole_request_and_then_the_end_of_its_input_when_it_is_asked_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = ssh(folder.path(), "wc -c").connect(&request()).unwrap();
    assert_eq!(connection.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    connection.ask_to_stop();
    let (begun, mut said) = (Instant::now(), String::new());
    while begun.elapsed() < LONG && !said.ends_with('\n') {
        let mut bytes = [0; 64];
        if let Ok(read) = connection.read(&mut bytes) {
            said += &String::from_utf8_lossy(&bytes[..read]);
        }
    }
    let mut sent = Vec::new();
    Writer::begin(&mut sent).unwrap().message(&request()).unwrap();
    assert_eq!(said.trim(), sent.len().to_string());
}

#[test]
fn what_ssh_leaves_in_the_background_is_not_waited_for_and_its_last_words_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("said");
    let script = format!(
        "head -c 100000 /dev/zero | tr '\\0' x >&2; echo gone >&2; touch {}; sleep 100 & exit 1",
        mark.display()
    );
    let connection = ssh(folder.path(), &script).connect(&request()).unwrap();
    let begun = Instant::now();
    while !mark.exists() && begun.elapsed() < LONG {
        thread::sleep(Duration::from_millis(10));
    }
    let said = connection.end().unwrap();
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    assert!(said.len() == LAST_WORDS && said.ends_with("xgone\n"), "{}", said.len());
}

#[test]
fn a_machine_that_takes_no_program_or_never_answers_is_left_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = ssh(folder.path(), "exec sleep 1000");
    let begun = Instant::now();
    let error = ssh.finish("true", &vec![7; 1 << 20], Duration::from_millis(300)).unwrap_err();
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    let why = "there cannot be reached: it had not ended after 0.3 s and was killed";
    assert!(matches!(&error, RemoteError::Unreachable(said) if said == why), "{error}");
}

#[test]
fn the_status_of_the_script_is_told_from_a_failure_of_ssh() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = ssh(folder.path(), "for script; do :; done; eval \"$script\"");
    assert_eq!(ssh.finish("exit 3", &[], LONG).unwrap(), 3);
    let error = ssh.finish("echo 'no route' >&2; exit 255", &[], LONG).unwrap_err().to_string();
    assert_eq!(error, "there cannot be reached: no route");
    let gone = Ssh { client: folder.path().join("gone"), ..ssh };
    assert!(matches!(gone.finish("true", &[], LONG), Err(RemoteError::Hopeless(_))));
}

#[test]
fn a_signal_of_the_terminal_ends_short_commands_but_not_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    // proc_pid_stat(5): the ID, the command's name, the state, the parent, the process group.
    let own = "read -r _ _ _ _ group _ </proc/$$/stat; [ $group = $$ ] || exit 1";
    let mut ssh = ssh(folder.path(), &format!("{own}; echo $SSH_ASKPASS_REQUIRE; exec cat >/dev/null"));
    // Nothing has to be waited for after them, and copying this binary over a slow line takes minutes.
    assert_eq!(ssh.finish("true", &[], LONG).unwrap(), 1);
    let mut connection = ssh.connect(&request()).unwrap();
    let (begun, mut bytes) = (Instant::now(), [0; 64]);
    let read = loop {
        match connection.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < LONG => {}
            other => break other.unwrap(),
        }
    };
    assert_eq!(&bytes[..read], b"force\n");
}

#[test]
fn any_login_shell_reads_a_script_as_words_and_one_quoted_word() {
    let folder = tempfile::tempdir().unwrap();
    let command = ssh(folder.path(), "").command("test -x \"${HOME}/a b\" || exit 3");
    assert_eq!(command.get_args().last().unwrap(), "exec sh -c 'test -x \"${HOME}/a b\" || exit 3'");
}

#[test]
fn a_machine_that_runs_no_shell_is_not_taken_for_one_that_has_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let there = ssh(folder.path(), "for line; do :; done; eval \"$line\"");
    assert!(there.has("/bin/sh").unwrap());
    assert!(!there.has(&folder.path().join("none").display().to_string()).unwrap());
    for status in [1, 127] {
        let refusal = ssh(folder.path(), &format!("exit {status}")).has("/bin/sh").unwrap_err();
        let said = format!("Could not run sh on there: status {status}; try `ssh there exec sh -c true`");
        assert!(matches!(&refusal, RemoteError::Hopeless(why) if *why == said), "{refusal}");
    }
}

#[test]
fn a_program_that_arrives_in_part_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = ssh(folder.path(), "for script; do :; done; eval \"$script\"");
    let (cache, program) = (folder.path().join("cache"), folder.path().join("cache/program"));
    let script = copying(&cache.display().to_string(), &program.display().to_string(), 5);
    assert_eq!(ssh.finish(&script, b"1234", LONG).unwrap(), 1);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    assert_eq!(ssh.finish(&script, b"12345", LONG).unwrap(), 0);
    assert_eq!(fs::read(&program).unwrap(), b"12345");
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
}
