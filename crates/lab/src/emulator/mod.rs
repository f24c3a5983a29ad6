//! The emulators, built on this machine from Debian's source packages with the patches in `crates/lab/patches`.
//!
//! Debian's own binaries are not suitable. Debian's Bochs is a debugger build, whose clock does not keep
//! time; and both emulators have bugs that corrupt what they emulate. Each patch explains its purpose.

mod compile;
#[cfg(test)]
mod faults_tests;
mod program;
mod source;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cache::{Cache, InUse};
use crate::definition::Emulator;
use crate::error::Error;
use crate::progress::OnProgress;
use crate::recorded::{self, FileRecord, Recorded};
use crate::snapshot::identity;
use crate::tree::{disk_usage, sha256, take_place};
pub(crate) use program::EmulatorProgram;
use source::Source;

/// The source and the compiler that an emulator was built with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatorManifest {
    /// Identifies the patches, the configuration and the steps.
    pub key: String,
    /// The upstream version of Debian's source package.
    pub version: String,
    /// SHA-256 of the source tarball, in hexadecimal.
    pub source_sha256: String,
    /// Identifies that tarball's file and its state, to avoid hashing it again: device, inode, size and time
    /// of change.
    #[serde(default)]
    pub source_file: Option<[u64; 4]>,
    /// The compiler's name and version, as it prints them.
    pub compiler: String,
    /// The emulator's program.
    pub files: Vec<FileRecord>,
}

impl Recorded for EmulatorManifest {
    const NAME: &'static str = "an emulator's manifest";

    fn files(&self) -> &[FileRecord] {
        &self.files
    }
}

/// An emulator in the cache.
#[derive(Debug, Clone)]
pub struct BuiltEmulator {
    folder: PathBuf,
    manifest: EmulatorManifest,
    in_use: InUse,
}

impl BuiltEmulator {
    /// The emulator of the current recipe, if it has been built.
    ///
    /// # Errors
    /// [`Error::Damaged`] when its program is missing or has another size than was recorded.
    pub fn find(cache: &Cache, emulator: Emulator) -> Result<Option<Self>, Error> {
        let folder = folder(cache, Source::of(emulator));
        let in_use = InUse::of(&folder);
        Ok(recorded::find(&folder)?.map(|manifest| Self { folder, manifest, in_use }))
    }

    /// The emulator, built first if necessary. An interrupted build continues where it stopped.
    ///
    /// # Errors
    /// [`Error::MissingPrograms`] when compilers or libraries are not installed, and errors of fetching,
    /// patching and compiling the source.
    pub fn find_or_build(
        cache: &Cache,
        emulator: Emulator,
        on_progress: OnProgress<'_>,
    ) -> Result<Self, Error> {
        let source = Source::of(emulator);
        let given = source.given();
        let wanted = || match Self::find(cache, emulator)? {
            Some(built) if built.is_of(given.as_deref())? => Ok(Some(built)),
            _ => Ok(None),
        };
        if let Some(built) = wanted()? {
            return Ok(built);
        }
        let _lock = lock_building(cache, emulator, on_progress)?;
        // Another process may have built it while this one waited for the lock.
        if let Some(built) = wanted()? {
            return Ok(built);
        }
        Self::build(cache, source, || compile::compile(cache, source, on_progress))
    }

    /// Moves the emulator that `make` leaves in its folder for building to its place, unless a lab runs in the
    /// one that is there.
    fn build(
        cache: &Cache,
        source: &Source,
        make: impl FnOnce() -> Result<EmulatorManifest, Error>,
    ) -> Result<Self, Error> {
        let place = folder(cache, source);
        let require_unused = || match InUse::is_of_others(&place) {
            true => Err(Error::Running),
            false => Ok(()),
        };
        require_unused()?;
        let manifest = make()?;
        // A lab may have begun to run meanwhile. The next attempt continues with what is compiled.
        require_unused()?;
        take_place(&compile::result(cache, source), &place)?;
        cache.discard(&compile::work(cache, source))?;
        cache.remove_others(&prefix(source), &place);
        let in_use = InUse::of(&place);
        Ok(Self { folder: place, manifest, in_use })
    }

