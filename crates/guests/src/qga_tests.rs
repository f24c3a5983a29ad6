use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::super::release_together;
use super::*;
use crate::libvirt::Tool;
use crate::testing::{LONG, beyond_limits, ends, patience};

/// A mock agent that runs programs on this machine and answers as qemu-ga does. Its programs use the `date` in a folder,
/// if there is one.
struct Fake {
    running: BTreeMap<u64, Child>,
    path: String,
}

impl Transport for Fake {
    fn ask(&mut self, request: &str) -> Result<Vec<u8>, String> {
        let request = serde_json::from_str(request).unwrap();
        Ok(answer(&request, &mut self.running, &self.path).to_string().into_bytes())
    }
}

/// The socket of qemu-ga.
struct Socket(BufReader<UnixStream>);

impl Transport for Socket {
    fn ask(&mut self, request: &str) -> Result<Vec<u8>, String> {
        let mut line = Vec::new();
        let asked = writeln!(self.0.get_mut(), "{request}");
        let read = asked.and_then(|()| self.0.read_until(b'\n', &mut line));
        read.map(|_| line).map_err(|error| error.to_string())
    }
}

fn answer(request: &Value, running: &mut BTreeMap<u64, Child>, path: &str) -> Value {
    let argument = |key: &str| request["arguments"][key].clone();
    match request["execute"].as_str().unwrap() {
        "guest-ping" => json!({ "return": {} }),
        "guest-get-time" => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            json!({ "return": u64::try_from(now.as_nanos()).unwrap() })
        }
        "guest-get-vcpus" => {
            json!({ "return": [{ "logical-id": 0, "online": true }, { "logical-id": 1, "online": false }] })
        }
        "guest-network-get-interfaces" => json!({ "return": [
            { "name": "lo", "ip-addresses": [{ "ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8 }] },
            { "name": "eth0", "ip-addresses": [
                { "ip-address-type": "ipv6", "ip-address": "fe80::1", "prefix": 64 },
                { "ip-address-type": "ipv4", "ip-address": "192.168.122.5", "prefix": 24 },
            ] },
        ] }),
        "guest-exec" => {
            let words = argument("arg");
            let words = words.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
            let child = Command::new(argument("path").as_str().unwrap())
                .args(words)
                .env("PATH", path)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let pid = u64::from(child.id());
            running.insert(pid, child);
            json!({ "return": { "pid": pid } })
        }
        "guest-exec-status" => {
            let pid = argument("pid").as_u64().unwrap();
            if running.get_mut(&pid).unwrap().try_wait().unwrap().is_none() {
                return json!({ "return": { "exited": false } });
            }
            let output = running.remove(&pid).unwrap().wait_with_output().unwrap();
            json!({ "return": {
                "exited": true,
                "exitcode": output.status.code(),
                "out-data": coded(&output.stdout),
                "err-data": coded(&output.stderr),
            } })
        }
        other => {
            json!({ "error": { "class": "CommandNotFound", "desc": format!("The command {other} has not been found") } })
        }
    }
}

/// Encodes with a program other than the decoder under test.
fn coded(bytes: &[u8]) -> String {
    let mut child =
        Command::new("base64").arg("-w0").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

fn guest(folder: &Path, name: &str) -> AgentGuest {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    AgentGuest::with(name, Box::new(Fake { running: BTreeMap::new(), path }), patience(LONG)).unwrap()
}

#[test]
fn a_script_gives_its_outputs_and_its_status_and_no_words_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = guest(folder.path(), "agent");
    assert_eq!((guest.vcpus(), guest.address()), (1, Some([192, 168, 122, 5].into())));
    let output = guest.run("echo \"it's\"; echo wrong >&2; exit 3", LONG).unwrap();
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (3, "it's\n", "wrong\n"));
}

#[test]
fn guests_begin_at_the_time_that_was_agreed() {
    let folder = tempfile::tempdir().unwrap();
    let mut armed: Vec<_> =
        ["a", "b"].iter().map(|name| guest(folder.path(), name).arm("true", LONG).unwrap()).collect();
    let before = live::monotonic_ns();
    release_together(&mut armed).unwrap();
    let finished: Vec<_> =
        armed.into_iter().map(|armed| armed.finish(&AtomicBool::new(false)).unwrap()).collect();
    let lead = u64::try_from(LEAD.as_nanos()).unwrap();
    for one in &finished {
        assert!(one.began_ns >= before + lead - 50_000_000, "{} after {before}", one.began_ns);
        assert!(one.ended_ns >= one.began_ns);
    }
}

/// A guest whose clock is ahead by the number of nanoseconds in a file. It makes the file `read` beside it when it reads
/// its clock.
fn guest_with_a_clock(folder: &Path) -> (AgentGuest, std::path::PathBuf) {
    let (date, offset) = (folder.join("date"), folder.join("offset"));
    let (real, at) = (std::env::var("PATH").unwrap(), offset.display());
    std::fs::write(&offset, "0").unwrap();
    // The file is empty for a moment while a test writes it.
    let text = format!(
        "#!/bin/sh\nby=$(cat {at})\n: > {}\necho $(( $(PATH={real} date \"$@\") + ${{by:-0}} ))\n",
        folder.join("read").display()
    );
    std::fs::write(&date, text).unwrap();
    std::fs::set_permissions(&date, std::fs::Permissions::from_mode(0o755)).unwrap();
    (guest(folder, "agent"), offset)
}

#[test]
fn a_clock_that_is_set_during_a_script_does_not_change_how_long_it_took() {
    for step in ["-3000000000", "100000000000"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut guest, offset) = guest_with_a_clock(folder.path());
        let script = format!("echo {step} > {}; sleep 1; printf open >&2", offset.display());
        let mut armed = guest.arm(&script, LONG).unwrap();
        let before = live::monotonic_ns();
        armed.release().unwrap();
        let finished = armed.finish(&AtomicBool::new(false)).unwrap();
        let took = Duration::from_nanos(finished.ended_ns - finished.began_ns);
        assert!(took > Duration::from_millis(970), "{step}: {took:?}");
        assert!(finished.began_ns >= before && finished.ended_ns <= live::monotonic_ns(), "{step}");
        let said = finished.output.stderr;
        assert!(said.starts_with("open\nexitless: its clock was set"), "{step}: {said}");
    }
}

