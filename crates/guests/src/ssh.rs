//! Machines that are reached by OpenSSH's client.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest::{Ending, Line, WAITING, pipes};
use programs::Answer;

use super::plan::SshAccess;
use super::reception::Reception;
use super::waiting::{GRACE, Waiting, end_rest};
use super::{Armed, Guest, GuestError, Patience};
use crate::shell::{by_sh, quoted};

/// The shortest time limit of an attempt to reach a machine: longer than ssh's ConnectTimeout, so that ssh reports the
/// reason itself.
const ATTEMPT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 12 });
/// The longest directory for the folder of the control socket, in bytes. A socket's path has at most 107; 28 are those of
/// `/exitless-ssh-XXXXXX/control`, and ssh appends 17 while it binds (mux.c, `muxserver_listen`).
const LONGEST_PLACE: usize = 107 - 28 - 17;
/// The most bytes of output of one of our own command lines.
const LARGEST_ANSWER: usize = 64 << 10;

/// One machine. All commands share one connection, so that a release costs one packet and no login.
#[derive(Debug)]
pub struct SshGuest {
    connection: Arc<Connection>,
    name: String,
    vcpus: u32,
    address: Option<IpAddr>,
    host_address: Option<IpAddr>,
}

/// ssh's arguments for one machine, and its shared connection, which is closed on drop.
#[derive(Debug)]
struct Connection {
    /// The folder of the control socket.
    folder: tempfile::TempDir,
    /// ssh, or a mock of it.
    program: PathBuf,
    access: SshAccess,
    destination: String,
}

impl SshGuest {
    /// Waits until the machine answers.
    ///
    /// # Errors
    /// [`GuestError::Start`] with ssh's message if it does not within `patience`.
    pub fn connect(
        name: &str,
        destination: &str,
        access: &SshAccess,
        patience: Patience<'_>,
    ) -> Result<Self, GuestError> {
        Self::connect_by("ssh".into(), name, destination, access, patience)
    }

    fn connect_by(
        program: PathBuf,
        name: &str,
        destination: &str,
        access: &SshAccess,
        patience: Patience<'_>,
    ) -> Result<Self, GuestError> {
        let start = |why: String| GuestError::Start { name: name.to_owned(), why };
        let folder = tempfile::Builder::new()
            .prefix("exitless-ssh-")
            .tempdir_in(place_of_control(std::env::temp_dir()))
            .map_err(|error| start(format!("Could not create a folder for ssh's control socket: {error}")))?;
        let (access, to) = (access.clone(), destination.to_owned());
        let connection = Arc::new(Connection { folder, program, access, destination: to });
        let begun = Instant::now();
        let facts = loop {
            let left = patience.left(begun).max(ATTEMPT);
            let mut ask = connection.remote(&by_sh("nproc; echo \"${SSH_CONNECTION:-}\""));
            // One attempt may take all of the time: a slow guest needs minutes for a login.
            let answer = programs::answer_unless(patience.ending, &mut ask, left, LARGEST_ANSWER);
            match answer.map(|answer| answer.text().map_err(|said| (answer.status, said))) {
                Ok(Ok(facts)) => break facts,
                // Waiting does not fix a wrong key, but a guest that is still booting refuses or resets connections.
                Ok(Err((status, said))) if patience.left(begun).is_zero() || refused(&said) => {
                    return Err(start(format!(
                        "ssh to {destination} failed ({status}): {said}; try `ssh {destination} true`"
                    )));
                }
                Err(error) if error.is_missing() => {
                    return Err(start(format!("Could not run ssh: {error}; install openssh-client")));
                }
                Err(error) => {
                    return Err(start(format!("`ssh {destination} nproc`: {error}; try it by hand")));
                }
                Ok(_) => std::thread::sleep(Duration::from_millis(500)),
            }
        };
        let mut lines = facts.lines();
        let vcpus = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(1);
        let host_address = lines.next().and_then(|line| line.split(' ').next()?.parse().ok());
        let address = connection.address();
        Ok(Self { connection, name: name.to_owned(), vcpus, address, host_address })
    }
}

/// The directory for temporary files, or `/tmp` if its path is too long for a control socket, or has characters that mean
/// something in ssh's options (ssh_config(5), TOKENS): spaces, quotes and percent signs.
fn place_of_control(temporary: PathBuf) -> PathBuf {
    let path = temporary.as_os_str();
    let is_plain =
        path.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+,".contains(byte));
    if path.len() > LONGEST_PLACE || !is_plain { PathBuf::from("/tmp") } else { temporary }
}

