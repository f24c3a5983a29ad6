//! The files that guests are started from.

use std::any::Any;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cpio::newc::{self, ModeFileType};

use super::last_words::{LastWords, NOT_UNPACKED};

/// The files from which every guest of a study is started.
#[derive(Debug, Clone)]
pub struct GuestFiles {
    /// The kernel: an ELF file with a PVH entry.
    pub(super) kernel: PathBuf,
    /// The same kernel as a bzImage, for loaders of HVM guests.
    pub(super) compressed_kernel: PathBuf,
    /// The initial RAM disk, which contains the agent.
    pub(super) initial_ram_disk: PathBuf,
    /// The root file system: a file or block device with ext4.
    pub(super) root: PathBuf,
    /// The reason why the initial RAM disk contains all of exitless instead of `exitless-agent`, if it does.
    pub(super) without_agent: Option<String>,
    pub(super) _kept_by: Keeper,
}

/// What keeps the files of an image from being removed.
#[derive(Clone, Default)]
pub(super) struct Keeper(Option<Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for Keeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Keeper").field(&self.0.is_some()).finish()
    }
}

impl GuestFiles {
    /// Prepares the files of a guest image. Appends `program`, a static binary that calls [`guest::run`], to the
    /// image's initial RAM disk, and writes the result into `folder`.
    ///
    /// # Errors
    /// If a file cannot be read or written; the message names it.
    pub fn prepare(
        [kernel, compressed_kernel]: [PathBuf; 2],
        initial_ram_disk: &Path,
        root: PathBuf,
        program: &[u8],
        folder: &Path,
    ) -> io::Result<Self> {
        let named = |action: &'static str, path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| {
                io::Error::new(error.kind(), format!("Could not {action} {path}: {error}"))
            }
        };
        let whole = folder.join("guest-initrd.img");
        let base = fs::read(initial_ram_disk).map_err(named("read", initial_ram_disk))?;
        fs::create_dir_all(folder).map_err(named("make", folder))?;
        let mut file = File::create(&whole).map_err(named("write", &whole))?;
        let program = archive(program).map_err(named("archive the agent in", &whole))?;
        let length = base.len() + program.len();
        let padding = vec![0; length.next_multiple_of(PAGE) - length];
        let written = [base, program, padding].iter().try_for_each(|part| file.write_all(part));
        written.map_err(named("write", &whole))?;
        Ok(Self {
            kernel,
            compressed_kernel,
            initial_ram_disk: whole,
            root,
            without_agent: None,
            _kept_by: Keeper::default(),
        })
    }

    /// The files, with the reason why the program is not the small `exitless-agent`, if it is not.
    #[must_use]
    pub fn without_agent(self, why: Option<String>) -> Self {
        Self { without_agent: why, ..self }
    }

    /// A sentence for a guest that has failed, if its memory was too small for the initial RAM disk; empty otherwise.
    pub(super) fn too_large(&self, last_words: &LastWords) -> String {
        if !last_words.console_has(NOT_UNPACKED) {
            return String::new();
        }
        let size = self.initial_ram_disk.metadata().map_or(0, |metadata| metadata.len() >> 20);
        let cause = format!(
            ". Its memory is too small for its initial RAM disk of {size} MiB, whose files may take at most half of the \
             memory that is left beside it: give the guests more (guests.memory)"
        );
        match &self.without_agent {
            None => cause,
            Some(why) => format!(
                "{cause}, or install exitless-agent beside exitless (`make build` makes both). The RAM disk contains all of \
                 exitless, because {why}"
            ),
        }
    }

    /// The files, which exist as long as `keeper` does.
    #[must_use]
    pub fn kept_by(self, keeper: impl Any + Send + Sync) -> Self {
        Self { _kept_by: Keeper(Some(Arc::new(keeper))), ..self }
    }
}

/// QEMU places the initial RAM disk of a microvm at the last page boundary at which it still fits below the top of
/// memory, where SeaBIOS has already put the ACPI tables (hw/i386/microvm.c reserves no space for them). If the disk's
/// length is not a multiple of a page, less than a page is left for the tables, the disk may overwrite them, and the
/// guest then finds no devices. So pad it to whole pages, which leaves a page: enough for the tables of some hundred
/// vCPUs.
const PAGE: usize = 4096;

/// An archive with the program as /init; the kernel unpacks concatenated archives one after the other.
fn archive(program: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(program.len() + 1024);
    let size = u32::try_from(program.len()).map_err(io::Error::other)?;
    let init = newc::Builder::new("init").mode(0o755).set_mode_file_type(ModeFileType::Regular).nlink(1);
    let mut entry = init.write(&mut bytes, size);
    entry.write_all(program)?;
    entry.finish()?;
    newc::trailer(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_follows_the_images_archive_as_its_first_process() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("base"), [0; 512]).unwrap();
        let files = GuestFiles::prepare(
            [at("kernel"), at("bzimage")],
            &at("base"),
            at("root"),
            b"binary",
            folder.path(),
        )
        .unwrap();
        let whole = fs::read(&files.initial_ram_disk).unwrap();
        assert_eq!(whole.len() % PAGE, 0);
        let mut entry = cpio::NewcReader::new(&whole[512..]).unwrap();
        assert_eq!((entry.entry().name(), entry.entry().mode() & 0o777), ("init", 0o755));
        let mut contents = Vec::new();
        io::copy(&mut entry, &mut contents).unwrap();
        assert_eq!(contents, b"binary");
    }

    #[test]
    fn a_ram_disk_that_does_not_fit_is_explained_with_the_agent_that_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base");
        fs::write(&base, [0; 512]).unwrap();
        let files = || {
            let kernels = ["kernel".into(), "bzimage".into()];
            GuestFiles::prepare(kernels, &base, "root".into(), &vec![1; 3 << 20], folder.path()).unwrap()
        };
        let full = files().without_agent(Some("/opt/bin/exitless-agent does not exist".to_owned()));
        let words = LastWords::new(folder.path(), "QEMU");
        let console = |text: &str| fs::write(words.console(), text).unwrap();
        assert_eq!(full.too_large(&words), "");
        console("[    1.8] Kernel panic - not syncing: No working init found.\n");
        assert_eq!(full.too_large(&words), "");
        console(&format!("[    1.2] {NOT_UNPACKED}\n[    1.8] Kernel panic{}\n", "\n registers".repeat(100)));
        let said = full.too_large(&words);
        for part in
            ["RAM disk of 3 MiB", "guests.memory", "`make build`", "/opt/bin/exitless-agent does not exist"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = files().too_large(&words);
        assert!(said.contains("guests.memory") && !said.contains("exitless-agent"), "{said}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let nowhere = Path::new("/nonexistent/initrd.img");
        let error =
            GuestFiles::prepare(["k".into(), "z".into()], nowhere, "r".into(), b"binary", Path::new("/tmp"))
                .unwrap_err();
        assert!(error.to_string().contains("/nonexistent/initrd.img"), "{error}");
    }
}
