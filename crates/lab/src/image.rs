//! The image that all laboratories share: an uncompressed kernel, modules, a disk with Debian, and the
//! emulators' firmware.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::assemble::{self, BUSYBOX, DISK, KERNEL, MODULES, TOOLS};
use crate::error::Error;
use crate::packages::Package;
use crate::progress::OnProgress;
use crate::recipe;
use crate::recorded::{Built, Manifest, Recipe};
use crate::unpack;

/// The disk space needed during a build for packages, unpacked tree and image, in MiB.
const SPACE_TO_BUILD: u64 = 3000;

/// The host that all laboratories share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {}

/// A finished image in the cache.
pub type Image = Built<Host>;

impl Recipe for Host {
    const PREFIX: &'static str = "image-";
    const SPACE_MIB: u64 = SPACE_TO_BUILD;
    const PACKAGES: &'static [&'static str] = &recipe::PACKAGES;
    const PROVEN: &'static [(&'static str, &'static str)] = &recipe::PROVEN;
    const BUILDING: &'static str = "building";

    fn content_key() -> String {
        recipe::content_key()
    }

    fn make(
        packages: &[Package],
        root: &Path,
        folder: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Manifest<Self>, Error> {
        unpack::unpack(packages, root, &recipe::LEFT_OUT, on_progress)?;
        let kernel = assemble::assemble(root, folder, on_progress)?;
        let mut paths = [KERNEL, DISK, BUSYBOX].map(str::to_owned).to_vec();
        paths.extend(kernel.modules.iter().map(|module| format!("{MODULES}/{module}")));
        paths.push(format!("{TOOLS}/{}", assemble::STOCK_QEMU));
        Manifest::new(Self::content_key(), kernel.release, Self {}, (folder, paths), packages)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cache::Cache;
    use crate::recorded::{self, FileRecord, PackageRecord};

    fn image_with(size: u64) -> (tempfile::TempDir, Cache) {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let folder = Image::place(&cache);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(DISK), b"disk").unwrap();
        let record = FileRecord { path: DISK.into(), bytes: size, sha256: "00".into() };
        let manifest = Manifest {
            key: recipe::content_key(),
            kernel_release: "6.12".into(),
            of_kind: Host {},
            files: vec![record],
            packages: vec![PackageRecord {
                name: "qemu-system-x86".into(),
                version: "9".into(),
                sha256: String::new(),
            }],
        };
        recorded::write_manifest(&folder, &manifest).unwrap();
        (root, cache)
    }

    #[test]
    fn no_image_is_not_an_error() {
        let root = tempfile::tempdir().unwrap();
        assert!(Image::find(&Cache::at(root.path())).unwrap().is_none());
    }

    #[test]
    fn a_file_of_another_size_is_damage_that_says_what_to_do() {
        let (_root, cache) = image_with(5);
        let message = Image::find(&cache).unwrap_err().to_string();
        assert!(
            message.contains("expected 5 bytes, found: 4 bytes") && message.contains("lab clean"),
            "{message}"
        );
    }

    #[test]
    fn a_file_of_another_content_is_found_by_its_hash() {
        let (_root, cache) = image_with(4);
        let image = Image::find(&cache).unwrap().unwrap();
        assert!(matches!(image.verify(&mut |_| ()), Err(Error::Damaged { .. })));
    }

    #[test]
    fn versions_other_than_the_proven_ones_are_named() {
        let (_root, cache) = image_with(4);
        let image = Image::find(&cache).unwrap().unwrap();
        assert_eq!(image.drift(), [("qemu-system-x86", "9", "1:10.0.13+ds-0+deb13u1")]);
    }
}
