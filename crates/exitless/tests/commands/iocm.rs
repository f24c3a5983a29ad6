//! The daemon as a command: its configuration, and how it ends.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, FrontEnd, connect_within};

use crate::command::command;

fn serve(config: &Path) -> Command {
    let mut command = command(&["iocm", "serve", "--config"]);
    command.arg(config).env("NO_COLOR", "1");
    command
}

fn refused(text: &str) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("iocm.toml");
    std::fs::write(&config, text).unwrap();
    serve(&config).output().unwrap()
}

fn wait_for(socket: &Path) {
    connect_within(Duration::from_secs(20), socket).expect("the daemon begins");
}

fn end(child: &mut Child) -> Option<i32> {
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: kill() has no memory safety requirement, and the child has not been waited for, so its ID is
    // not reused.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    child.wait().unwrap().code()
}

#[test]
fn it_serves_until_a_signal_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (config, socket) = (directory.path().join("iocm.toml"), directory.path().join("disk.sock"));
    let text = format!(
        "[workers]\ncount = 2\n[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\n[control]\nsocket = \"\"\nmount = \"\"\n"
    );
    std::fs::write(&config, text).unwrap();
    for arguments in [&[][..], &["--every", "50ms"]] {
        let mut child = serve(&config).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        wait_for(&socket);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if !arguments.is_empty() {
            let line = lines.next().unwrap().unwrap();
            let figures: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(figures["format"], 1);
            assert_eq!(figures["workers"].as_array().unwrap().len(), 2);
            assert_eq!(figures["devices"][0]["name"], "disk");
            assert_eq!(figures["devices"][0]["queues"][0]["requests"], 0);
        }
        assert_eq!(end(&mut child), Some(0));
        assert!(!socket.exists());
        assert_eq!(lines.count() > 0, !arguments.is_empty());
    }
}

/// A daemon with a disk that prints its figures to a pipe, and the pipe's other end.
fn printing(directory: &Path, every: &str) -> (Child, ChildStdout, UnixStream) {
    let (config, socket) = (directory.join("iocm.toml"), directory.join("disk.sock"));
    let text = format!(
        "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\n[control]\nsocket = \"\"\nmount = \"\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut child = serve(&config).args(["--every", every]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&socket);
    let out = child.stdout.take().unwrap();
    (child, out, UnixStream::connect(&socket).unwrap())
}

#[test]
fn it_serves_on_when_nobody_takes_its_figures() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, out, stream) = printing(directory.path(), "50ms");
    drop(out);
    std::thread::sleep(Duration::from_secs(1));
    let mut front = FrontEnd::new(stream).unwrap();
    front.negotiate(&BlockDriver::new(16, RingFeatures::default()).driver, 0).unwrap();
    assert_eq!(end(&mut child), Some(0));
}

#[test]
fn it_ends_at_a_signal_while_nobody_reads_its_figures() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, out, _stream) = printing(directory.path(), "1ms");
    // The pipe is full when no more comes.
    let (mut before, latest) = (0, Instant::now() + Duration::from_secs(60));
    loop {
        let held = rustix::io::ioctl_fionread(&out).unwrap();
        if held > 0 && held == before {
            break;
        }
        before = held;
        assert!(Instant::now() < latest, "the pipe does not fill: {held} bytes");
        std::thread::sleep(Duration::from_millis(200));
    }
    let begin = Instant::now();
    assert_eq!(end(&mut child), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn a_file_that_makes_no_daemon_is_told_by_what_is_wrong_with_it() {
    let outcome = refused("[workers]\nthreads = 4\n");
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(2), "{told}");
    assert!(told.contains("iocm.toml") && told.contains("threads"), "{told}");
    let outcome = refused(
        "[[device]]\nname = \"a\"\ntype = \"block\"\nsocket = \"/nowhere/a.sock\"\npath = \"/nowhere/a\"\n",
    );
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(125), "{told}");
    assert!(told.contains("/nowhere/a") && told.contains("Device a"), "{told}");
    let outcome = serve(Path::new("/nowhere/iocm.toml")).output().unwrap();
    assert_eq!(outcome.status.code(), Some(2));
}

#[test]
fn a_file_is_checked_while_a_daemon_has_its_disks_and_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (config, socket, image) = (at("iocm.toml"), at("disk.sock"), at("disk.raw"));
    std::fs::write(&image, [0; 4096]).unwrap();
    let text = format!(
        "[control]\nsocket = \"\"\nmount = \"\"\n\
         [[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\npath = {image:?}\n"
    );
    std::fs::write(&config, &text).unwrap();
    let mut child = serve(&config).spawn().unwrap();
    wait_for(&socket);
    let check = || {
        let output = serve(&config).arg("--check").output().unwrap();
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, told) = check();
    assert_eq!(status, Some(0), "{told}");
    for (line, expected) in [
        ("paths = 1", "paths"),
        ("socket-group = \"nobody-at-all\"", "no group `nobody-at-all`"),
        ("[safety]\nuser = \"nobody-at-all\"", "no user `nobody-at-all`"),
        ("[safety]\nkeep-capabilities = [\"CAP_FLY\"]", "CAP_FLY"),
    ] {
        std::fs::write(&config, format!("{text}{line}\n")).unwrap();
        let (status, told) = check();
        assert!(status == Some(2) && told.contains(expected), "{line}: {status:?}: {told}");
    }
    assert!(socket.exists());
    assert_eq!(end(&mut child), Some(0));
}
