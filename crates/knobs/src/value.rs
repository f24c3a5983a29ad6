//! The kernel's values: files of sysfs, procfs and control groups.

use crate::{Error, cut_short};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// The value in the file. From a list of choices (`none [mq-deadline] kyber`) it is the selected one, because that is
/// what one writes to such a file.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).map_err(Error::access("read", path))?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Ok(chosen.map_or_else(|| text.clone(), str::to_owned))
}

pub(crate) fn write(path: &Path, value: &str) -> Result<(), Error> {
    cut_short::here()
        .and_then(|()| OpenOptions::new().write(true).truncate(true).open(path))
        // One write: the kernel takes each as a value of its own.
        .and_then(|mut file| file.write_all(format!("{value}\n").as_bytes()))
        .map_err(Error::access("write", path))
}

/// Writes the former value.
///
/// The kernel does not accept an empty list of CPUs for a control group that has threads (`validate_change` in
/// kernel/cgroup/cpuset.c): it fails with ENOSPC. In that case write all CPUs of the parent group, which an empty list
/// stands for.
pub(crate) fn write_back(path: &Path, old: &str) -> Result<(), Error> {
    let written = write(path, old);
    let above = path.parent().and_then(Path::parent).map(|group| group.join("cpuset.cpus.effective"));
    match (&written, above) {
        (Err(Error::Access { source, .. }), Some(above))
            if old.is_empty()
                && path.ends_with("cpuset.cpus")
                && source.kind() == std::io::ErrorKind::StorageFull =>
        {
            write(path, &read(&above)?)
        }
        _ => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_one_of_several_is_the_value() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("scheduler");
        for (text, value) in
            [("none [mq-deadline] kyber\n", "mq-deadline"), ("Y\n", "Y"), ("0-3,6\n", "0-3,6")]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap(), value);
        }
    }

    #[test]
    fn a_file_that_the_kernel_does_not_have_is_not_made() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("avic");
        assert!(write(&path, "1").unwrap_err().to_string().contains("it is not there"));
        assert!(!path.exists());
    }
}