#[test]
fn a_clock_that_is_set_before_the_start_does_not_delay_it() {
    let minute = "-60000000000";
    for (before_it_is_told, step) in [(true, minute), (false, minute), (false, "60000000000")] {
        let folder = tempfile::tempdir().unwrap();
        let (mut guest, offset) = guest_with_a_clock(folder.path());
        // On a busy machine the clock may be set only after the start: then it is set during the script.
        let stepped = folder.path().join("stepped");
        let script = format!("until [ -e {} ]; do sleep 0.01; done", stepped.display());
        let mut armed = guest.arm(&script, LONG).unwrap();
        if before_it_is_told {
            std::fs::write(&offset, step).unwrap();
        }
        let at_ns = live::monotonic_ns() + u64::try_from(LEAD.as_nanos()).unwrap();
        armed.agree(at_ns).unwrap();
        if !before_it_is_told {
            // During the wait, which begins with a reading of the clock.
            let begun = Instant::now();
            while !folder.path().join("read").exists() {
                assert!(begun.elapsed() < LONG, "{step}: it is not told");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::write(&offset, step).unwrap();
        }
        std::fs::write(&stepped, "").unwrap();
        armed.release().unwrap();
        let finished = armed.finish(&AtomicBool::new(false)).unwrap();
        // A busy machine may delay the script, but not by as much as the step.
        assert!(live::monotonic_ns() < at_ns + 30_000_000_000, "{step}");
        assert!(finished.began_ns + 200_000_000 > at_ns, "{step}: {} before", at_ns - finished.began_ns);
        assert!(finished.ended_ns >= finished.began_ns && finished.ended_ns <= live::monotonic_ns());
        assert!(finished.output.stderr.contains("its clock was set"), "{step}");
    }
}

#[test]
fn a_script_beyond_its_limit_is_ended_with_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("pid");
    let script = format!("sh -c 'echo $$ > {}; sleep 100'", mark.display());
    let pid = beyond_limits(&mark, |limit| guest(folder.path(), "agent").run(&script, limit).unwrap_err());
    assert!(ends(&pid));
}

