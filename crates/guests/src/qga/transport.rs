//! The transports to a guest agent: its socket, or libvirt's.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// The time limit of an answer, from the command to its last byte: a guest may send one byte at a time.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 20 });
/// The agent sends this byte, which cannot occur in JSON, before its answer to guest-sync-delimited.
const DELIMITER: u8 = 0xff;
/// The largest accepted answer: guest-exec keeps 16 MiB of each output (qga/commands.c,
/// GUEST_EXEC_MAX_OUTPUT), which base64 makes a third longer.
const LARGEST_ANSWER: usize = 64 << 20;

/// A transport to a guest agent.
pub(crate) trait Transport: Send {
    /// Executes a command, and returns its result.
    fn ask(&mut self, command: &str, arguments: Option<Value>) -> Result<Value, String>;
}

/// Parses an answer: the value of `return`, or the message of `error`.
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

/// The socket of the agent's virtio-serial port in QEMU.
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

    /// Connects and discards answers to an earlier connection's commands.
    fn connect(&mut self) -> io::Result<BufReader<UnixStream>> {
        let socket = UnixStream::connect(&self.path)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut connection = BufReader::new(socket);
        self.asked += 1;
        let number = u64::from(std::process::id()) << 32 | self.asked;
        let line = request("guest-sync-delimited", Some(json!({ "id": number })));
        connection.get_mut().write_all(&[&[DELIMITER], line.as_bytes(), b"\n"].concat())?;
        let end = Instant::now() + PATIENCE;
        loop {
            until(&mut connection, DELIMITER, end)?;
            if answer(&until(&mut connection, b'\n', end)?).is_ok_and(|value| value == json!(number)) {
                return Ok(connection);
            }
        }
    }

    fn converse(&mut self, line: &str) -> io::Result<Vec<u8>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        connection.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let text = until(&mut connection, b'\n', Instant::now() + PATIENCE)?;
        // Not kept after an error: the start of the next answer would be unknown.
        self.connection = Some(connection);
        Ok(text)
    }
}

/// The bytes up to a delimiter, which must arrive before `end`.
fn until(connection: &mut BufReader<UnixStream>, byte: u8, end: Instant) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.get_ref().set_read_timeout(Some(left))?;
        let there = connection.fill_buf()?;
        let found = there.iter().position(|&one| one == byte);
        let length = found.map_or(there.len(), |at| at + 1);
        text.extend_from_slice(&there[..length]);
        connection.consume(length);
        if found.is_some() {
            return Ok(text);
        }
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if text.len() > LARGEST_ANSWER {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

impl Transport for Socket {
    fn ask(&mut self, command: &str, arguments: Option<Value>) -> Result<Value, String> {
        let text = self
            .converse(&request(command, arguments))
            .map_err(|error| format!("{} at `{command}`: {error}", self.path.display()))?;
        answer(&text)
    }
}

/// libvirt's transport: `virsh qemu-agent-command`.
#[derive(Debug)]
pub(crate) struct Virsh {
    pub(crate) program: PathBuf,
    pub(crate) connect: String,
    pub(crate) domain: String,
}

impl Transport for Virsh {
    fn ask(&mut self, command: &str, arguments: Option<Value>) -> Result<Value, String> {
        let mut virsh = Command::new(&self.program);
        virsh.args(["-q", "-c", &self.connect, "qemu-agent-command", "--timeout", "20", "--domain"]);
        virsh.args([&self.domain, "--cmd", &request(command, arguments)]);
        // virsh's own timeout is shorter, but it does not cover a hanging libvirtd.
        let said = programs::answer(&mut virsh, 2 * PATIENCE, LARGEST_ANSWER)
            .map_err(|error| format!("{} at `{command}`: {error}", self.program.display()))?;
        said.output().and_then(|bytes| answer(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_guest_that_sends_a_byte_now_and_then_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let guest = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let begun = Instant::now();
        let why = Socket::new(&path).ask("guest-ping", None).unwrap_err();
        assert!(begun.elapsed() < PATIENCE * 3, "{:?}: {why}", begun.elapsed());
        guest.join().unwrap();
    }
}
