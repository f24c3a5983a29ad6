//! The image of the Xen host: Xen, the control domain's kernel and modules, and its disk. The emulator is
//! that of the shared image.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::assemble::{DISK, MODULES};
use crate::error::Error;
use crate::packages::Package;
use crate::progress::{Effort, OnProgress};
use crate::recipe;
use crate::recorded::{self, Built, Manifest, Recipe};
use crate::unpack;
use crate::xen_disk::{self, Assembled, HYPERVISOR, KERNEL, XenModules};
use crate::xen_recipe;

/// The effort of building the image of the Xen host, in addition to the image that all laboratories share.
pub const XEN_BUILD_EFFORT: Effort =
    Effort { download_mib: 125, disk_mib: 430, time: Duration::from_secs(30) };

const SPACE_TO_BUILD: u64 = 2000;

/// The Xen host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XenHost {
    /// The modules that the control domain loads early.
    pub modules: XenModules,
}

/// A finished image of the Xen host.
pub type XenImage = Built<XenHost>;

impl Recipe for XenHost {
    const PREFIX: &'static str = "xen-";
    const SPACE_MIB: u64 = SPACE_TO_BUILD;
    const PACKAGES: &'static [&'static str] = &xen_recipe::PACKAGES;
    const PROVEN: &'static [(&'static str, &'static str)] = &xen_recipe::PROVEN;
    const BUILDING: &'static str = "building-xen";

    fn content_key() -> String {
        xen_recipe::content_key()
    }

    fn make(
        packages: &[Package],
        root: &Path,
        folder: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<Manifest<Self>, Error> {
        let left_out: Vec<&str> = recipe::LEFT_OUT.iter().chain(&xen_recipe::LEFT_OUT).copied().collect();
        unpack::unpack(packages, root, &left_out, on_progress)?;
        let Assembled { kernel_release, modules } = xen_disk::assemble(root, folder, on_progress)?;
        let loaded = modules.all().into_iter().map(|module| format!("{MODULES}/{module}"));
        let files: Vec<String> =
            [HYPERVISOR, KERNEL, DISK].map(str::to_owned).into_iter().chain(loaded).collect();
        Manifest::new(Self::content_key(), kernel_release, Self { modules }, (folder, files), packages)
    }
}

impl XenImage {
    /// The version of Xen, from Debian's package.
    pub fn hypervisor_version(&self) -> Option<&str> {
        recorded::version_of(&self.manifest().packages, xen_recipe::PROVEN[0].0)
    }

    /// The contents of a module that the control domain loads early.
    pub(crate) fn module(&self, file: &str) -> Result<Vec<u8>, Error> {
        self.read(&format!("{MODULES}/{file}"))
    }
}

#[cfg(test)]
#[path = "xen_image_tests.rs"]
mod tests;
