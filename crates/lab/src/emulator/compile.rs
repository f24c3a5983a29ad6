//! Fetches, patches, configures and compiles an emulator's source. Completed steps are marked, so that an
//! interrupted build can continue.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use super::EmulatorManifest;
use super::source::{Need, PROGRAM, PYTHON_PROGRAM, Source};
use crate::cache::Cache;
use crate::child;
use crate::error::Error;
use crate::packages::{self, succeeded};
use crate::progress::{OnProgress, Progress, Step};
use crate::recorded;
use crate::snapshot;
use crate::tree::{remove, sha256, write};
use crate::unpack::unpack_one;

/// The disk space that a build needs, in MiB.
const SPACE_TO_BUILD: u64 = 1500;
/// The largest tarball that is unpacked, in bytes; an emulator's source is smaller.
const LARGEST_SOURCE: u64 = 2 << 30;
const SOURCE: &str = "source";
const BUILD: &str = "build";
const RESULT: &str = "result";
const PYTHON: &str = "python";
/// The path of Python modules in Debian's packages.
const PYTHON_MODULES: &str = "usr/lib/python3/dist-packages";

/// The folder for building an emulator.
pub(super) fn work(cache: &Cache, source: &Source) -> PathBuf {
    cache.root().join(format!("building-{}-{}", source.name, source.key()))
}

/// The folder inside that becomes the finished emulator.
pub(super) fn result(cache: &Cache, source: &Source) -> PathBuf {
    work(cache, source).join(RESULT)
}

/// Builds the emulator into its result folder.
pub(super) fn compile(
    cache: &Cache,
    source: &Source,
    on_progress: OnProgress<'_>,
) -> Result<EmulatorManifest, Error> {
    require(source)?;
    cache.require_space(SPACE_TO_BUILD)?;
    let build = Build { source, work: work(cache, source), stop: cache.stop() };
    cache.remove_others(&format!("building-{}-", source.name), &build.work);
    let (tarball, version) = build.tarball(cache, on_progress)?;
    let about = tarball.metadata().map_err(Error::file("Could not look at", &tarball))?;
    let identity = sha256(&tarball)?;
    let unpack = |on_progress: OnProgress<'_>| {
        build.unpack_and_patch(cache, &tarball)?;
        build.unpack_python(cache, on_progress)
    };
    build
        .carry_out(&format!("unpacked-{identity}"), &unpack, on_progress)
        .map_err(|error| if identity == source.sha256 { error } else { of_drift(error, source, &version) })?;
    build.finish(version, identity, snapshot::identity(&about))
}

/// If the source is not the tested version, adds to a failed step's error how to get that one.
fn of_drift(error: Error, source: &Source, version: &str) -> Error {
    let Error::ProgramFailed { program, status, mut output } = error else { return error };
    let Source { name, version: tested, variable, .. } = source;
    output += &format!(
        "\nThis source is {name} {version}, and the labs were tested with {tested}; {variable} can name the tarball \
         {name}_{tested}*.orig.tar.xz, e.g. from https://snapshot.debian.org/package/{name}/"
    );
    Error::ProgramFailed { program, status, output }
}

struct Build<'a> {
    source: &'a Source,
    work: PathBuf,
    stop: &'a AtomicBool,
}

/// The step after which `make` can continue.
const CONFIGURED: &str = "configured";