/// Tests whether ssh's message is about an error that waiting does not fix.
fn refused(said: &str) -> bool {
    ["Permission denied", "Host key verification failed", "Could not resolve hostname", "no such identity"]
        .iter()
        .any(|sign| said.contains(sign))
}

impl Connection {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let control = self.folder.path().join("control");
        command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlMaster=auto"]);
        command.args([
            "-o",
            "ControlPersist=600",
            "-o",
            "ServerAliveInterval=5",
            "-o",
            "ServerAliveCountMax=6",
        ]);
        command.arg("-o").arg(format!("ControlPath={}", control.display()));
        if let Some(user) = &self.access.user {
            command.args(["-l", user]);
        }
        if let Some(key) = &self.access.key {
            command.arg("-i").arg(key);
        }
        if let Some(port) = self.access.port {
            command.args(["-p", &port.to_string()]);
        }
        for option in &self.access.options {
            command.args(["-o", option]);
        }
        command
    }

    /// The command that runs a line in the remote shell. One argument: ssh would join several with spaces.
    fn remote(&self, line: &str) -> Command {
        let mut command = self.command();
        command.arg("--").arg(&self.destination).arg(line);
        command
    }

    /// Runs a command line, with limits: a machine that keeps the connection open can block a command forever, or print
    /// without end.
    fn output(&self, line: &str, patience: Duration) -> Result<Answer, programs::Error> {
        programs::answer(&mut self.remote(line), patience, LARGEST_ANSWER)
    }

    /// The machine's address, after ssh's configuration has resolved its name.
    fn address(&self) -> Option<IpAddr> {
        let mut command = self.command();
        command.arg("-G").arg("--").arg(&self.destination);
        let resolved = programs::answer(&mut command, GRACE, LARGEST_ANSWER).ok()?;
        let resolved = resolved.text().ok()?;
        let host = resolved.lines().find_map(|line| line.strip_prefix("hostname "))?;
        (host.trim(), 22).to_socket_addrs().ok()?.next().map(|address| address.ip())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Fails if the connection is closed already.
        let mut command = self.command();
        command.args(["-O", "exit", "--"]).arg(&self.destination);
        let _ = programs::answer(&mut command, GRACE, LARGEST_ANSWER);
    }
}

impl Guest for SshGuest {
    fn name(&self) -> &str {
        &self.name
    }

    fn vcpus(&self) -> u32 {
        self.vcpus
    }

    fn address(&self) -> Option<IpAddr> {
        self.address
    }

    fn host_address(&self) -> Option<IpAddr> {
        self.host_address
    }

    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError> {
        let line = format!("{} sh {}", by_sh(WAITING), quoted(script));
        let reception = Reception::new();
        let piped = pipes::start(self.connection.remote(&line), &reception).map_err(|error| {
            GuestError::Unreachable { name: self.name.clone(), why: format!("starting ssh: {error}") }
        })?;
        let line = SshLine { piped, connection: Arc::clone(&self.connection) };
        Ok(Box::new(Waiting::new(&self.name, limit, reception, Box::new(line))?))
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        Ok(())
    }
}

struct SshLine {
    piped: pipes::Piped,
    connection: Arc<Connection>,
}

impl fmt::Debug for SshLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshLine").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl SshLine {
    fn run(&self, line: &str, patience: Duration) -> Result<(), programs::Error> {
        let there = &self.connection.destination;
        self.connection.output(line, patience).map(drop).inspect_err(|error| {
            tracing::warn!("`ssh {there} {line}`: {error}; what it should end may still run there");
        })
    }
}

impl Line for SshLine {
    fn release(&mut self) -> io::Result<()> {
        self.piped.release()
    }

    /// Sends the signal to the remote process group: killing ssh here would leave it running. fish has no kill of its own,
    /// and that of procps 4.0.2 reads only the first digit of a group: `kill -TERM -1234` ends all processes.
    fn end(&mut self, how: Ending, group: i32) -> io::Result<()> {
        let ended = self.run(&by_sh(&format!("kill -{} -{group}", how.signal())), GRACE);
        if how == Ending::Kill || ended.is_err() {
            self.piped.signal(how)?;
        }
        Ok(())
    }

    fn end_rest(&mut self, group: i32) -> io::Result<()> {
        self.run(&by_sh(&end_rest(group)), GRACE * 2).map_err(io::Error::other)
    }
}

#[cfg(test)]
#[path = "ssh_tests.rs"]
mod tests;
