//! The threads of a process.

use crate::Error;
use std::path::Path;

/// The threads of process `pid` on the host below `root`, ascending.
///
/// Any thread of a VMM that calls into KVM can change inhibit reasons, so a VM is fully covered only if all of its
/// threads are counted.
///
/// # Errors
/// [`Error::Read`] if the process has ended or may not be inspected.
pub fn threads_of(root: &Path, pid: i32) -> Result<Vec<i32>, Error> {
    host::scheduling::threads(root, pid).map_err(|source| Error::Read {
        path: root.join(format!("proc/{pid}/task")),
        expected: "one directory for each thread of a running process",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_order() {
        let root = tempfile::tempdir().unwrap();
        for thread in ["12", "9", "odd"] {
            std::fs::create_dir_all(root.path().join("proc/9/task").join(thread)).unwrap();
        }
        assert_eq!(threads_of(root.path(), 9).unwrap(), [9, 12]);
        assert!(matches!(threads_of(root.path(), 10), Err(Error::Read { .. })));
    }
}
