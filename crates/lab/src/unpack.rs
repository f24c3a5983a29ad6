//! Unpacks packages into a tree without running maintainer scripts.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::packages::{Package, succeeded};
use crate::progress::{OnProgress, Progress, Step};

/// The package with the links (/bin to /usr/bin and so on) through which all others are unpacked.
const FIRST: &str = "base-files";

/// Unpacks packages below `root`, except for the folders `left_out`.
pub(crate) fn unpack(
    packages: &[Package],
    root: &Path,
    left_out: &[&str],
    on_progress: OnProgress<'_>,
) -> Result<(), Error> {
    fs::create_dir_all(root).map_err(Error::file("Could not make", root))?;
    let (first, rest): (Vec<_>, Vec<_>) = packages.iter().partition(|package| package.name == FIRST);
    for package in first {
        unpack_one(&package.file, root, left_out)?;
    }
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let failed = || failure.lock().is_ok_and(|failure| failure.is_some());
    let work = || {
        while let Some(package) = rest.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !failed()) {
            if let (Err(error), Ok(mut failure)) = (unpack_one(&package.file, root, left_out), failure.lock())
            {
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
    failure.into_inner().ok().flatten().map_or(Ok(()), Err)
}

/// Unpacks one package file below `root`, except for the folders `left_out`.
pub(crate) fn unpack_one(file: &Path, root: &Path, left_out: &[&str]) -> Result<(), Error> {
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::file("Could not start", "dpkg-deb"))?;
    let unpacked = child.stdout.take().map_or(Ok(()), |mut stdout| {
        let unpacked = unpack_archive(&mut stdout, root, left_out);
        // dpkg-deb fails if nobody reads the rest, which would hide the cause.
        let drained = io::copy(&mut stdout, &mut io::sink());
        unpacked.and(drained.map(drop))
    });
    let output = child.wait_with_output().map_err(Error::file("Could not wait for", "dpkg-deb"))?;
    succeeded("dpkg-deb", &output)?;
    unpacked.map_err(Error::file("Could not unpack", file))
}

/// Unpacks an archive. Excluded files are not written at all: removing them later would take longer than
/// everything else.
fn unpack_archive(from: impl Read, root: &Path, left_out: &[&str]) -> io::Result<()> {
    let mut archive = tar::Archive::new(from);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let path = path.strip_prefix(".").unwrap_or(&path);
        if !left_out.iter().any(|folder| path.starts_with(folder)) {
            entry.unpack_in(root)?;
        }
    }
    Ok(())
}
