//! Unpacking packages into a tree, without running anything of theirs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::packages::{Package, succeeded};
use crate::progress::{OnProgress, Progress, Step};
use crate::recorded::remove;

/// The package whose links (/bin to /usr/bin and so on) all others unpack through.
const FIRST: &str = "base-files";

/// Unpacks packages below `root`, but for the folders `left_out`.
pub(crate) fn unpack(
    packages: &[Package],
    root: &Path,
    left_out: &[&str],
    on_progress: OnProgress<'_>,
) -> Result<(), Error> {
    fs::create_dir_all(root).map_err(Error::file("Could not make", root))?;
    let (first, rest): (Vec<_>, Vec<_>) = packages.iter().partition(|package| package.name == FIRST);
    for package in first {
        unpack_one(package, root)?;
    }
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let failed = || failure.lock().is_ok_and(|failure| failure.is_some());
    let work = || {
        while let Some(package) = rest.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !failed()) {
            if let (Err(error), Ok(mut failure)) = (unpack_one(package, root), failure.lock()) {
                *failure = Some(error);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..std::thread::available_parallelism().map_or(1, usize::from))
            .map(|_| scope.spawn(work))
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            let done = done.load(Ordering::Relaxed) as u64;
            on_progress(Progress { step: Step::Unpack, done, total: rest.len() as u64 });
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    if let Some(error) = failure.into_inner().ok().flatten() {
        return Err(error);
    }
    left_out.iter().try_for_each(|folder| remove(&root.join(folder)))
}

fn unpack_one(package: &Package, root: &Path) -> Result<(), Error> {
    let output = Command::new("dpkg-deb")
        .arg("--extract")
        .args([&package.file, root])
        .output()
        .map_err(Error::file("Could not start", "dpkg-deb"))?;
    succeeded("dpkg-deb", &output).map(drop)
}
