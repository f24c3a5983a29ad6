//! A client of QEMU's machine protocol (QMP).

use super::connect_within;
use serde_json::{Value as Json, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The time in which QEMU listens, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(200);

/// A connection to QEMU's machine protocol (QMP).
#[derive(Debug)]
pub struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// Connects to a QEMU that has been started.
    ///
    /// # Panics
    /// When it does not listen in time, and as [`Self::ask`] does.
    #[must_use]
    pub fn connect(path: &Path) -> Self {
        let stream = connect_within(LIMIT, path).expect("QEMU listens");
        let mut qmp = Self(BufReader::new(stream));
        qmp.ask("qmp_capabilities", json!({}));
        qmp
    }

    /// Runs a command, and returns its answer.
    ///
    /// # Panics
    /// When it fails.
    pub fn ask(&mut self, command: &str, arguments: Json) -> Json {
        let asked = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{asked}").expect("QEMU reads");
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("QEMU answers");
            let mut answer: Json = serde_json::from_str(&line).expect("JSON in a line");
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            // Other lines are events.
            if let Some(answer) = answer.get_mut("return") {
                return answer.take();
            }
        }
    }
}
