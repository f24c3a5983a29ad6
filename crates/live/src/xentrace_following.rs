//! A running xentrace with the thread that reads its output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::thread_time;
use crate::xentrace::{Xentrace, XentraceError, XentraceOutput};

/// The directory of the tools of each version of Xen on Debian; the commands on PATH are scripts that choose one.
const VERSIONS: &str = "/usr/lib";
const PROGRAM: &str = "xentrace";

/// The `xentrace` of the running version of Xen (`xen_version` of `xl info`) below `/usr/lib`, or else the one on
/// PATH. If there is neither, the former, so that the error of starting it names its package.
#[must_use]
pub fn xentrace_program(version: Option<&str>) -> PathBuf {
    program_below(Path::new(VERSIONS), version, &std::env::var_os("PATH").unwrap_or_default())
}

fn program_below(versions: &Path, version: Option<&str>, path: &OsStr) -> PathBuf {
    let own = version.and_then(directory).map(|name| versions.join(name).join("bin").join(PROGRAM));
    let on_path = || std::env::split_paths(path).any(|folder| folder.join(PROGRAM).is_file());
    own.filter(|own| own.is_file() || !on_path()).unwrap_or_else(|| PROGRAM.into())
}

/// The directory of a version's tools: `xen-4.14` for `4.14.6-pre`.
fn directory(version: &str) -> Option<String> {
    let (major, rest) = version.split_once('.')?;
    let minor = rest.split_once('.').map_or(rest, |(minor, _)| minor);
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    (is_number(major) && is_number(minor)).then(|| format!("xen-{major}.{minor}"))
}

/// A running xentrace and its reader, whose result is a `T`.
#[derive(Debug)]
pub struct Following<T> {
    xentrace: Xentrace,
    reader: JoinHandle<T>,
}

impl<T> Following<T> {
    /// Starts `program`, and a thread that calls `read` with its output.
    ///
    /// # Errors
    /// As [`Xentrace::start`].
    pub fn start(
        program: &Path,
        read: impl FnOnce(XentraceOutput) -> T + Send + 'static,
    ) -> Result<Self, XentraceError>
    where
        T: Send + 'static,
    {
        let (xentrace, output) = Xentrace::start(program)?;
        Ok(Self { xentrace, reader: std::thread::spawn(move || read(output)) })
    }

    /// Tests whether the output has ended or the reader has returned.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.reader.is_finished()
    }

    /// The CPU time so far of xentrace, of the reader, and of the thread between them.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.xentrace.cpu_time() + thread_time(&self.reader)
    }

    /// Stops xentrace, and returns the reader's result; `None` if it panicked.
    ///
    /// # Errors
    /// [`XentraceError::Ended`] if xentrace ended before that, with its message, which explains why the reader found
    /// nothing or less than expected, and [`XentraceError::Wait`].
    pub fn finish(mut self) -> Result<Option<T>, XentraceError> {
        // Also if the reader has returned: it may have failed while xentrace goes on.
        self.xentrace.stop();
        // The output ends with xentrace. `wait` kills it if it does not end, so that joining the reader cannot block
        // forever.
        self.xentrace.wait()?;
        let read = self.reader.join().ok();
        self.xentrace.finish()?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(folder: &Path, name: &str, script: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn wait_for_the_end_of<T>(following: &Following<T>) {
        while !following.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The first words of a script: if it is called to make Xen stop tracing, it exits.
    const SWITCHED_OFF: &str = r#"[ "x$2" != x-T ] || exit 0"#;

    #[test]
    fn the_program_of_the_running_version_is_taken_else_that_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let bins = ["xen-4.14", "xen-4.17", "xen-common"].map(|one| folder.path().join(one).join("bin"));
        for bin in &bins {
            std::fs::create_dir_all(bin).unwrap();
            std::fs::write(bin.join(PROGRAM), "").unwrap();
        }
        let of = |version, path: &Path| program_below(folder.path(), version, path.as_os_str());
        let (path, none) = (&bins[2], Path::new("/nonexistent"));
        assert_eq!(of(Some("4.14.6"), path), bins[0].join(PROGRAM));
        assert_eq!(of(Some("4.17-unstable"), path), Path::new(PROGRAM));
        for version in [Some("4.20.5-pre"), Some("4"), None] {
            assert_eq!(of(version, path), Path::new(PROGRAM), "{version:?}");
        }
        let missing = of(Some("4.20.5-pre"), none);
        assert_eq!(missing, folder.path().join("xen-4.20/bin/xentrace"));
        let error = Following::start(&missing, drop).unwrap_err().to_string();
        assert!(error.ends_with("install xen-utils-4.20"), "{error}");
        assert_eq!(of(None, none), Path::new(PROGRAM));
    }

    #[test]
    fn the_reader_gives_what_it_made_of_the_records_and_a_failure_explains_their_absence() {
        let folder = tempfile::tempdir().unwrap();
        let program =
            |name: &str, script: &str| program(folder.path(), name, &format!("{SWITCHED_OFF}; {script}"));
        let read = |mut output: XentraceOutput| {
            let mut text = String::new();
            while let Err(error) = output.read_to_string(&mut text) {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            }
            text
        };
        let good =
            program("good", "sleep 60 & trap 'printf more; kill $!; exit 0' TERM; printf records; wait");
        let following = Following::start(&good, read).unwrap();
        assert!(!following.has_ended());
        assert_eq!(following.finish().unwrap().as_deref(), Some("recordsmore"));
        // A reader that returns early does not make it fail.
        let following = Following::start(&good, drop).unwrap();
        wait_for_the_end_of(&following);
        assert_eq!(following.finish().unwrap(), Some(()));
        let busy = program("busy", "until [ -e over ]; do :; done; printf records");
        let following = Following::start(&busy, read).unwrap();
        // The CPU time grows with that of the program, which is busy until it is killed.
        while following.cpu_time() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(5));
        }
        following.finish().unwrap();
        let bad = program("bad", "echo 'failed to bind to VIRQ port' >&2; exit 1");
        let error = Following::start(&bad, read).unwrap_err().to_string();
        assert!(error.contains("VIRQ"), "{error}");
        let soon = program("soon", "printf records; echo 'failed to write' >&2; exit 1");
        let following = Following::start(&soon, read).unwrap();
        wait_for_the_end_of(&following);
        let error = following.finish().unwrap_err().to_string();
        assert!(error.contains("failed to write"), "{error}");
        let stopped = program("stopped", "printf records; echo 'change evtmask to 0xaf000' >&2; exit 0");
        let following = Following::start(&stopped, read).unwrap();
        wait_for_the_end_of(&following);
        let error = following.finish().unwrap_err().to_string();
        assert!(error.contains("ended early (exit status: 0)"), "{error}");
    }

    #[test]
    fn one_that_does_not_end_when_it_is_asked_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{SWITCHED_OFF}; trap '' TERM; printf records; exec sleep 1000");
        let deaf = program(folder.path(), "deaf", &script);
        let (sender, begun) = std::sync::mpsc::channel();
        let read = move |mut output: XentraceOutput| {
            let (mut all, mut piece) = (Vec::new(), [0; 64]);
            loop {
                match output.read(&mut piece) {
                    Ok(0) => return all,
                    Ok(count) => {
                        all.extend_from_slice(&piece[..count]);
                        sender.send(()).unwrap();
                    }
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
        };
        let following = Following::start(&deaf, read).unwrap();
        // From here on it ignores the signal.
        begun.recv().unwrap();
        assert_eq!(following.finish().unwrap().as_deref(), Some(&b"records"[..]));
    }
}
