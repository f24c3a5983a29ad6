//! One exitless at a time changes a host.

use super::place;
use crate::{Error, under};
use files::Missing;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Beside the journal that a boot forgets.
const NAME: &str = "lock";
/// A change takes milliseconds; a boot loader's program can take a minute.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 90 });
const PAUSE: Duration = Duration::from_millis(20);

/// Held while a change is made or undone. Where its process is killed meanwhile, the kernel gives it up when the programs
/// that it ran have ended too, however they end.
#[derive(Debug)]
pub(crate) struct Lock {
    file: Option<File>,
}

#[cfg(test)]
impl Lock {
    /// Acts as the kernel does when this process is killed: it closes the descriptor, and gives nothing up before the last.
    pub(crate) fn close_as_when_killed(mut self) {
        drop(self.file.take());
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A service that a program began and left running has the descriptor still; closing ours would not do. What
        // cannot be given up here is given up with the last of them.
        let _ = self.file.as_ref().map(|file| flock(file, FlockOperation::Unlock));
    }
}

impl Lock {
    pub(crate) fn take(root: &Path) -> Result<Self, Error> {
        let directory = place::directory(root, super::VOLATILE, Missing::Made(0o700))?;
        let path = under(root, super::VOLATILE).with_file_name(NAME);
        let file = place::named(&directory, NAME, OFlags::WRONLY | OFlags::CREATE);
        let file = file.map_err(|source| Error::JournalWrite { path: path.clone(), source })?;
        // A program that is still at work when this process is killed keeps the lock: what it does is not undone
        // before it has done it.
        let inherited = rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty());
        inherited.map_err(|errno| Error::JournalWrite { path: path.clone(), source: errno.into() })?;
        let begun = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { file: Some(file) }),
                Err(rustix::io::Errno::AGAIN) if begun.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(rustix::io::Errno::AGAIN) => {
                    return Err(Error::Locked { path, seconds: PATIENCE.as_secs() });
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
        let lock = Lock::take(root.path()).unwrap();
        let mut service = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        assert!(matches!(Lock::take(root.path()), Err(Error::Locked { .. })));
        drop(lock);
        let again = Lock::take(root.path());
        service.kill().unwrap();
        service.wait().unwrap();
        again.unwrap();
    }
}
