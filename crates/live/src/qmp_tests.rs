use super::fake::{EVENT, Fake, GREETING};
use super::*;
use proptest::prelude::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(80);

fn ask(monitor: &mut Monitor, command: &str, arguments: Option<Value>) -> Value {
    serde_json::from_str(monitor.ask(command, arguments).unwrap().get()).unwrap()
}

#[test]
fn answers_come_through_events() {
    let fake = Fake::qemu(2, |command, arguments| match command {
        "query-status" => Ok(json!({ "status": "running" })),
        "echo" => Ok(arguments.clone()),
        _ => Err(("CommandNotFound", "The command has not been found")),
    });
    for _ in 0..2 {
        let mut monitor = Monitor::connect(&fake.path(), LONG).unwrap();
        assert_eq!(monitor.version(), "10.0.13");
        assert_eq!(ask(&mut monitor, "query-status", None)["status"], "running");
        let arguments = json!({ "target": "vm", "text": "\u{fc}\n" });
        assert_eq!(ask(&mut monitor, "echo", Some(arguments.clone())), arguments);
        let error = monitor.ask("query-stats", None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "QEMU 10.0.13 refused `query-stats`: The command has not been found (CommandNotFound)"
        );
        assert_eq!(ask(&mut monitor, "query-status", None)["status"], "running");
    }
    fake.end();
}

#[test]
fn a_monitor_that_is_taken_is_told_from_one_that_is_slow() {
    let (end, ended) = mpsc::channel::<()>();
    let fake = Fake::raw(move |_taken| assert!(ended.recv().is_err()));
    let error = Monitor::connect(&fake.path(), SHORT).unwrap_err();
    assert!(matches!(error, QmpError::Busy { .. }), "{error}");
    drop(end);
    fake.end();

    let slow = |limit: Duration| {
        let (end, ended) = mpsc::channel::<()>();
        let fake = Fake::raw(move |mut stream| {
            // The other side may have given up.
            let _ = write!(stream, "{GREETING}\r\n{EVENT}\r\n");
            assert!(ended.recv().is_err());
        });
        let error = Monitor::connect(&fake.path(), limit).unwrap_err();
        drop(end);
        fake.end();
        error
    };
    // The greeting must come within the limit too. On a busy machine it does not always come within a short one.
    let mut errors = [1_u32, 10, 100].into_iter().map(|times| slow(times * SHORT));
    let error = errors.find(|error| !matches!(error, QmpError::Busy { .. })).unwrap();
    assert!(matches!(&error, QmpError::Silent { command, .. } if command == "qmp_capabilities"), "{error}");
}

