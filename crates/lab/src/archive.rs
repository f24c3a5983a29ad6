//! Initial RAM disks: concatenated cpio archives in the "newc" format, as the kernel reads them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use cpio::newc::{self, ModeFileType};

/// A cpio archive under construction, in memory.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Adds a file at an absolute path, making the folders above it.
    pub(crate) fn file(&mut self, path: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, mode, ModeFileType::Regular, contents)
    }

    /// Adds an empty folder, making the folders above it.
    pub(crate) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.parents(path)?;
        if self.folders.insert(path.to_owned()) {
            self.entry(path, 0o755, ModeFileType::Directory, &[])?;
        }
        Ok(())
    }

    /// The finished archive.
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        newc::trailer(&mut self.bytes)?;
        // The kernel looks for the next archive at a multiple of four. In a microvm, an initial RAM disk that
        // does not fill its last page may overwrite the ACPI tables (`PAGE` of guests' files.rs).
        self.bytes.resize(self.bytes.len().next_multiple_of(4096), 0);
        Ok(self.bytes)
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match Path::new(path).parent().and_then(Path::to_str) {
            None | Some("/" | "") => Ok(()),
            Some(parent) => self.folder(parent),
        }
    }

    fn entry(&mut self, path: &str, mode: u32, kind: ModeFileType, contents: &[u8]) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        let links = if matches!(kind, ModeFileType::Directory) { 2 } else { 1 };
        let builder = newc::Builder::new(name).mode(mode).set_mode_file_type(kind).nlink(links);
        let size = u32::try_from(contents.len()).map_err(io::Error::other)?;
        let mut writer = builder.write(&mut self.bytes, size);
        writer.write_all(contents)?;
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_what_is_in_them_and_once() {
        let mut archive = Archive::default();
        archive.file("/lib/modules/kvm.ko", 0o644, b"module").unwrap();
        archive.file("/lib/modules/irqbypass.ko", 0o644, b"module").unwrap();
        let bytes = archive.finish().unwrap();
        let mut names = Vec::new();
        let mut rest = bytes.as_slice();
        while let Ok(reader) = cpio::NewcReader::new(rest) {
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_owned());
            rest = reader.finish().unwrap();
        }
        assert_eq!(names, ["lib", "lib/modules", "lib/modules/kvm.ko", "lib/modules/irqbypass.ko"]);
    }
}
