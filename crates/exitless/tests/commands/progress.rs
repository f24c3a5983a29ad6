//! Progress of long work on standard error: a line per step in a pipe, a line that is redrawn on a terminal.
//! (`experiment_run.rs` tests the lines of a study in a pipe.)

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::command::{command, out};
use crate::experiment_run::plan;

/// The width of the terminal of these tests.
const COLUMNS: u16 = 100;

/// Runs a command whose standard error is a terminal. Returns its output, and what it wrote to the terminal.
fn on_a_terminal(command: &mut Command) -> (Output, String) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    tcsetwinsize(&near, Winsize { ws_row: 24, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let path = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = File::options().read(true).write(true).open(path).unwrap();
    let mut near = File::from(near);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        match near.read_to_end(&mut bytes) {
            Ok(_) => {}
            // EIO: all processes have closed the other end.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {}
            Err(error) => panic!("{error}"),
        }
        String::from_utf8(bytes).unwrap()
    });
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(far)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    let child = command.spawn().unwrap();
    // The command holds a copy of the other end, which would keep the terminal open.
    command.stderr(Stdio::null());
    let output = child.wait_with_output().unwrap();
    (output, reader.join().unwrap())
}

/// The texts that the terminal's line showed one after the other, each once, without spinner and time.
fn seen(written: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for drawn in written.split(['\r', '\n', '\x1b']) {
        // The rest of a control sequence, such as `[2K`, precedes the text.
        let text = match drawn.strip_prefix('[') {
            Some(rest) => rest
                .trim_start_matches(|next: char| next.is_ascii_digit() || next == ';')
                .get(1..)
                .unwrap_or(""),
            None => drawn,
        };
        let Some((_, text)) = text.split_once(' ') else { continue };
        let text = text.rsplit_once(" (").map_or(text, |(text, _)| text).trim();
        if !text.is_empty() && texts.last().map(String::as_str) != Some(text) {
            texts.push(text.to_owned());
        }
    }
    texts
}

/// Asserts that a terminal's line was redrawn, and is empty at the end.
fn assert_moved(written: &str) {
    assert!(!written.contains('\n'), "a line stays on the terminal: {written:?}");
    assert!(written.matches("\x1b[2K").count() > 2, "the line does not move: {written:?}");
    let end = written.rfind("\x1b[2K").unwrap() + "\x1b[2K".len();
    assert!(!written[end..].contains(char::is_alphanumeric), "something stays on the terminal: {written:?}");
}

/// A study with two arms of three short runs each.
fn study(folder: &Path) -> Command {
    plan(folder, "sleep 1; echo said 7");
    let mut command = command(&["experiment", "run", "plan.toml", "--output", "result"]);
    command.current_dir(folder).env("TMPDIR", folder);
    command
}

/// A web server that answers every request until its clients have disconnected. Returns the URL of its
/// document.
fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            std::thread::spawn(move || serve(&connection));
        }
    });
    format!("http://{address}/document")
}

fn serve(connection: &TcpStream) {
    let mut writer = connection;
    for line in BufReader::new(connection).lines() {
        match line {
            // An empty line ends a request's head.
            Ok(line) if line.is_empty() => {
                if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn load(url: &str, duration: &str) -> Command {
    command(&["load", "http", "--connections", "1", "--rate", "5", "--duration", duration, url])
}

#[test]
fn a_study_has_one_line_that_moves_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let (output, written) = on_a_terminal(&mut study(folder.path()));
    assert_eq!(output.status.code(), Some(0), "{written}");
    assert_moved(&written);
    let seen = seen(&written);
    for run in 1..=6 {
        let is_it =
            |text: &String| text.starts_with(&format!("Run {run} of 6: ")) && text.ends_with(": running");
        assert!(seen.iter().any(is_it), "no run {run}: {seen:#?}");
    }
    assert!(out(&output).starts_with("6 runs in result"), "{output:?}");
}

#[test]
fn a_load_has_one_line_that_moves_on_a_terminal() {
    let url = web_server();
    let (output, written) = on_a_terminal(&mut load(&url, "3s"));
    assert_eq!(output.status.code(), Some(0), "{written}");
    assert_moved(&written);
    assert_eq!(seen(&written), [format!("Asking {url} for 3.0 s")]);
}

fn guests(script: &str) -> Command {
    command(&["guest", "run", "--set", "kind = \"host\"", "--count", "2", "--", script])
}

#[test]
fn guests_say_that_their_script_runs() {
    let (output, written) = on_a_terminal(&mut guests("sleep 3"));
    assert_eq!(output.status.code(), Some(0), "{written}");
    assert_moved(&written);
    assert_eq!(seen(&written), ["Running the script in 2 guests"]);
}

#[test]
fn guests_say_once_in_a_pipe_that_their_script_runs() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    // It ends when this test has read the line.
    let script = format!("until [ -e {} ]; do sleep 0.1; done", told.display());
    let mut child = guests(&script).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    lines.read_line(&mut said).unwrap();
    File::create(told).unwrap();
    lines.read_to_string(&mut said).unwrap();
    assert_eq!(said, "Running the script in 2 guests\n");
    assert!(child.wait().unwrap().success());
}
