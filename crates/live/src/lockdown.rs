//! Kernel lockdown, which can keep even root from KVM's events.

use std::path::Path;

use crate::Error;

/// Confidentiality mode forbids eBPF programs to read the kernel's memory (include/linux/security.h,
/// `LOCKDOWN_BPF_READ_KERNEL`), and tracefs has no files (`LOCKDOWN_TRACEFS`). Linux 5.4 nevertheless loads the programs: all
/// that they read is zero then, so they must not be tried.
///
/// # Errors
/// [`Error::LockedDown`].
pub(crate) fn check(root: &Path) -> Result<(), Error> {
    let modes = std::fs::read_to_string(root.join("sys/kernel/security/lockdown")).unwrap_or_default();
    if modes.contains("[confidentiality]") { Err(Error::LockedDown) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    /// A host in this mode, with an empty tracefs.
    pub(crate) fn host(modes: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["sys/kernel/security", "sys/kernel/tracing"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("sys/kernel/security/lockdown"), modes).unwrap();
        root
    }

    #[test]
    fn only_confidentiality_mode_forbids_to_read_the_kernel() {
        for modes in ["[none] integrity confidentiality\n", "none [integrity] confidentiality\n"] {
            assert!(check(host(modes).path()).is_ok(), "{modes}");
        }
        let error = check(host("none integrity [confidentiality]\n").path()).unwrap_err();
        assert!(matches!(error, Error::LockedDown));
        assert!(check(Path::new("/nowhere")).is_ok());
    }
}
