//! A machine that is reached over ssh. This binary is copied there if necessary.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use guests::shell::by_sh;
use programs::Error;
use sha2::{Digest as _, Sha256};

use super::{Chunks, Connection, Remote, RemoteError};
use crate::stream::{Request, Writer};

/// The exit status of ssh for its own failures (ssh(1), "EXIT STATUS").
const SSH_FAILED: i32 = 255;
/// The exit status of our script if the binary is missing.
const NOT_THERE: i32 = 3;
/// The bytes of the remote standard error that are kept for messages.
const LAST_WORDS: usize = 4096;
/// The time to wait for the end of standard error after ssh has ended. A master connection in the background may hold
/// it open (ssh_config(5), ControlPersist).
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
/// The time limit of a short command, including the connection and the login.
const LOOK: Duration = Duration::from_secs(120);
/// The time limit for copying this binary: 20 MB over a slow line.
const COPY: Duration = Duration::from_secs(600);
/// The most bytes that a login shell prints on standard output.
const MOST_PRINTED: usize = 64 << 10;

/// A machine by its name.
#[derive(Debug)]
pub struct Ssh {
    destination: String,
    port: Option<u16>,
    /// A configuration file for ssh to use instead of the user's.
    config: Option<PathBuf>,
    /// The ssh program.
    client: PathBuf,
    /// The arguments that make the binary serve a study.
    serve: Vec<String>,
    /// The path of the binary on the machine, once known.
    program: Option<String>,
    /// Ends the wait for a login and a copy.
    stop: Arc<AtomicBool>,
}

impl Ssh {
    /// The machine at `destination` (`[user@]host`), where the binary is started with the arguments `serve`. Once
    /// `stop` is set, neither a login nor a copy of the binary is waited for.
    pub fn new(
        destination: &str,
        port: Option<u16>,
        config: Option<PathBuf>,
        serve: Vec<String>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let destination = destination.to_owned();
        Self { destination, port, config, client: PathBuf::from("ssh"), serve, program: None, stop }
    }

    /// The command that runs a script there by sh.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.client);
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        // A study runs unattended, so a dead connection must be detected.
        for option in
            ["BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=10", "ServerAliveCountMax=3"]
        {
            command.args(["-o", option]);
        }
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["-T", "--", &self.destination, &by_sh(script)]);
        command
    }

    /// The remote path of this binary, which is copied there if it is missing.
    fn program(&mut self) -> Result<String, RemoteError> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        let own = own_program()?;
        let folder = "\"${XDG_CACHE_HOME:-$HOME/.cache}/exitless\"";
        let program = format!("{folder}/exitless-{:.16}", hex(&Sha256::digest(&own)));
        if !self.has(&program)? {
            let status = self.finish(&copying(folder, &program, own.len()), &own, COPY)?;
            if status != 0 {
                let why = format!("Could not copy exitless to {}: status {status}", self.destination);
                return Err(RemoteError::Hopeless(why));
            }
        }
        self.program = Some(program.clone());
        Ok(program)
    }

    /// Tests whether the machine has this program.
    fn has(&self, program: &str) -> Result<bool, RemoteError> {
        match self.finish(&format!("test -x {program} || exit {NOT_THERE}"), &[], LOOK)? {
            0 => Ok(true),
            NOT_THERE => Ok(false),
            status => Err(RemoteError::Hopeless(format!(
                "Could not run sh on {there}: status {status}; try `ssh {there} exec sh -c true`",
                there = self.destination
            ))),
        }
    }

    /// Runs a script with this input until it exits, and returns its exit status.
    fn finish(&self, script: &str, input: &[u8], limit: Duration) -> Result<i32, RemoteError> {
        let unreachable = |why: &str| {
            RemoteError::Unreachable(format!("{} cannot be reached: {}", self.destination, why.trim()))
        };
        let answer = programs::answer_to(input, &self.stop, &mut self.command(script), limit, MOST_PRINTED);
        let answer = answer.map_err(|error| match error {
            Error::Start(error) => not_started(error),
            error => unreachable(&error.to_string()),
        })?;
        match answer.status.code() {
            Some(SSH_FAILED) | None => {
                let from = answer.stderr.len().saturating_sub(LAST_WORDS);
                Err(unreachable(&String::from_utf8_lossy(&answer.stderr[from..])))
            }
            Some(status) => Ok(status),
        }
    }
}