#[test]
fn what_a_script_started_is_ended_although_it_outlives_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("pid");
    let outlives = "(trap '' TERM; exec sleep 1000) > /dev/null 2>&1 &";
    let script = format!("{outlives} echo $! > {}; wait", mark.display());
    let pid = beyond_limits(&mark, |limit| guest(folder.path(), "agent").run(&script, limit).unwrap_err());
    assert!(ends(&pid));
}

#[test]
fn no_other_user_of_the_guest_can_write_a_start_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = guest(folder.path(), "agent");
    let place = guest.place().unwrap().path.clone();
    assert_eq!(Path::new(&place).metadata().unwrap().permissions().mode() & 0o777, 0o700);
    if rustix::process::geteuid().is_root() {
        assert!(place.starts_with("/run/exitless-"), "{place}");
    }
    assert_eq!(guest.place().unwrap().path, place);
    drop(guest);
    let begun = Instant::now();
    while Path::new(&place).exists() {
        assert!(begun.elapsed() < LONG, "{place} is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_start_time_is_a_number_and_never_run() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mark) = (folder.path().join("file"), folder.path().join("mark"));
    let hostile = format!("x[$(touch${{IFS}}{})]", mark.display());
    for shell in ["sh", "bash"] {
        for text in [format!("{hostile} 0\n"), format!("0 {hostile}\n"), "5\n".to_owned()] {
            std::fs::write(&file, &text).unwrap();
            let script = format!("touch {}", mark.display());
            let run = Command::new(shell).args(["-c", WAITING, "sh", &script]).arg(&file).arg("60").output();
            let Ok(run) = run else {
                println!("not tested: there is no {shell}");
                break;
            };
            assert_eq!(run.status.code(), Some(125), "{shell}: {text}{run:?}");
            assert!(!mark.exists(), "{shell}: {text}");
        }
    }
}

#[test]
fn a_script_does_not_wait_forever_for_its_start_time() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let run = Command::new("sh")
        .args(["-c", WAITING, "sh", "echo ran"])
        .arg(place.join("0"))
        .arg("0")
        .output()
        .unwrap();
    assert_eq!((run.status.code(), run.stdout.as_slice()), (Some(125), b"".as_slice()), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("did not come within 0 s"), "{run:?}");
    assert!(!place.exists());
}

#[test]
fn an_agent_that_is_not_there_is_named_with_what_to_do() {
    let (program, connect) = ("/nonexistent/virsh".into(), "qemu:///system".to_owned());
    let nowhere = Box::new(Virsh { tool: Tool { program, connect }, domain: "vm".to_owned() });
    let Err(refusal) = AgentGuest::with("vm", nowhere, patience(Duration::ZERO)) else {
        panic!("it answered")
    };
    let refusal = refusal.to_string();
    assert!(refusal.contains("/nonexistent/virsh") && refusal.contains("qemu-guest-agent"), "{refusal}");
}

#[test]
fn qemus_own_agent_is_understood() {
    const PROGRAM: &str = "/usr/sbin/qemu-ga";
    if !Path::new(PROGRAM).exists() {
        println!("not tested: there is no {PROGRAM}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut agent = Command::new(PROGRAM)
        .args(["-m", "unix-listen", "-p"])
        .arg(at("agent"))
        .arg("-t")
        .arg(folder.path())
        .arg("-f")
        .arg(at("pid"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let mut socket = UnixStream::connect(at("agent"));
    while socket.is_err() && begun.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(20));
        socket = UnixStream::connect(at("agent"));
    }
    let outcome = socket.map(|socket| {
        socket.set_read_timeout(Some(LONG)).unwrap();
        AgentGuest::with("vm", Box::new(Socket(BufReader::new(socket))), patience(Duration::ZERO))
            .and_then(|mut guest| guest.run("echo out; echo wrong >&2; exit 4", LONG))
    });
    agent.kill().unwrap();
    agent.wait().unwrap();
    let output = outcome.unwrap().unwrap();
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (4, "out\n", "wrong\n"));
}
