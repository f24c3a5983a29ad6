//! A machine that is reached by ssh. This binary is copied there if it is not there yet.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use sha2::{Digest as _, Sha256};

use super::{Chunks, Connection, Remote, RemoteError};
use crate::stream::{Request, Writer};

/// Status of ssh for its own failures (ssh(1), "EXIT STATUS").
const SSH_FAILED: i32 = 255;
/// Status of the script that looks for the binary.
const NOT_THERE: i32 = 3;
/// The bytes of the remote standard error that are kept for messages.
const LAST_WORDS: usize = 4096;

/// A machine by its name.
#[derive(Debug)]
pub struct Ssh {
    destination: String,
    port: Option<u16>,
    /// A configuration file of ssh to use instead of the user's.
    config: Option<PathBuf>,
    /// The arguments with which the program serves.
    serve: Vec<String>,
    /// The path of the binary on the machine, once known.
    program: Option<String>,
}

impl Ssh {
    /// The machine at `destination` (`[user@]host`), where the binary is started with the arguments `serve`.
    pub fn new(destination: &str, port: Option<u16>, config: Option<PathBuf>, serve: Vec<String>) -> Self {
        Self { destination: destination.to_owned(), port, config, serve, program: None }
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("ssh");
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        // A study runs unattended, so a connection that died silently must be noticed.
        for option in
            ["BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=10", "ServerAliveCountMax=3"]
        {
            command.args(["-o", option]);
        }
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["-T", "--", &self.destination, script]);
        command
    }

    /// Finds or copies this binary.
    fn program(&mut self) -> Result<String, RemoteError> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        let own = own_program()?;
        let folder = "\"${XDG_CACHE_HOME:-$HOME/.cache}/exitless\"";
        let program = format!("{folder}/exitless-{:.16}", hex(&Sha256::digest(&own)));
        let there = self.finish(self.command(&format!("test -x {program} || exit {NOT_THERE}")), None)?;
        if there == NOT_THERE {
            let copy = format!(
                "umask 077 && mkdir -p {folder} && cat >{program}.$$ && chmod 700 {program}.$$ && \
                 mv {program}.$$ {program}"
            );
            let status = self.finish(self.command(&copy), Some(&own))?;
            if status != 0 {
                let why = format!("Could not copy exitless to {}: status {status}", self.destination);
                return Err(RemoteError::Hopeless(why));
            }
        }
        self.program = Some(program.clone());
        Ok(program)
    }

    /// Runs a command to its end; returns the remote status.
    fn finish(&self, mut command: Command, input: Option<&[u8]>) -> Result<i32, RemoteError> {
        let piped = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        let child = command.stdin(piped).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(not_started)?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            // If it cannot read all of it, its status shows the failure.
            let _ = stdin.write_all(input);
        }
        let output = child.wait_with_output().map_err(not_started)?;
        match output.status.code() {
            Some(SSH_FAILED) | None => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(RemoteError::Unreachable(format!(
                    "{} cannot be reached: {}",
                    self.destination,
                    said.trim()
                )))
            }
            Some(status) => Ok(status),
        }
    }
}

impl Remote for Ssh {
    fn connect(&mut self, request: &Request) -> Result<Box<dyn Connection>, RemoteError> {
        let program = self.program()?;
        let script = format!("exec {program} {}", self.serve.join(" "));
        let mut command = self.command(&script);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(not_started)?;
        let broken = || RemoteError::Unreachable("ssh has no standard input".to_owned());
        let mut stdin = child.stdin.take().ok_or_else(broken)?;
        let sent = Writer::begin(&mut stdin).and_then(|mut writer| writer.message(request));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let said = stderr.map(|stderr| thread::spawn(move || last_words(stderr)));
        if sent.is_err() {
            let _ = child.wait();
            let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
            return Err(RemoteError::Unreachable(format!("{} does not listen: {said}", self.destination)));
        }
        let (sender, chunks) = mpsc::sync_channel(16);
        if let Some(mut stdout) = stdout {
            thread::spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(read @ 1..) = stdout.read(&mut bytes) {
                    if sender.send(bytes[..read].to_vec()).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Box::new(SshConnection { child, stdin: Some(stdin), chunks: Chunks::new(chunks), said }))
    }
}

struct SshConnection {
    child: Child,
    /// The other side stops when this is closed.
    stdin: Option<ChildStdin>,
    chunks: Chunks,
    said: Option<thread::JoinHandle<String>>,
}

impl Read for SshConnection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.chunks.read(bytes)
    }
}

impl Connection for SshConnection {
    fn ask_to_stop(&mut self) {
        self.stdin = None;
    }

    fn end(mut self: Box<Self>) -> Option<String> {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.said.take().and_then(|said| said.join().ok())
    }
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of the output: the log of a long study is not kept.
fn last_words(mut stderr: impl Read) -> String {
    let mut kept = Vec::new();
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut bytes) {
        kept.extend_from_slice(&bytes[..read]);
        if kept.len() > 2 * LAST_WORDS {
            kept.drain(..kept.len() - LAST_WORDS);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn own_program() -> Result<Vec<u8>, RemoteError> {
    fs::read("/proc/self/exe")
        .or_else(|_| {
            let path = std::env::current_exe()?;
            let mut bytes = Vec::new();
            File::open(path)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .map_err(|error: io::Error| {
            RemoteError::Hopeless(format!("Could not read this program's own file: {error}"))
        })
}

fn not_started(error: io::Error) -> RemoteError {
    RemoteError::Hopeless(format!("Could not run ssh: {error}; install the Debian package openssh-client"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
