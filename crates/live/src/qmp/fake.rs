//! A thread in place of QEMU: it greets, negotiates, and gives the answers of a test.

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
    /// Serves one connection with whatever `serve` does, then closes it.
    pub(crate) fn raw(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("qmp")).unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        Self { folder, server: Some(server) }
    }

    /// Serves `connections` connections by the protocol. `answer` gives what is returned for a command, or the
    /// error's class and words; an event comes before each answer.
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

    /// Waits until the server has served.
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
        // In one piece: a client that has its answer may leave before the line's end.
        stream.write_all(format!("{EVENT}\r\n{reply}\r\n").as_bytes()).unwrap();
    }
}
