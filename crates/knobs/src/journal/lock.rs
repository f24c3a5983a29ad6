//! The lock that lets only one exitless at a time change a host.

use super::place;
use crate::{Error, under};
use files::Missing;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The lock's file, next to the volatile journal.
const NAME: &str = "lock";
/// The longest wait before a change: most take milliseconds, but a boot loader's program can take a minute.
pub(crate) const BEFORE_A_CHANGE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 90 });
/// The longest wait before undoing, which has no second chance: a plan's command may take 5 minutes unless its plan says
/// otherwise. An exitless that undoes more than two of them can hold the lock for longer.
pub(crate) const BEFORE_UNDOING: Duration = Duration::from_secs(11 * 60);
const PAUSE: Duration = Duration::from_millis(20);
/// The wait after which the user is told the reason: who takes it for a hang and interrupts it leaves the changes.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// A lock that is held while a change is made or undone. If its process is killed meanwhile, the kernel releases it when
/// the programs that it ran have ended too.
#[derive(Debug)]
pub(crate) struct Lock {
    file: Option<File>,
}

#[cfg(test)]
impl Lock {
    /// Acts like a kill of this process: closes this descriptor without unlocking, so the lock lives until the last copy is
    /// closed.
    pub(crate) fn close_as_when_killed(mut self) {
        drop(self.file.take());
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a service that a program has started may have inherited a copy. If
        // unlocking fails, the lock ends when the last copy is closed.
        let _ = self.file.as_ref().map(|file| flock(file, FlockOperation::Unlock));
    }
}

impl Lock {
    pub(crate) fn take(root: &Path, patience: Duration) -> Result<Self, Error> {
        let directory = place::directory(root, super::VOLATILE, Missing::Made(0o700))?;
        let path = under(root, super::VOLATILE).with_file_name(NAME);
        let file = place::named(&directory, NAME, OFlags::WRONLY | OFlags::CREATE);
        let file = file.map_err(|source| Error::JournalWrite { path: path.clone(), source })?;
        // Let programs inherit the descriptor: if this process is killed, a running program keeps the lock, so
        // nothing is undone before the program has ended.
        let inherited = rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty());
        inherited.map_err(|errno| Error::JournalWrite { path: path.clone(), source: errno.into() })?;
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { file: Some(file) }),
                Err(rustix::io::Errno::AGAIN) if begun.elapsed() < patience => {
                    if !is_told && begun.elapsed() > TOLD_AFTER {
                        is_told = true;
                        tracing::warn!(
                            "Waiting for another exitless, which holds {}, for up to {} s",
                            path.display(),
                            patience.as_secs()
                        );
                    }
                    thread::sleep(PAUSE);
                }
                Err(rustix::io::Errno::AGAIN) => {
                    return Err(Error::Locked { path, seconds: patience.as_secs() });
                }
                Err(errno) => return Err(Error::JournalWrite { path, source: errno.into() }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_change_leaves_running_does_not_keep_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let lock = Lock::take(root.path(), BEFORE_A_CHANGE).unwrap();
        let mut service = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        assert!(matches!(Lock::take(root.path(), BEFORE_A_CHANGE), Err(Error::Locked { .. })));
        drop(lock);
        let again = Lock::take(root.path(), BEFORE_A_CHANGE);
        service.kill().unwrap();
        service.wait().unwrap();
        again.unwrap();
    }
}