#[test]
fn a_server_that_drips_does_not_outlast_the_deadline() {
    let fake = Fake::raw(|mut stream| {
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let begun = Instant::now();
    assert!(matches!(Monitor::connect(&fake.path(), SHORT), Err(QmpError::Busy { .. })));
    assert!(begun.elapsed() < LONG);
    fake.end();
}

#[test]
fn a_full_queue_of_others_does_not_hold_us() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _other = UnixStream::connect(&path).unwrap();
    let begun = Instant::now();
    assert!(matches!(Monitor::connect(&path, LONG), Err(QmpError::Busy { .. })));
    assert!(begun.elapsed() < LONG / 2);
}

#[test]
fn what_is_no_qmp_is_said_with_its_place() {
    for (text, at) in
        [("hello\r\n", 0), ("[1, 2]\r\n", 0), ("{\"desc\": 1}\r\n", 11), ("{\"QMP\": {\"a\" 1}}", 0)]
    {
        let fake = Fake::raw(move |mut stream| {
            stream.write_all(text.as_bytes()).unwrap();
            let _ = stream.read(&mut [0; 100]);
        });
        let error = Monitor::connect(&fake.path(), LONG).unwrap_err();
        assert!(matches!(error, QmpError::NotQmp { at: found, .. } if found == at), "{text}: {error:?}");
        fake.end();
    }
}

#[test]
fn a_server_that_leaves_is_not_waited_for() {
    for text in ["", "{\"QMP\": {", GREETING] {
        let fake = Fake::raw(move |mut stream| stream.write_all(text.as_bytes()).unwrap());
        let error = Monitor::connect(&fake.path(), LONG).unwrap_err();
        assert!(matches!(error, QmpError::Closed { .. }), "{text:?}: {error:?}");
        fake.end();
    }
}

#[test]
fn answers_to_others_and_pretty_ones() {
    let fake = Fake::raw(|mut stream| {
        write!(stream, "{GREETING}\r\n").unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        lines.next().unwrap().unwrap();
        write!(stream, "{{\r\n  \"return\": {{\r\n  }},\r\n  \"id\": 1\r\n}}\r\n").unwrap();
        lines.next().unwrap().unwrap();
        write!(stream, "{{\"return\": 1, \"id\": 1}}{{\"error\": 1}}{{\"return\": [2], \"id\": 2}}").unwrap();
        lines.next().unwrap().unwrap();
        write!(stream, "{{\"return\": null, \"id\": 3}}").unwrap();
    });
    let mut monitor = Monitor::connect(&fake.path(), LONG).unwrap();
    assert_eq!(ask(&mut monitor, "query-x", None), json!([2]));
    assert_eq!(ask(&mut monitor, "query-y", None), json!(null));
    fake.end();
}

#[test]
fn an_answer_takes_no_more_memory_than_its_text() {
    const OBJECT: &str = "{\"\": 0},";
    const OBJECTS: usize = 1 << 20;
    let fake = Fake::raw(|mut stream| {
        write!(stream, "{GREETING}\r\n{{\"return\": {{}}, \"id\": 1}}").unwrap();
        write!(stream, "{{\"return\": [{}0], \"id\": 2}}", OBJECT.repeat(OBJECTS)).unwrap();
        let _ = stream.read(&mut [0; 100]);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let before = most_memory();
    let answer = Monitor::connect(&fake.path(), LONG).unwrap().ask("query-pci", None).unwrap();
    assert_eq!(answer.get().len(), OBJECT.len() * OBJECTS + "[0]".len());
    assert!(serde_json::from_str::<Vec<u8>>(answer.get()).is_err());
    // The copies: the text as it was sent, in a growing read buffer, and as it is kept.
    let taken = most_memory() - before;
    assert!(taken < 8 * answer.get().len(), "{taken} bytes for {}", answer.get().len());
    fake.end();
}

/// The peak memory of this process so far, in bytes.
fn most_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn sockets_that_are_not_there_or_dead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    let said = |path: &Path| Monitor::connect(path, LONG).unwrap_err().to_string();
    assert!(said(&path).ends_with("the VM has ended, or its file system is another one"), "{}", said(&path));
    drop(UnixListener::bind(&path).unwrap());
    assert!(said(&path).ends_with("the VM that made it has ended"), "{}", said(&path));
}

#[test]
fn a_path_longer_than_an_address_works() {
    let fake = Fake::qemu(1, |_, _| Ok(json!(7)));
    let long = fake.root().join("d".repeat(120));
    std::fs::create_dir(&long).unwrap();
    std::fs::rename(fake.path(), long.join("qmp")).unwrap();
    let mut monitor = Monitor::connect(&long.join("qmp"), LONG).unwrap();
    assert_eq!(ask(&mut monitor, "x", None), json!(7));
    drop(monitor);
    fake.end();
}

#[test]
fn a_fifo_in_a_folders_place_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("f".repeat(120));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let error = Monitor::connect(&fifo.join("qmp"), LONG).unwrap_err();
    assert!(matches!(error, QmpError::Connect { .. }), "{error:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_bytes_after_the_greeting_end_in_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let fake = Fake::raw(move |mut stream| {
            write!(stream, "{GREETING}\r\n").unwrap();
            // Fails if the client has already disconnected.
            let _ = stream.write_all(&bytes);
        });
        prop_assert!(Monitor::connect(&fake.path(), LONG).is_err());
        fake.end();
    }
}