/// The script that writes its input of `length` bytes to `program`.
fn copying(folder: &str, program: &str, length: usize) -> String {
    // Check the length: if the connection breaks, the input ends as usual.
    format!(
        "umask 077 && mkdir -p {folder} && cat >{program}.$$ && [ $(wc -c <{program}.$$) -eq {length} ] && \
         chmod 700 {program}.$$ && mv {program}.$$ {program} || {{ rm -f {program}.$$; exit 1; }}"
    )
}

impl Remote for Ssh {
    fn connect(&mut self, request: &Request) -> Result<Box<dyn Connection>, RemoteError> {
        let program = self.program()?;
        let script = format!("exec {program} {}", self.serve.join(" "));
        let mut sent = Vec::new();
        let written = Writer::begin(&mut sent).and_then(|mut writer| writer.message(request));
        written.map_err(|error| RemoteError::Hopeless(format!("Could not write the request: {error}")))?;
        let mut command = self.command(&script);
        // A process group of its own: Ctrl-C must reach exitless, which then waits until the other side has ended its
        // guests and undone its changes, but not end the connection. Such a group would be stopped when it reads from the
        // terminal. The ssh to a jump host, to which BatchMode does not apply, asks with ssh-askpass or not at all.
        command.process_group(0).env("SSH_ASKPASS_REQUIRE", "force");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(not_started)?;
        let (stop, stopped) = mpsc::channel::<()>();
        if let Some(mut stdin) = child.stdin.take() {
            // May block: if the machine does not read, the limits for its answers apply, and if it closes its input,
            // its stream ends.
            thread::spawn(move || {
                if stdin.write_all(&sent).is_ok() {
                    drop(sent);
                    // Keep the input open: its end asks the other side to stop.
                    let _ = stopped.recv();
                }
            });
        }
        let said = child.stderr.take().map(LastWords::of);
        let (sender, chunks) = mpsc::sync_channel(16);
        if let Some(mut stdout) = child.stdout.take() {
            thread::spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(read @ 1..) = stdout.read(&mut bytes) {
                    if sender.send(bytes[..read].to_vec()).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Box::new(SshConnection { child, open: Some(stop), chunks: Chunks::new(chunks), said }))
    }
}

struct SshConnection {
    child: Child,
    /// Dropping it closes the other side's input, once the request is written.
    open: Option<mpsc::Sender<()>>,
    chunks: Chunks,
    said: Option<LastWords>,
}

impl Read for SshConnection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.chunks.read(bytes)
    }
}

impl Connection for SshConnection {
    fn ask_to_stop(&mut self) {
        self.open = None;
    }

    fn end(mut self: Box<Self>) -> Option<String> {
        self.open = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.said.take().map(LastWords::taken)
    }
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last bytes of an output that another thread reads: the log of a long study would be too large to keep.
struct LastWords {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Disconnected at the end of the output.
    over: mpsc::Receiver<()>,
}

impl LastWords {
    fn of(mut output: impl Read + Send + 'static) -> Self {
        let (reads, over) = mpsc::channel::<()>();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let words = Arc::clone(&kept);
        thread::spawn(move || {
            let _reads = reads;
            let mut bytes = [0; 1024];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                words.extend_from_slice(&bytes[..read]);
                let surplus = words.len().saturating_sub(LAST_WORDS);
                words.drain(..surplus);
            }
        });
        Self { kept, over }
    }

    /// The last bytes, even if another process still holds the output open.
    fn taken(self) -> String {
        let _ = self.over.recv_timeout(LAST_WORDS_WITHIN);
        let words = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&words).into_owned()
    }
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

#[cfg(test)]
#[path = "ssh_tests.rs"]
mod tests;
