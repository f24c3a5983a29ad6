//! Changes that need more than writing a file: modules, programs, threads.

use crate::change::numbers;
use crate::{Error, Parameters};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Loads modules, runs programs and moves threads. Tests implement it with a fake machine.
pub trait Actions {
    /// Loads a module that is not loaded.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Command`].
    fn load(&mut self, module: &str, parameters: &Parameters) -> Result<(), Error>;

    /// Removes a loaded module. The modules that it depends on stay loaded, with their parameters.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Command`]; the latter also if the module is in use.
    fn unload(&mut self, module: &str) -> Result<(), Error>;

    /// Runs a program to its end.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Command`].
    fn run(&mut self, command: &[String]) -> Result<(), Error>;

    /// The output of a program that changes nothing. Fake machines need not implement it.
    ///
    /// # Errors
    /// [`Error::Start`] or [`Error::Command`].
    fn shown(&self, command: &[String]) -> Result<Vec<u8>, Error> {
        Err(Error::Start { command: command.join(" "), source: io::ErrorKind::Unsupported.into() })
    }

    /// The CPUs on which a thread may run, in the kernel's list format.
    ///
    /// # Errors
    /// [`Error::ThreadGone`].
    fn affinity(&self, tid: i32) -> Result<String, Error>;

    /// Restricts a thread to these CPUs.
    ///
    /// # Errors
    /// [`Error::ThreadGone`], [`Error::Cpus`], or [`Error::Access`] when the kernel refuses.
    fn set_affinity(&mut self, tid: i32, cpus: &str) -> Result<(), Error>;
}

/// The machine that this program runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningHost;

/// The directories of programs for administration: the PATH of a root shell from `su` may lack them.
const PLACES: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
/// The number of lines to quote from the end of a program's messages.
const LINES: usize = 5;
/// The number of bytes to read from the end of a program's messages.
const MOST_SAID: u64 = 64 << 10;
/// The largest output of a program, in bytes.
const MOST_SHOWN: usize = 16 << 20;
/// The time limit of a program that changes nothing. virsh waits forever for a daemon that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

impl Actions for RunningHost {
    fn load(&mut self, module: &str, parameters: &Parameters) -> Result<(), Error> {
        let mut command = vec!["modprobe".to_owned(), module.to_owned()];
        command.extend(parameters.iter().map(|(name, value)| format!("{name}={value}")));
        self.run(&command)
    }

    fn unload(&mut self, module: &str) -> Result<(), Error> {
        // `modprobe -r` would also remove kvm, and kvm's parameters would be lost.
        self.run(&["rmmod".to_owned(), module.to_owned()])
    }

    fn run(&mut self, command: &[String]) -> Result<(), Error> {
        run(command)
    }

    fn shown(&self, command: &[String]) -> Result<Vec<u8>, Error> {
        let Some(mut program) = prepared(command) else { return Ok(Vec::new()) };
        let shown = programs::answer(&mut program, PATIENCE, MOST_SHOWN)
            .map_err(|error| Error::Start { command: command.join(" "), source: io::Error::other(error) })?;
        succeeded(command, shown.status, &shown.stderr)?;
        Ok(shown.stdout)
    }

    fn affinity(&self, tid: i32) -> Result<String, Error> {
        // sched_getaffinity(2) omits offline CPUs; a thread restored from it would lose them permanently.
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        cpus.map(|cpus| cpus.trim().to_owned()).ok_or(Error::ThreadGone { tid })
    }

    fn set_affinity(&mut self, tid: i32, cpus: &str) -> Result<(), Error> {
        let bad = || Error::Cpus { cpus: cpus.to_owned() };
        let mut set = CpuSet::new();
        for cpu in numbers(cpus).ok_or_else(bad)? {
            set.set(cpu);
        }
        let pid = Pid::from_raw(tid).ok_or(Error::ThreadGone { tid })?;
        sched_setaffinity(Some(pid), &set).map_err(|errno| match errno {
            rustix::io::Errno::SRCH => Error::ThreadGone { tid },
            other => Error::access("set the CPUs of", format!("/proc/{tid}"))(other.into()),
        })
    }
}

/// The command to run, `None` if there are no words.
fn prepared(command: &[String]) -> Option<Command> {
    let (program, arguments) = command.split_first()?;
    let path = match std::env::var("PATH") {
        Ok(path) if !path.is_empty() => format!("{path}:{PLACES}"),
        _ => PLACES.to_owned(),
    };
    let mut prepared = Command::new(program);
    // A process group of its own: Ctrl-C must reach exitless, which then undoes its changes, but not
    // interrupt update-grub halfway.
    prepared.args(arguments).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
    Some(prepared)
}

/// Runs a program to its end, without a time limit: killing a program that changes the host would leave half a
/// change.
fn run(command: &[String]) -> Result<(), Error> {
    let Some(mut program) = prepared(command) else { return Ok(()) };
    let failed = |source| Error::Start { command: command.join(" "), source };
    // Not a pipe: background processes of the program would keep it open, and reading to its end would wait
    // for them.
    let mut said = memory("exitless-said").map_err(failed)?;
    program.stdout(Stdio::null()).stderr(said.try_clone().map_err(failed)?);
    let status = program.status().map_err(failed)?;
    succeeded(command, status, &last_of(&mut said).map_err(failed)?)
}

/// Checks a program's exit status. The error quotes the last lines of its messages.
fn succeeded(command: &[String], status: ExitStatus, said: &[u8]) -> Result<(), Error> {
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(said);
    let said = programs::last_lines(&said, LINES).join("; ");
    Err(Error::Command { command: command.join(" "), status: status.to_string(), said })
}

/// A file in memory.
fn memory(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// The end of a program's messages.
fn last_of(said: &mut File) -> io::Result<Vec<u8>> {
    let length = said.seek(SeekFrom::End(0))?;
    said.seek(SeekFrom::Start(length.saturating_sub(MOST_SAID)))?;
    let mut bytes = Vec::new();
    said.take(MOST_SAID).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_cpus_are_read_and_given_back() {
        let tid = i32::try_from(std::process::id()).unwrap();
        let mut host = RunningHost;
        let before = host.affinity(tid).unwrap();
        let first = numbers(&before).unwrap()[0].to_string();
        host.set_affinity(tid, &first).unwrap();
        assert_eq!(host.affinity(tid).unwrap(), first);
        host.set_affinity(tid, &before).unwrap();
        assert_eq!(host.affinity(tid).unwrap(), before);
        assert!(matches!(host.affinity(i32::MAX), Err(Error::ThreadGone { .. })));
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_last_words() {
        let command = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let error =
            RunningHost.run(&command(&["sh", "-c", "echo no room >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("no room"), "{error}");
        let error = RunningHost.run(&command(&["exitless-has-no-such-program"])).unwrap_err();
        assert!(matches!(error, Error::Start { .. }), "{error}");
        RunningHost.run(&command(&["true"])).unwrap();
        // A background process keeps the program's standard error open, and is not waited for.
        let begun = std::time::Instant::now();
        RunningHost.run(&command(&["sh", "-c", "sleep 20 & exit 0"])).unwrap();
        assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    }
}
