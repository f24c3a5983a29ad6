//! Commands whose output is a fact: run on the live machine, kept of others.

use super::{Root, kind_of};
use crate::{AbsenceKind, Evidence, Fact};
use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than this no command is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Output is cut beyond this, in bytes.
const LONGEST_OUTPUT: u64 = 4 << 20;

impl Root {
    /// What a command prints. `line` is the command with its arguments, which needs no shell.
    pub(crate) fn command(&self, line: &str) -> Fact<String> {
        let kept = format!("/exitless/commands/{}", line.replace(' ', "-"));
        if self.live {
            return match run(line) {
                Ok(text) => {
                    self.append(&kept, text.trim_end());
                    known(line, text.trim_end().to_owned())
                }
                Err(error) => {
                    let number = error.raw_os_error().unwrap_or(super::EIO);
                    self.keep(&kept, |node| node.error = Some(number));
                    refusal(line, &io::Error::from_raw_os_error(number))
                }
            };
        }
        match self.read(&kept) {
            Ok(bytes) => known(line, String::from_utf8_lossy(&bytes).trim_end().to_owned()),
            Err(error) if kind_of(&error) == AbsenceKind::NotThere => {
                Fact::absent(AbsenceKind::NotKept, format!("nobody kept what `{line}` says on this host"))
            }
            Err(error) => refusal(line, &error),
        }
    }
}

fn known(line: &str, text: String) -> Fact<String> {
    Fact { value: Ok(text), evidence: vec![Evidence::new(line, "")] }
}

fn refusal(line: &str, error: &io::Error) -> Fact<String> {
    Fact::absent(AbsenceKind::Unreadable, format!("`{line}` failed: {error}; run it as root by hand"))
}

fn run(line: &str) -> io::Result<String> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let output = child.stdout.take();
    // The pipe is read beside the waiting, or a command that says much would wait for its reader for ever.
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.map(|output| output.take(LONGEST_OUTPUT).read_to_end(&mut bytes));
        bytes
    });
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::from_raw_os_error(TIMED_OUT));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if !status.success() {
        return Err(io::Error::from_raw_os_error(super::EIO));
    }
    let bytes = reader.join().unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_says_is_answered_again() {
        let root = Root::live().recording();
        let (said, failed, none) =
            (root.command("echo one two"), root.command("false"), root.command("no-such"));
        assert_eq!(said.value.as_deref(), Ok("one two"));
        assert!(failed.value.is_err() && none.value.is_err());
        let kept = Root::kept(root.into_record());
        assert_eq!(kept.command("echo one two"), said);
        assert_eq!(kept.command("false"), failed);
        assert_eq!(kept.command("echo").absence().map(|absence| absence.kind), Some(AbsenceKind::NotKept));
    }

    #[test]
    fn a_command_that_never_ends_is_ended() {
        let begun = Instant::now();
        assert!(Root::live().command("sleep 30").value.is_err());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
