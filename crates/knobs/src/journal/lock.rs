//! One exitless at a time changes a host.

use crate::{Error, under};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const LOCK: &str = "/run/exitless/lock";
/// A change takes milliseconds; a boot loader's program can take a minute.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 90 });
const PAUSE: Duration = Duration::from_millis(20);

/// Held while a change is made or undone; the kernel gives it up when its process ends, however that ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn take(root: &Path) -> Result<Self, Error> {
        let path = under(root, LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|source| Error::JournalWrite { path: path.clone(), source })?;
        let begun = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(rustix::io::Errno::AGAIN) if begun.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(rustix::io::Errno::AGAIN) => {
                    return Err(Error::Locked { path, seconds: PATIENCE.as_secs() });
                }
                Err(errno) => return Err(Error::JournalWrite { path, source: errno.into() }),
            }
        }
    }
}
