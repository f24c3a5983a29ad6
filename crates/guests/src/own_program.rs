//! The file of this program, for steps and daemons that it starts.

use std::path::PathBuf;

/// The path at which child processes of this process find its program. A package may replace the file while a study runs;
/// then the path is the kernel's, which leads to the same version to the end. It is only the second choice, because a child
/// process needs the capabilities of this one to follow it (ptrace(2)), and does not inherit those of a file.
pub fn own_program() -> PathBuf {
    found(std::env::current_exe().ok())
}

/// The path if it exists: that of a removed file ends with ` (deleted)` (proc_pid_exe(5)).
fn found(path: Option<PathBuf>) -> PathBuf {
    let kernels = || format!("/proc/{}/exe", std::process::id()).into();
    path.filter(|path| path.exists()).unwrap_or_else(kernels)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_whose_file_was_replaced_is_found_by_its_child_processes() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(found(Some(own.clone())), own);
        let removed = PathBuf::from(format!("{} (deleted)", own.display()));
        for path in [Some(removed), None] {
            let found = found(path);
            assert!(found.starts_with("/proc"), "{}", found.display());
            let listed = Command::new("sh").args(["-c", "\"$0\" --list"]).arg(&found).output().unwrap();
            let names = String::from_utf8_lossy(&listed.stdout);
            assert!(names.contains("own_program::tests::a_program"), "{listed:?}");
        }
    }
}