    /// Tests whether the emulator was built from the user's tarball. True if that no longer exists: it could
    /// not be built anyway.
    fn is_of(&self, given: Option<&Path>) -> Result<bool, Error> {
        let Some((given, about)) = given.and_then(|given| Some((given, given.metadata().ok()?))) else {
            return Ok(true);
        };
        let is_same_file = self.manifest.source_file == Some(identity(&about));
        Ok(is_same_file || sha256(given)? == self.manifest.source_sha256)
    }

    /// Checks the program against its recorded hash.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it differs.
    pub fn verify(&self, on_progress: OnProgress<'_>) -> Result<(), Error> {
        recorded::verify(&self.folder, &self.manifest.files, on_progress)
    }

    /// The source and the compiler.
    pub fn manifest(&self) -> &EmulatorManifest {
        &self.manifest
    }

    /// The source package and the version that the laboratories were tested with, if this emulator is of
    /// another one.
    pub(crate) fn drift(&self, emulator: Emulator) -> Option<(&'static str, &'static str)> {
        let source = Source::of(emulator);
        (self.manifest.source_sha256 != source.sha256).then_some((source.name, source.version))
    }

    /// The path of the program.
    pub fn program(&self) -> PathBuf {
        self.folder.join(source::PROGRAM)
    }

    /// The size on disk, in bytes.
    pub fn disk_usage(&self) -> u64 {
        disk_usage(&self.folder)
    }
}

/// Waits for the lock that allows only one build of an emulator at a time.
pub(crate) fn lock_building(
    cache: &Cache,
    emulator: Emulator,
    on_progress: OnProgress<'_>,
) -> Result<File, Error> {
    cache.lock(&format!("building-{}.lock", Source::of(emulator).name), on_progress)
}

fn prefix(source: &Source) -> String {
    format!("emulator-{}-", source.name)
}

fn folder(cache: &Cache, source: &Source) -> PathBuf {
    cache.root().join(format!("{}{}", prefix(source), source.key()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_stays_if_a_lab_began_to_run_while_another_was_compiled() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let source = Source::of(Emulator::Bochs);
        let (place, made) = (folder(&cache, source), compile::result(&cache, source));
        for folder in [&place, &made] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let mut in_use = None;
        let built = BuiltEmulator::build(&cache, source, || {
            std::fs::write(place.join("of the lab"), "").unwrap();
            in_use = Some(InUse::of(&place));
            Ok(manifest(String::new()))
        });
        assert!(matches!(built, Err(Error::Running)), "{built:?}");
        assert!(place.join("of the lab").exists() && made.exists());
        drop(in_use);
    }

    fn manifest(source_sha256: String) -> EmulatorManifest {
        EmulatorManifest {
            key: String::new(),
            version: "3.0".to_owned(),
            source_sha256,
            source_file: None,
            compiler: String::new(),
            files: Vec::new(),
        }
    }

    #[test]
    fn another_source_that_is_given_is_built() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let folder = folder(&cache, Source::of(Emulator::Bochs));
        std::fs::create_dir_all(&folder).unwrap();
        let [same, other] = ["same", "other"].map(|name| {
            let path = root.path().join(name);
            std::fs::write(&path, name).unwrap();
            path
        });
        let mut manifest = manifest(sha256(&same).unwrap());
        let is_of = |manifest: &EmulatorManifest, given| {
            recorded::write_manifest(&folder, manifest).unwrap();
            BuiltEmulator::find(&cache, Emulator::Bochs).unwrap().unwrap().is_of(given).unwrap()
        };
        assert!(is_of(&manifest, None) && is_of(&manifest, Some(&same)) && !is_of(&manifest, Some(&other)));
        assert!(is_of(&manifest, Some(Path::new("/gone"))), "nothing else can be built");
        manifest.source_file = Some(identity(&other.metadata().unwrap()));
        assert!(is_of(&manifest, Some(&other)), "it is not read again");
    }
}
