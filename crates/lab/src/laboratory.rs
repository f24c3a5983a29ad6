//! Making a laboratory ready: its image, and an emulator that has shown that it can do what it must.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assemble::EMULATORS;
use crate::cache::Cache;
use crate::definition::{Emulator, Lab};
use crate::error::Error;
use crate::image::{Image, TOOLS};
use crate::progress::{OnProgress, Progress, Step};
use crate::recorded::sha256;
use crate::request::{Happening, Request};
use crate::run::Laboratory;
use crate::xen_image::XenImage;

/// The command of this program that the self-test runs inside: it enters a guest, and fails unless the vendor's
/// interrupt virtualization is active where the laboratory promises it.
pub const SELF_TEST: &str = "lab-self-test";

/// The outcome of an emulator's self-test, kept so that each program is tested once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Verdict {
    program: PathBuf,
    passed: bool,
    reason: String,
}

impl<'a> Laboratory<'a> {
    /// Chooses the emulator by self-test: one on PATH that boots Linux and enters a guest is used as it is, else the
    /// image's own.
    ///
    /// # Errors
    /// [`Error::NoEmulator`] with the reason for each candidate, [`Error::Interrupted`], or for a Xen host what
    /// [`XenImage::find_or_build`] says.
    pub fn open(
        cache: &'a Cache,
        lab: &'static Lab,
        image: &'a Image,
        stop: Arc<AtomicBool>,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let xen = lab.is_xen().then(|| XenImage::find_or_build(cache, on_progress)).transpose()?;
        let mut tried = String::new();
        let candidates = candidates(lab, image);
        let total = candidates.len() as u64;
        for ((program, identity), done) in candidates.into_iter().zip(0..) {
            let laboratory = Self { cache, lab, image, xen: xen.clone(), program, stop: Arc::clone(&stop) };
            let verdict = match laboratory.known_verdict(&identity)? {
                Some(verdict) => verdict,
                None => {
                    on_progress(Progress { step: Step::SelfTest, done, total });
                    laboratory.test_and_record(&identity)?
                }
            };
            if verdict.passed {
                return Ok(laboratory);
            }
            tried += &format!("{}: {}\n", identity.display(), verdict.reason);
        }
        Err(Error::NoEmulator { emulator: lab.emulator.name(), tried })
    }

    /// The emulator in use: a program of this machine, or none for the image's own.
    pub fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// The image of a Xen host; none for other laboratories.
    pub fn xen_image(&self) -> Option<&XenImage> {
        self.xen.as_ref()
    }

    /// The version of the image's own emulator, without Debian's revision; none for another program.
    pub fn emulator_version(&self) -> Option<String> {
        let package = match (self.program(), self.lab.emulator) {
            (Some(_), _) => return None,
            (None, Emulator::Bochs) => "bochs",
            (None, Emulator::Qemu) => "qemu-system-x86",
        };
        let packages = &self.image.manifest().packages;
        let version = packages.iter().find(|record| record.name == package)?.version.as_str();
        let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
        upstream.split(['+', '-']).next().map(str::to_owned)
    }

    fn verdict_path(&self, identity: &Path) -> Result<PathBuf, Error> {
        let key = self.xen.as_ref().map_or(&self.image.manifest().key, |xen| &xen.manifest().key);
        let name = format!("{}-{key}-{}.json", self.lab.name, sha256(identity)?);
        Ok(self.cache.verdicts().join(name))
    }

    fn known_verdict(&self, identity: &Path) -> Result<Option<Verdict>, Error> {
        let text = fs::read(self.verdict_path(identity)?).ok();
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn test_and_record(&self, identity: &Path) -> Result<Verdict, Error> {
        let program = identity.to_owned();
        let (passed, reason) = match self.self_test() {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => (false, error.to_string()),
            Ok((0, output)) => (true, output),
            Ok((status, output)) => (false, format!("the self-test inside failed ({status}): {output}")),
        };
        let verdict = Verdict { program, passed, reason };
        // The image's own emulator is known to work, so that its failure is the moment's and not worth keeping.
        if !passed && self.program.is_none() {
            return Ok(verdict);
        }
        let path = self.verdict_path(identity)?;
        let folder = self.cache.verdicts();
        fs::create_dir_all(&folder).map_err(Error::file("Could not make", &folder))?;
        let text = serde_json::to_vec_pretty(&verdict).unwrap_or_default();
        fs::write(&path, text).map_err(Error::file("Could not write", &path))?;
        Ok(verdict)
    }

    fn self_test(&self) -> Result<(i32, String), Error> {
        // What Xen found in the CPU stands in its log, which `xl` on the disk reads.
        let by_log = self.lab.is_xen() && self.lab.emulator == Emulator::Bochs;
        let request = Request {
            bare: !by_log,
            cpus: if by_log { 1 } else { 2 },
            timeout: Some(Duration::from_secs(60)),
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

/// Programs to try, each with the file that identifies it.
fn candidates(lab: &Lab, image: &Image) -> Vec<(Option<PathBuf>, PathBuf)> {
    let (names, own): (&[&str], _) = match lab.emulator {
        Emulator::Bochs => (&["bochs-bin", "bochs"], EMULATORS[0]),
        // QEMU's own copy is pinned by the image, and any other differs from it only in its version.
        Emulator::Qemu => (&[], EMULATORS[1]),
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = names.iter().find_map(|name| {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    });
    let installed = on_path.map(|program| (Some(program.clone()), program));
    installed.into_iter().chain([(None, image.path(TOOLS).join(own))]).collect()
}
