//! Commands whose output is a fact: run on the live machine, read from files for another host.

use super::{Root, kind_of};
use crate::{AbsenceKind, Evidence, Fact};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::Duration;

/// The time limit of commands. `xl info` takes 6 s in the emulated host of Xen while a guest boots, and
/// without xenstored `xl` waits forever.
const PATIENCE: Duration = Duration::from_secs(12);
/// The limit of output, in bytes.
const LARGEST_OUTPUT: usize = 4 << 20;

impl Root {
    /// The output of a command. `line` is the command with its arguments, which are passed without a shell.
    pub(crate) fn command(&self, line: &str) -> Fact<String> {
        self.command_in_part(line, str::to_owned)
    }

    /// The needed part of the output of a command that also prints other things, such as passwords. `part`
    /// extracts it, and must leave its own output unchanged.
    pub(crate) fn command_in_part(&self, line: &str, part: impl Fn(&str) -> String) -> Fact<String> {
        let kept = format!("/exitless/commands/{}", line.replace(' ', "-"));
        if self.live {
            return match run(line, PATIENCE).map(|text| part(&text)) {
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
            Ok(bytes) => known(line, part(&String::from_utf8_lossy(&bytes)).trim_end().to_owned()),
            Err(error) if kind_of(&error) == AbsenceKind::NotThere => Fact::absent(
                AbsenceKind::NotKept,
                format!("the output of `{line}` was not recorded on this host"),
            ),
            Err(error) => refusal(line, &error),
        }
    }
}

fn known(line: &str, text: String) -> Fact<String> {
    Fact { value: Ok(text), evidence: vec![Evidence::new(line, "")] }
}

fn refusal(line: &str, error: &io::Error) -> Fact<String> {
    let kind = match kind_of(error) {
        // A missing program says nothing about the fact itself.
        AbsenceKind::NotThere => AbsenceKind::Unreadable,
        kind => kind,
    };
    let next = if kind == AbsenceKind::Denied { "run exitless as root" } else { "run it as root by hand" };
    Fact::absent(kind, format!("`{line}` failed: {error}; {next}"))
}

/// The directories to search: programs for root may not be on `PATH`.
const FOLDERS: &[&str] = &["", "/usr/sbin/", "/usr/local/sbin/"];

/// Tests whether this process is not root, the most common reason for failures. A process's directory in
/// `/proc` belongs to its effective user (`proc(5)`).
fn lacks_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|folder| folder.uid() != 0)
}

fn run(line: &str, patience: Duration) -> io::Result<String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let in_folder = |folder: &&str| {
        let mut command = Command::new(format!("{folder}{program}"));
        programs::answer(command.args(words.clone()), patience, LARGEST_OUTPUT)
    };
    let missing = |answer: &_| matches!(answer, Err(error) if programs::Error::is_missing(error));
    let number = match FOLDERS.iter().map(in_folder).find(|answer| !missing(answer)) {
        None => return Err(io::ErrorKind::NotFound.into()),
        Some(Ok(answer)) if answer.status.success() => {
            return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
        }
        Some(Ok(_)) if lacks_root() => EACCES,
        Some(Ok(_)) => super::EIO,
        Some(Err(programs::Error::Start(error) | programs::Error::Wait(error))) => return Err(error),
        Some(Err(programs::Error::TimedOut(_))) => TIMED_OUT,
        Some(Err(_)) => super::TOO_LARGE,
    };
    Err(io::Error::from_raw_os_error(number))
}

/// `EACCES`.
const EACCES: i32 = 13;
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
    fn what_nobody_needs_of_a_command_is_not_kept() {
        let root = Root::live().recording();
        let first = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let said = root.command_in_part("echo one two", first);
        assert_eq!(said.value.as_deref(), Ok("one"));
        let kept = Root::kept(root.into_record());
        assert_eq!(kept.command("echo one two").value.as_deref(), Ok("one"));
    }

    #[test]
    fn a_command_that_never_ends_is_ended() {
        let error = run("sleep 1000", Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(TIMED_OUT));
    }
}
