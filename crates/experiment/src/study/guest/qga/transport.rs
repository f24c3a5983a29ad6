//! The ways to a guest agent: its socket, or libvirt's.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The agent marks the answer to a synchronization by a byte that is in no JSON (guest-sync-delimited).
const DELIMITER: u8 = 0xff;
/// The largest answer that is read: guest-exec keeps 16 MiB of each output (qga/commands.c, GUEST_EXEC_MAX_OUTPUT), which
/// base64 makes a third longer.
const LARGEST_ANSWER: u64 = 64 << 20;

/// A way to ask a guest agent.
pub(in crate::study::guest) trait Transport: Send {
    /// Lets it execute a command, and gives what it returns.
    fn ask(&mut self, command: &str, arguments: Option<Value>) -> Result<Value, String>;
}

/// What comes back: `return` or `error`.
fn answer(text: &[u8]) -> Result<Value, String> {
    let mut message: Map<String, Value> =
        serde_json::from_slice(text).map_err(|error| format!("the answer is not understood: {error}"))?;
    if let Some(value) = message.remove("return") {
        return Ok(value);
    }
    let words = message.get("error").and_then(|error| error.get("desc")).and_then(Value::as_str);
    Err(words.unwrap_or("the answer holds neither `return` nor `error`").to_owned())
}

fn request(command: &str, arguments: Option<Value>) -> String {
    let mut request = json!({ "execute": command });
    if let (Some(request), Some(arguments)) = (request.as_object_mut(), arguments) {
        request.insert("arguments".to_owned(), arguments);
    }
    request.to_string()
}

/// The socket that QEMU has for the agent's port.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    connection: Option<BufReader<UnixStream>>,
    asked: u64,
}

impl Socket {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), connection: None, asked: 0 }
    }

    /// Connects and passes over what is left of an earlier conversation.
    fn connect(&mut self) -> io::Result<BufReader<UnixStream>> {
        let socket = UnixStream::connect(&self.path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut connection = BufReader::new(socket);
        self.asked += 1;
        let number = u64::from(std::process::id()) << 32 | self.asked;
        let line = request("guest-sync-delimited", Some(json!({ "id": number })));
        connection.get_mut().write_all(&[&[DELIMITER], line.as_bytes(), b"\n"].concat())?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let mut passed = Vec::new();
            (&mut connection).take(LARGEST_ANSWER).read_until(DELIMITER, &mut passed)?;
            if answer(&line_of(&mut connection)?).is_ok_and(|value| value == json!(number)) {
                return Ok(connection);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn converse(&mut self, line: &str) -> io::Result<Vec<u8>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        connection.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let text = line_of(&mut connection)?;
        // After an error it is not known where the next answer begins, and the connection is made anew.
        self.connection = Some(connection);
        Ok(text)
    }
}

fn line_of(connection: &mut BufReader<UnixStream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    connection.take(LARGEST_ANSWER).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

impl Transport for Socket {
    fn ask(&mut self, command: &str, arguments: Option<Value>) -> Result<Value, String> {
        let text = self
            .converse(&request(command, arguments))
            .map_err(|error| format!("{} at `{command}`: {error}", self.path.display()))?;
        answer(&text)
    }
}

/// libvirt's way: `virsh qemu-agent-command`.
#[derive(Debug)]
pub(in crate::study::guest) struct Virsh {
    pub(in crate::study::guest) program: PathBuf,
    pub(in crate::study::guest) connect: String,
    pub(in crate::study::guest) domain: String,
}

impl Transport for Virsh {
    fn ask(&mut self, command: &str, arguments: Option<Value>) -> Result<Value, String> {
        let output = Command::new(&self.program)
            .args(["-q", "-c", &self.connect, "qemu-agent-command", "--timeout", "20", "--domain"])
            .args([&self.domain, "--cmd", &request(command, arguments)])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("running {}: {error}", self.program.display()))?;
        if output.status.success() {
            return answer(&output.stdout);
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
