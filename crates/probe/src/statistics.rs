//! KVM's own counts for our vCPUs and the VM.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use vmm_sys_util::ioctl::ioctl;

pub use host::kvm_statistics::{
    Descriptor, Header, Kind, StatisticsError, StatisticsFile, parse_descriptors, parse_header,
};

// kvm-ioctls has no wrapper for KVM_GET_STATS_FD.
mod request {
    #![allow(missing_docs, reason = "the macro writes a function without documentation")]
    vmm_sys_util::ioctl_io_nr!(KVM_GET_STATS_FD, kvm_bindings::KVMIO, 0xce);
}

/// The statistics of the vCPU or VM behind `fd`; the kernel must have KVM_CAP_BINARY_STATS_FD.
pub(crate) fn open(fd: &impl AsRawFd) -> Result<StatisticsFile, StatisticsError> {
    // SAFETY: the ioctl takes no argument and touches no memory of this process; on any file that is not
    // KVM's it fails.
    let stats = unsafe { ioctl(fd, request::KVM_GET_STATS_FD()) };
    if stats < 0 {
        return Err(StatisticsError::Read {
            what: "file descriptor of the statistics",
            source: io::Error::last_os_error(),
        });
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows its number.
    let file = unsafe { File::from_raw_fd(stats) };
    StatisticsFile::new(file)
}

/// The exits of all vCPUs of a VM from its debugfs file, for kernels without binary statistics.
pub(crate) fn exits_in(file: &Path) -> Result<BTreeMap<String, u64>, StatisticsError> {
    let exits = std::fs::read_to_string(file).and_then(|text| text.trim().parse().map_err(io::Error::other));
    let exits = exits.map_err(|source| StatisticsError::Read { what: "exits in debugfs", source })?;
    Ok(BTreeMap::from([("exits".to_owned(), exits)]))
}

/// Adds the difference of `after` and `before` to `sum`.
pub(crate) fn add_difference(
    sum: &mut BTreeMap<String, u64>,
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) {
    for (name, value) in after {
        let earlier = before.get(name).copied().unwrap_or(0);
        *sum.entry(name.clone()).or_default() += value.saturating_sub(earlier);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exits_of_a_vm_are_read_from_debugfs() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "4217\n").unwrap();
        assert_eq!(exits_in(file.path()).unwrap(), BTreeMap::from([("exits".to_owned(), 4217)]));
        std::fs::write(file.path(), "").unwrap();
        assert!(exits_in(file.path()).unwrap_err().to_string().contains("debugfs"));
    }

    #[test]
    fn differences_add_up_and_never_go_below_zero() {
        let map = |values: &[(&str, u64)]| {
            values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<BTreeMap<_, _>>()
        };
        let mut sum = map(&[("exits", 5)]);
        add_difference(&mut sum, &map(&[("exits", 10), ("odd", 9)]), &map(&[("exits", 12), ("odd", 3)]));
        assert_eq!(sum, map(&[("exits", 7), ("odd", 0)]));
    }
}
