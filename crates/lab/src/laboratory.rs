//! Prepares a laboratory: its image, and an emulator that passes the self-test.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::definition::{Emulator, Lab};
use crate::emulator::{BuiltEmulator, EmulatorProgram, lock_building};
use crate::error::Error;
use crate::image::Image;
use crate::progress::{OnProgress, Progress, Step};
use crate::recorded::PackageRecord;
use crate::request::{Happening, Request};
use crate::run::Laboratory;
use crate::tree::disk_usage;
use crate::xen_image::XenImage;

/// The `exitless` command that the self-test runs inside. It enters a guest. If the laboratory's CPU has
/// interrupt virtualization, it also fails unless that is active.
pub const SELF_TEST: &str = "lab-self-test";

/// The result of an emulator's self-test, stored so that each program is tested only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Verdict {
    passed: bool,
    reason: String,
}

/// Builds the missing parts of the image and of the lab's emulator in parallel, and returns the image.
///
/// # Errors
/// If the image cannot be built, and those of [`BuiltEmulator::find_or_build`]. A QEMU that cannot be
/// compiled here is no error: Debian's QEMU replaces it.
pub fn build(cache: &Cache, lab: &Lab, on_progress: OnProgress<'_>) -> Result<Image, Error> {
    let shared = Mutex::new(on_progress);
    let report = |progress| {
        if let Ok(mut on_progress) = shared.lock() {
            on_progress(progress);
        }
    };
    std::thread::scope(|scope| {
        let emulator =
            scope.spawn(|| BuiltEmulator::find_or_build(cache, lab.emulator, &mut |step| report(step)));
        let image = Image::find_or_build(cache, &mut |step| report(step))?;
        match emulator.join() {
            Ok(Ok(_)) => Ok(image),
            Ok(Err(Error::MissingPrograms { .. })) if lab.runs_in_debians_qemu() => Ok(image),
            Ok(Err(error)) => Err(error),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

impl<'a> Laboratory<'a> {
    /// Opens a laboratory with an emulator that passes the self-test. Builds missing parts first.
    ///
    /// # Errors
    /// [`Error::NoEmulator`] if the self-test fails; [`Error::Interrupted`]; those of
    /// [`BuiltEmulator::find_or_build`]; for a Xen host also those of building its image.
    pub fn open(
        cache: &'a Cache,
        lab: &'static Lab,
        image: &'a Image,
        stop: Arc<AtomicBool>,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let xen = lab.is_xen().then(|| XenImage::find_or_build(cache, on_progress)).transpose()?;
        let emulator = match BuiltEmulator::find_or_build(cache, lab.emulator, on_progress) {
            Ok(built) => EmulatorProgram::built(&built, lab.emulator),
            Err(error @ Error::MissingPrograms { .. }) if lab.runs_in_debians_qemu() => {
                tracing::warn!(
                    "{error}. Until then {} runs in Debian's own QEMU, which has no snapshots and no clock, and now and \
                     then damages a host that runs two guests",
                    lab.name
                );
                EmulatorProgram::stock(image)
            }
            Err(error) => return Err(error),
        };
        let laboratory = Self { cache, lab, image, xen, emulator, stop };
        let verdict = match laboratory.known_verdict() {
            Some(verdict) => verdict,
            None => {
                on_progress(Progress { step: Step::SelfTest, done: 0, total: 0 });
                laboratory.test_and_record()?
            }
        };
        if verdict.passed {
            Ok(laboratory)
        } else {
            Err(Error::NoEmulator { emulator: lab.emulator.name(), tried: verdict.reason })
        }
    }

    /// The packages of the emulated host.
    pub fn packages(&self) -> &[PackageRecord] {
        match &self.xen {
            Some(xen) => &xen.manifest().packages,
            None => &self.image.manifest().packages,
        }
    }

    /// The image of a Xen host; `None` for other laboratories.
    pub fn xen_image(&self) -> Option<&XenImage> {
        self.xen.as_ref()
    }

    /// The emulator's name and version: "Bochs 3.0".
    pub fn emulator_name(&self) -> String {
        format!("{} {}", self.lab.emulator.name(), self.emulator.version)
    }

    /// The emulator's source package, its version and the tested version, if those differ.
    pub fn emulator_drift(&self) -> Option<(&str, &str, &str)> {
        self.emulator.drift.map(|(package, proven)| (package, self.emulator.version.as_str(), proven))
    }

    /// Tests whether the emulator has our patches. Without them its time is meaningless.
    pub fn has_clock(&self) -> bool {
        self.emulator.patched
    }

    fn verdict_path(&self) -> PathBuf {
        let key = self.xen.as_ref().map_or(&self.image.manifest().key, |xen| &xen.manifest().key);
        let name = format!("{}-{key}-{}.json", self.lab.name, self.emulator.identity);
        self.cache.verdicts().join(name)
    }

    fn known_verdict(&self) -> Option<Verdict> {
        let text = fs::read(self.verdict_path()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn test_and_record(&self) -> Result<Verdict, Error> {
        let (passed, reason) = match self.self_test() {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => (false, error.with_causes()),
            Ok((0, output)) => (true, output),
            Ok((status, output)) => (false, format!("the self-test inside failed ({status}): {output}")),
        };
        let verdict = Verdict { passed, reason };
        // Store only success: the cause of a failure may go away.
        if passed {
            let path = self.verdict_path();
            let folder = self.cache.verdicts();
            fs::create_dir_all(&folder).map_err(Error::file("Could not make", &folder))?;
            let text = serde_json::to_vec_pretty(&verdict).unwrap_or_default();
            fs::write(&path, text).map_err(Error::file("Could not write", &path))?;
        }
        Ok(verdict)
    }

    fn self_test(&self) -> Result<(i32, String), Error> {
        // Choose a shape that runs use later, so that they find its snapshot: those in a Xen host, and
        // `prove` in a KVM host.
        let request = Request {
            bare: !self.lab.is_xen(),
            timeout: Some(Duration::from_secs(600)),
            ..Request::new(["exitless", SELF_TEST, self.lab.name])
        };
        let mut output = Vec::new();
        let finished = self.run(&request, &mut |happening| {
            if let Happening::Stdout(bytes) | Happening::Stderr(bytes) = happening {
                output.extend_from_slice(bytes);
            }
        })?;
        Ok((finished.ending.code(), String::from_utf8_lossy(&output).trim().to_owned()))
    }
}

/// Waits until other processes have finished building, then removes the whole cache. Returns the number of
/// bytes freed.
///
/// # Errors
/// [`Error::Running`] while a laboratory runs, and if a file cannot be removed.
pub fn clean(cache: &Cache) -> Result<u64, Error> {
    let root = cache.root();
    if !root.exists() {
        return Ok(0);
    }
    let _image = cache.lock_building(&mut |_| ())?;
    let _bochs = lock_building(cache, Emulator::Bochs, &mut |_| ())?;
    let _qemu = lock_building(cache, Emulator::Qemu, &mut |_| ())?;
    let size = disk_usage(root);
    cache.remove()?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Host;
    use crate::recorded::{self, Manifest};

    #[test]
    fn a_self_test_that_cannot_begin_names_the_cause() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let (none, place) = (String::new, Image::place(&cache));
        let manifest = Manifest::new(none(), none(), Host {}, (&place, []), &[]).unwrap();
        recorded::write_manifest(&place, &manifest).unwrap();
        let image = Image::find(&cache).unwrap().unwrap();
        let laboratory = Laboratory {
            cache: &Cache::at("/dev/null/lab"),
            lab: Lab::find("amd-svm").unwrap(),
            image: &image,
            xen: None,
            emulator: EmulatorProgram::stock(&image),
            stop: Arc::default(),
        };
        let verdict = laboratory.test_and_record().unwrap();
        assert!(!verdict.passed);
        assert_eq!(verdict.reason, "Could not make /dev/null/lab\nbecause: Not a directory (os error 20)");
    }

    #[test]
    fn cleaning_what_is_not_there_frees_nothing() {
        assert_eq!(clean(&Cache::at("/nonexistent/exitless")).unwrap(), 0);
    }
}