impl Build<'_> {
    /// Runs a step, unless an earlier build completed it.
    fn step(&self, name: &str, carry_out: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mark = self.mark(name);
        if mark.exists() {
            return Ok(());
        }
        carry_out()?;
        write(&mark, b"")
    }

    fn mark(&self, name: &str) -> PathBuf {
        self.work.join(format!("{name}.done"))
    }

    /// Runs the steps: unpack, configure, compile; `unpacked` is the name of the first. If a continued build
    /// fails, starts over once: after a power failure, files may be empty.
    fn carry_out(
        &self,
        unpacked: &str,
        unpack: &dyn Fn(OnProgress<'_>) -> Result<(), Error>,
        on_progress: OnProgress<'_>,
    ) -> Result<(), Error> {
        let goes_on = self.mark(unpacked).exists();
        let mut build = || {
            self.step(unpacked, || unpack(on_progress))?;
            self.step(CONFIGURED, || self.configure(on_progress))?;
            self.make(on_progress)
        };
        match build() {
            Err(error @ Error::ProgramFailed { .. }) if goes_on => {
                tracing::warn!("{error}. It is compiled again from the start");
                for mark in
                    [unpacked, CONFIGURED].map(|name| self.mark(name)).iter().filter(|mark| mark.exists())
                {
                    fs::remove_file(mark).map_err(Error::file("Could not remove", mark))?;
                }
                build()
            }
            built => built,
        }
    }

    /// The source's tarball, and the upstream version.
    fn tarball(&self, cache: &Cache, on_progress: OnProgress<'_>) -> Result<(PathBuf, String), Error> {
        match self.source.given() {
            Some(given) => {
                let version = upstream_version(&given).unwrap_or_else(|| self.source.version.to_owned());
                Ok((given, version))
            }
            None => {
                let file = packages::fetch_source(cache, self.source.name, on_progress)?;
                let version = upstream_version(&file).unwrap_or_default();
                Ok((file, version))
            }
        }
    }

    fn unpack_and_patch(&self, cache: &Cache, tarball: &Path) -> Result<(), Error> {
        cache.discard(&self.work)?;
        let root = self.work.join(SOURCE);
        fs::create_dir_all(&root).map_err(Error::file("Could not make", &root))?;
        let file = File::open(tarball).map_err(Error::file("Could not open", tarball))?;
        let unpacked = liblzma::read::XzDecoder::new(BufReader::new(file)).take(LARGEST_SOURCE);
        let mut archive = tar::Archive::new(unpacked);
        archive.set_preserve_mtime(true);
        archive.unpack(&root).map_err(Error::file("Could not unpack", tarball))?;
        for (path, contents) in self.source.added {
            write(&self.tree()?.join(path), contents.as_bytes())?;
        }
        self.source.patches.iter().try_for_each(|(name, text)| self.patch(name, text))
    }

    /// The only folder of the unpacked tarball.
    fn tree(&self) -> Result<PathBuf, Error> {
        let root = self.work.join(SOURCE);
        let mut entries = fs::read_dir(&root).map_err(Error::file("Could not read", &root))?.flatten();
        entries.next().map(|entry| entry.path()).ok_or_else(|| Error::Damaged {
            path: root,
            problem: "the source's tarball was empty".to_owned(),
        })
    }

    fn patch(&self, name: &str, text: &str) -> Result<(), Error> {
        let file = self.work.join("patches").join(format!("{name}.patch"));
        write(&file, text.as_bytes())?;
        let output = Command::new("patch")
            .args(["--strip=1", "--forward", "--batch", "--no-backup-if-mismatch", "--input"])
            .arg(&file)
            .current_dir(self.tree()?)
            .output()
            .map_err(Error::file("Could not start", "patch"))?;
        succeeded(&format!("Patching {} with {name}", self.source.name), &output).map(drop)
    }

    fn unpack_python(&self, cache: &Cache, on_progress: OnProgress<'_>) -> Result<(), Error> {
        if self.source.python.is_empty() {
            return Ok(());
        }
        let root = self.work.join(PYTHON);
        fs::create_dir_all(&root).map_err(Error::file("Could not make", &root))?;
        packages::fetch_alone(cache, self.source.python, on_progress)?
            .iter()
            .try_for_each(|file| unpack_one(file, &root, &[]))
    }

    fn configure(&self, on_progress: OnProgress<'_>) -> Result<(), Error> {
        on_progress(Progress { step: Step::Compile, done: 0, total: self.source.units });
        let folder = self.work.join(BUILD);
        remove(&folder)?;
        fs::create_dir_all(&folder).map_err(Error::file("Could not make", &folder))?;
        let mut command = child::command(self.tree()?.join("configure"));
        command.args(self.source.arguments()).current_dir(&folder);
        self.logged("configure", command, &mut || ())
    }

    fn make(&self, on_progress: OnProgress<'_>) -> Result<(), Error> {
        let Some((program, arguments)) = self.source.make.split_first() else { return Ok(()) };
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = child::command(program);
        command.args(arguments).arg(format!("-j{jobs}")).current_dir(self.work.join(BUILD));
        let total = self.source.units;
        let mut done = 0;
        self.logged("make", command, &mut || {
            done += 1;
            on_progress(Progress { step: Step::Compile, done: done.min(total), total });
        })
    }

    /// Runs a command with its output in a log file. Calls `on_line` after each line of standard output.
    fn logged(&self, name: &str, mut command: Command, on_line: &mut dyn FnMut()) -> Result<(), Error> {
        let log = self.work.join(format!("{name}.log"));
        let mut kept = File::create(&log).map_err(Error::file("Could not write", &log))?;
        let errors = kept.try_clone().map_err(Error::file("Could not write", &log))?;
        let mut child = command
            .env("LC_ALL", "C.UTF-8")
            .env("PYTHONPATH", self.work.join(PYTHON).join(PYTHON_MODULES))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(Error::file("Could not start", command.get_program()))?;
        let (sender, lines) = sync_channel(64);
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).split(b'\n') {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        loop {
            let line = match lines.recv_timeout(child::TURN) {
                _ if self.stop.load(Ordering::Relaxed) => {
                    child::end(&mut child);
                    return Err(Error::Interrupted);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => continue,
                Ok(line) => line,
            };
            let mut line = line.map_err(Error::file("Could not read the output of", name))?;
            line.push(b'\n');
            kept.write_all(&line).map_err(Error::file("Could not write", &log))?;
            on_line();
        }
        let status = child.wait().map_err(Error::file("Could not wait for", name))?;
        if status.success() {
            return Ok(());
        }
        let printed = fs::read(&log).unwrap_or_default();
        Err(Error::ProgramFailed {
            program: format!("Compiling {} ({name}, log in {})", self.source.name, log.display()),
            status: status.to_string(),
            output: programs::last_lines(&String::from_utf8_lossy(&printed), 12).join("\n"),
        })
    }

    fn finish(
        &self,
        version: String,
        source_sha256: String,
        source_file: [u64; 4],
    ) -> Result<EmulatorManifest, Error> {
        let folder = self.work.join(RESULT);
        remove(&folder)?;
        fs::create_dir_all(&folder).map_err(Error::file("Could not make", &folder))?;
        let from = self.work.join(BUILD).join(self.source.program);
        fs::copy(&from, folder.join(PROGRAM)).map_err(Error::file("Could not copy", &from))?;
        let manifest = EmulatorManifest {
            key: self.source.key(),
            version,
            source_sha256,
            source_file: Some(source_file),
            compiler: compiler(),
            files: recorded::files(&folder, [PROGRAM.to_owned()])?,
        };
        recorded::write_manifest(&folder, &manifest)?;
        Ok(manifest)
    }
}

/// Fails if a requirement of compiling is not installed. The error lists all that are missing.
fn require(source: &Source) -> Result<(), Error> {
    let missing: Vec<&str> = source.needs.iter().filter(|need| !there(need)).map(package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::MissingPrograms { emulator: source.name, packages: missing.join(" ") })
}

fn package(need: &Need) -> &'static str {
    match need {
        Need::Program(_, package) | Need::Library(_, package) | Need::PythonModules(_, package) => package,
    }
}

