//! A thread that plays QEMU: it greets, negotiates and gives a test's answers.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

pub(crate) const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 13, "minor": 0, "major": 10}, "package": "Debian"}, "capabilities": ["oob"]}}"#;
pub(crate) const EVENT: &str = r#"{"timestamp": {"seconds": 1795319679, "microseconds": 938384}, "event": "RTC_CHANGE", "data": {"offset": 1}}"#;

pub(crate) struct Fake {
    folder: tempfile::TempDir,
    server: Option<JoinHandle<()>>,
}

impl Fake {
    /// Serves one connection by calling `serve`, then closes it.
    pub(crate) fn raw(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("qmp")).unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        Self { folder, server: Some(server) }
    }

    /// Serves this number of connections with the protocol. `answer` returns the result of a command, or an error's
    /// class and description; an event precedes each answer.
    pub(crate) fn qemu(
        connections: usize,
        answer: impl Fn(&str, &Value) -> Result<Value, (&'static str, &'static str)> + Send + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("qmp")).unwrap();
        let serve = move || {
            for _ in 0..connections {
                let (stream, _) = listener.accept().unwrap();
                speak(stream, &answer);
            }
        };
        Self { folder, server: Some(thread::spawn(serve)) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("qmp")
    }

    /// The folder with the socket `qmp`.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until the server has served all connections.
    pub(crate) fn end(mut self) {
        self.server.take().unwrap().join().unwrap();
    }
}

fn speak(
    mut stream: UnixStream,
    answer: &impl Fn(&str, &Value) -> Result<Value, (&'static str, &'static str)>,
) {
    stream.write_all(format!("{GREETING}\r\n").as_bytes()).unwrap();
    let mut negotiated = false;
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let command = request["execute"].as_str().unwrap();
        let outcome = match (command, negotiated) {
            ("qmp_capabilities", false) => {
                negotiated = true;
                Ok(json!({}))
            }
            (_, false) => Err(("CommandNotFound", "Expecting capabilities negotiation")),
            _ => answer(command, &request["arguments"]),
        };
        let mut reply = match outcome {
            Ok(value) => json!({ "return": value }),
            Err((class, words)) => json!({ "error": { "class": class, "desc": words } }),
        };
        reply["id"] = request["id"].clone();
        // In one write: a client may disconnect as soon as it has its answer, before the end of the line.
        stream.write_all(format!("{EVENT}\r\n{reply}\r\n").as_bytes()).unwrap();
    }
}
