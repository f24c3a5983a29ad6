//! KVM's and VFIO's descriptors among those of a process.

use super::process::{Listing, Process};
use std::path::{Path, PathBuf};

/// Descriptors by their link targets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// Descriptors of VMs (`kvm-vm`).
    pub(super) vms: Vec<i32>,
    /// Descriptors of vCPUs (`kvm-vcpu:N`): number and descriptor.
    pub(super) vcpus: Vec<(u32, i32)>,
    /// Descriptors of vCPUs' statistics (`kvm-vcpu-stats:N`).
    pub(super) vcpu_statistics: Vec<(u32, i32)>,
    /// Paths below `/dev/vfio` except that of the container.
    pub(super) vfio: Vec<PathBuf>,
    /// One is a vDPA device.
    pub(super) has_vdpa: bool,
}

impl Descriptors {
    pub(super) fn read(process: &Process) -> Listing<Self> {
        // The other open files of a VM are private.
        match process.links(|target| is_kvm(target) || is_vfio(target) || is_vdpa(target)) {
            Listing::Read(links) => Listing::Read(Self::among(&links)),
            Listing::Denied => Listing::Denied,
            Listing::Held => Listing::Held,
            Listing::Gone => Listing::Gone,
        }
    }

    fn among(links: &[(i32, PathBuf)]) -> Self {
        let mut found = Self::default();
        for (number, target) in links {
            let of_kvm = target.to_str().and_then(|target| target.strip_prefix("anon_inode:kvm-"));
            match of_kvm {
                Some("vm") => found.vms.push(*number),
                Some(name) => {
                    found.vcpus.extend(numbered(name, "vcpu:").map(|vcpu| (vcpu, *number)));
                    let statistics = numbered(name, "vcpu-stats:");
                    found.vcpu_statistics.extend(statistics.map(|vcpu| (vcpu, *number)));
                }
                None if is_vfio(target) => found.vfio.push(as_opened(target)),
                None => found.has_vdpa |= is_vdpa(target),
            }
        }
        found.vcpus.sort_unstable();
        found.vcpu_statistics.sort_unstable();
        found.vfio.sort_unstable();
        found.vfio.dedup();
        found
    }

    pub(super) fn has_vm(&self) -> bool {
        !self.vms.is_empty() || !self.vcpus.is_empty()
    }
}

fn numbered(name: &str, before: &str) -> Option<u32> {
    name.strip_prefix(before)?.parse().ok()
}

fn is_kvm(target: &Path) -> bool {
    target.to_str().is_some_and(|target| target.starts_with("anon_inode:kvm-"))
}

/// The limit of a path of VFIO, in bytes. The kernel's have a number after `/dev/vfio/noiommu-` or
/// `/dev/vfio/devices/vfio` (drivers/vfio/group.c and vfio_main.c). In a mount namespace of its own, a process
/// can have thousands of files there with paths of 4 KiB.
const LONGEST_VFIO: usize = 64;

/// Tests for VFIO groups and devices, but not for `/dev/vfio/vfio`, the container, which does not identify a
/// device.
fn is_vfio(target: &Path) -> bool {
    is_short(target) && target.starts_with("/dev/vfio") && target != Path::new("/dev/vfio/vfio")
}

/// The path of a file without the kernel's note that it was deleted: libvirt removes a group's file from the VM's `/dev` with
/// the first device of the group that it unplugs.
fn as_opened(target: &Path) -> PathBuf {
    target.to_str().and_then(|target| target.strip_suffix(" (deleted)")).map_or(target, Path::new).to_owned()
}

/// Tests for vDPA devices, by the name that the kernel gives them (drivers/vhost/vdpa.c).
fn is_vdpa(target: &Path) -> bool {
    is_short(target) && target.to_str().is_some_and(|target| target.starts_with("/dev/vhost-vdpa-"))
}

fn is_short(target: &Path) -> bool {
    target.as_os_str().len() <= LONGEST_VFIO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_none_of_vfio() {
        for path in ["/dev/vfio/12", "/dev/vfio/noiommu-4294967295", "/dev/vfio/devices/vfio2147483647"] {
            assert!(is_vfio(Path::new(path)), "{path}");
        }
        for path in ["/dev/vfio/vfio", "/dev/vfiox", &format!("/dev/vfio/{}", "1".repeat(1000))] {
            assert!(!is_vfio(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_group_stays_open_when_its_file_is_removed() {
        let links = [(3, PathBuf::from("/dev/vfio/12 (deleted)")), (4, PathBuf::from("/dev/vfio/13"))];
        let vfio = Descriptors::among(&links).vfio;
        assert_eq!(vfio, ["/dev/vfio/12", "/dev/vfio/13"].map(PathBuf::from));
    }

    #[test]
    fn vdpa_devices_are_seen_beside_those_of_vfio() {
        let has_vdpa = |paths: &[&str]| {
            let links: Vec<_> = paths.iter().map(|path| (3, PathBuf::from(path))).collect();
            Descriptors::among(&links).has_vdpa
        };
        assert!(has_vdpa(&["/dev/vhost-vdpa-0", "/dev/vfio/12"]));
        assert!(!has_vdpa(&["/dev/vfio/12", "anon_inode:kvm-vm"]));
    }
}
