//! The emulator's program of a run: one that we compiled, or Debian's.

use std::path::PathBuf;

use super::BuiltEmulator;
use crate::assemble::STOCK_QEMU;
use crate::cache::InUse;
use crate::definition::Emulator;
use crate::image::Image;
use crate::recorded::version_of;

/// The program that emulates a laboratory.
#[derive(Debug, Clone)]
pub(crate) struct EmulatorProgram {
    /// The path; `None` for Debian's program in the image.
    pub(crate) program: Option<PathBuf>,
    /// The program has our patches. Without them there are no snapshots and no clock of instructions.
    pub(crate) patched: bool,
    /// SHA-256 of the program.
    pub(crate) identity: String,
    /// The upstream version.
    pub(crate) version: String,
    /// The source package and the version with which the laboratories were tested, if it differs.
    pub(crate) drift: Option<(&'static str, &'static str)>,
    _in_use: Option<InUse>,
}

impl EmulatorProgram {
    pub(crate) fn built(built: &BuiltEmulator, emulator: Emulator) -> Self {
        let manifest = built.manifest();
        Self {
            program: Some(built.program()),
            patched: true,
            identity: manifest.files.first().map_or_else(String::new, |file| file.sha256.clone()),
            version: manifest.version.clone(),
            drift: built.drift(emulator),
            _in_use: Some(built.in_use.clone()),
        }
    }

    /// Debian's QEMU in the image.
    pub(crate) fn stock(image: &Image) -> Self {
        let manifest = image.manifest();
        let file = manifest.files.iter().find(|file| file.path.ends_with(STOCK_QEMU));
        let version = version_of(&manifest.packages, "qemu-system-x86").unwrap_or("unknown");
        let version = version.split_once(':').map_or(version, |(_, rest)| rest);
        Self {
            program: None,
            patched: false,
            identity: file.map_or_else(String::new, |file| file.sha256.clone()),
            version: version.split(['+', '-']).next().unwrap_or(version).to_owned(),
            // Not needed: the image reports the versions of its own packages.
            drift: None,
            _in_use: None,
        }
    }
}