fn there(need: &Need) -> bool {
    let works =
        |command: &mut Command| command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    match need {
        Need::Program(program, _) => packages::on_path(program),
        Need::Library(module, _) => works(Command::new("pkg-config").args(["--exists", module])),
        Need::PythonModules(names, _) => {
            works(Command::new(PYTHON_PROGRAM).args(["-c", &format!("import {names}")]))
        }
    }
}

/// The VERSION in `NAME_VERSION.orig.tar.xz`, without Debian's suffix after a plus sign.
fn upstream_version(tarball: &Path) -> Option<String> {
    let name = tarball.file_name()?.to_str()?;
    let (_, version) = name.split_once('_')?;
    let version = version.split_once(".orig").map_or(version, |(version, _)| version);
    Some(version.split('+').next().unwrap_or(version).to_owned())
}

fn compiler() -> String {
    let said = Command::new("c++").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    use super::*;

    /// A source whose `configure` writes an object file, and a folder for building it.
    fn source(make: &'static [&'static str]) -> (tempfile::TempDir, Source) {
        let source = Source {
            name: "fake",
            version: "1",
            sha256: "aa",
            variable: "EXITLESS_FAKE_SOURCE",
            patches: &[],
            added: &[],
            python: &[],
            configure: "",
            make,
            program: "program",
            needs: &[],
            units: 1,
        };
        (tempfile::tempdir().unwrap(), source)
    }

    fn compiled(work: &Path, source: &Source, stop: &AtomicBool) -> Result<(), Error> {
        let build = Build { source, work: work.to_owned(), stop };
        let unpack = |_: OnProgress<'_>| {
            let tree = work.join(SOURCE).join("fake-1");
            let configure = tree.join("configure");
            write(&configure, b"#!/bin/sh\necho object > a.o\n")?;
            fs::set_permissions(&configure, fs::Permissions::from_mode(0o755)).unwrap();
            write(&tree.join("code"), b"code\n")
        };
        build.carry_out(UNPACKED, &unpack, &mut |_| ())
    }

    const UNPACKED: &str = "unpacked-aa";

    #[test]
    fn a_build_that_goes_on_with_an_empty_file_is_done_again() {
        let (work, source) = source(&[
            "sh",
            "-c",
            "test -s a.o && test -s ../source/fake-1/code && cat a.o ../source/fake-1/code > program",
        ]);
        let compile = || compiled(work.path(), &source, &AtomicBool::new(false));
        compile().unwrap();
        let program = work.path().join(BUILD).join("program");
        for emptied in ["build/a.o", "source/fake-1/code"] {
            fs::write(work.path().join(emptied), "").unwrap();
            compile().unwrap();
            assert_eq!(fs::read(&program).unwrap(), b"object\ncode\n", "{emptied}");
        }
    }

    #[test]
    fn a_build_that_fails_from_the_start_is_not_repeated() {
        let (work, source) = source(&["sh", "-c", "echo once >> ../made; false"]);
        assert!(compiled(work.path(), &source, &AtomicBool::new(false)).is_err());
        assert_eq!(fs::read(work.path().join("made")).unwrap(), b"once\n");
    }

    #[test]
    fn modules_of_python_that_are_missing_are_named_by_their_package() {
        let (_work, mut source) = source(&[]);
        source.needs =
            &[Need::PythonModules("os", "python3"), Need::PythonModules("nonexistent", "python3-venv")];
        let told = require(&source).unwrap_err();
        assert!(
            matches!(&told, Error::MissingPrograms { packages, .. } if packages == "python3-venv"),
            "{told}"
        );
    }

    #[test]
    fn a_build_ends_when_it_is_told_to_stop() {
        let begun = Instant::now();
        let (work, source) = source(&["sh", "-c", "sleep 60; true"]);
        // Pretend that only make is left to do.
        fs::create_dir_all(work.path().join(BUILD)).unwrap();
        for mark in [UNPACKED, CONFIGURED] {
            write(&work.path().join(format!("{mark}.done")), b"").unwrap();
        }
        let stopped = compiled(work.path(), &source, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(Error::Interrupted)) && begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn another_source_that_does_not_build_names_the_tested_one() {
        let (_work, source) = source(&[]);
        let failed = Error::ProgramFailed {
            program: "Patching fake with 01".to_owned(),
            status: "1".to_owned(),
            output: "Hunk #1 FAILED".to_owned(),
        };
        let told = of_drift(failed, &source, "2").to_string();
        assert!(
            told.contains("Hunk #1 FAILED") && told.contains("fake 2, and the labs were tested with 1"),
            "{told}"
        );
        assert!(told.contains("EXITLESS_FAKE_SOURCE"), "{told}");
    }

    #[test]
    fn the_upstream_version_stands_in_the_tarballs_name() {
        let version = |name: &str| upstream_version(Path::new(name));
        assert_eq!(version("/x/bochs_3.0+dfsg.orig.tar.xz").as_deref(), Some("3.0"));
        assert_eq!(version("qemu_10.0.13+ds.orig.tar.xz").as_deref(), Some("10.0.13"));
        assert_eq!(version("source.tar.xz"), None);
    }
}
