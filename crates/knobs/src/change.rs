//! The changes that can be made, and the state that is kept of each to undo it.

use crate::{Content, program};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// Parameters of a kernel module: names, and values as sysfs prints them. Unreadable ones are omitted.
pub type Parameters = BTreeMap<String, String>;

/// One change of the host. Paths are those of a running host (`/etc/modprobe.d/exitless.conf`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Change {
    /// Replaces a file's content atomically. Creates missing directories.
    File {
        /// The file.
        path: String,
        /// The complete content.
        content: Content,
    },
    /// Writes a value to a file of the kernel: sysfs, procfs or a control group.
    Value {
        /// The file, which must exist.
        path: String,
        /// The text to write.
        value: String,
    },
    /// Loads a kernel module with these parameters, after removing it if it is loaded.
    Load {
        /// The module's name as in `/sys/module`.
        module: String,
        /// The parameters to pass; the others come from modprobe.d and the kernel's command line.
        parameters: Parameters,
    },
    /// Runs a program: one of those that exitless knows, or the script of a study's plan.
    ///
    /// Changes are undone in reverse. A program that generates files from others (`update-grub`) therefore needs
    /// two changes: one with only `undo` before the change of its input, and one with only `run` after it.
    Command {
        /// The command to run now, if any.
        run: Option<Vec<String>>,
        /// The command that undoes it. It must be harmless if it runs twice, or if `run` never ran.
        undo: Option<Vec<String>>,
    },
    /// Restricts a thread to these CPUs.
    Affinity {
        /// The thread.
        tid: i32,
        /// The thread's start time, in clock ticks since boot (proc_pid_stat(5), field 22), so that a later thread with
        /// the same ID is not changed.
        start_ticks: u64,
        /// CPUs in the kernel's list format: `0-3,6`.
        cpus: String,
    },
}

impl Change {
    /// Tests whether a reboot undoes the change.
    #[must_use]
    pub fn volatile(&self) -> bool {
        match self {
            Self::Value { .. } | Self::Load { .. } | Self::Affinity { .. } => true,
            Self::File { path, .. } => {
                ["/run/", "/sys/", "/proc/", "/dev/"].iter().any(|place| path.starts_with(place))
            }
            // Xen keeps the settings of xenpm only in memory.
            Self::Command { undo: Some(words), .. } => {
                words.first().is_some_and(|program| program == "xenpm")
            }
            Self::Command { .. } => false,
        }
    }

    /// Tests whether the change places a thread, a control group or an interrupt on CPUs.
    pub(crate) fn places(&self) -> bool {
        match self {
            Self::Affinity { .. } => true,
            Self::Value { path, .. } => {
                path.ends_with("/cpuset.cpus")
                    || path.starts_with("/proc/irq/") && path.ends_with("/smp_affinity_list")
            }
            _ => false,
        }
    }

    /// The script of a study's plan that undoing would run, if any. It may do anything.
    #[must_use]
    pub fn undone_by_script(&self) -> Option<&str> {
        match self {
            Self::Command { undo: Some(words), .. } => program::script(words),
            _ => None,
        }
    }

    /// Tests whether exitless supports the change; `Err` is the reason why not. Changes read from a journal pass the same
    /// check as requested ones.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::File { path, .. } if is_path(path) => Ok(()),
            Self::Value { path, .. }
                if is_path(path) && VALUES.iter().any(|place| path.starts_with(place)) =>
            {
                Ok(())
            }
            Self::File { path, .. } => {
                Err(format!("expected the absolute path of a file, without `..`, found `{path}`"))
            }
            Self::Value { path, .. } => Err(format!("expected a file below /sys or /proc, found `{path}`")),
            Self::Load { module, parameters } => {
                check_module(module)?;
                check_parameters(parameters)
            }
            Self::Command { run, undo } => {
                [run, undo].into_iter().flatten().try_for_each(|words| match program::is_known(words) {
                    true => Ok(()),
                    false => {
                        Err(format!("`{}` is not one of the programs that exitless runs", words.join(" ")))
                    }
                })
            }
            Self::Affinity { tid, cpus, .. } => match (*tid > 0, numbers(cpus)) {
                (true, Some(_)) => Ok(()),
                _ => Err(format!(
                    "expected a list of CPUs such as 0-3,6 and a thread, found `{cpus}` and {tid}"
                )),
            },
        }
    }
}

/// The directories of the kernel's values: sysfs (with the control groups) and procfs.
const VALUES: [&str; 2] = ["/sys/", "/proc/"];

/// Tests whether a path is absolute, names a file, and contains no `.` or `..` that could lead elsewhere.
pub(crate) fn is_path(path: &str) -> bool {
    let whole = Path::new(path);
    let plain = whole.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    whole.is_absolute() && plain && whole.file_name().is_some() && !path.contains('\0')
}

/// Refuses names that modprobe would take for an option, a path or a parameter.
fn check_module(module: &str) -> Result<(), String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !module.is_empty() && !module.starts_with('-') && module.bytes().all(is_word) {
        return Ok(());
    }
    Err(format!("`{module}` is not the name of a module; expected letters, digits, _ and -"))
}

pub(crate) fn check_parameters(parameters: &Parameters) -> Result<(), String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match parameters.keys().find(|name| name.is_empty() || !name.bytes().all(is_word)) {
        None => Ok(()),
        Some(name) => {
            Err(format!("`{name}` is not the name of a module's parameter; expected letters, digits and _"))
        }
    }
}

/// The numbers of a list as the kernel writes it (`0-3,6`); `None` for other text.
pub(crate) fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // Limit the total: a short text that repeats a range would make a huge list.
        if first > last || last >= CpuSet::MAX_CPU || cpus.len() + (last - first) >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The former state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The complete content.
    pub content: Content,
    /// Permission bits (inode(7)).
    pub mode: u32,
    /// The owner's user ID.
    pub user: u32,
    /// The group ID.
    pub group: u32,
}

/// The state before a change, as much as undoing it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Before {
    /// That of [`Change::File`].
    File {
        /// The file; `None` if it did not exist.
        file: Option<FileState>,
        /// The missing directories above the file, the outermost first.
        missing: Vec<String>,
    },
    /// That of [`Change::Value`].
    Value {
        /// The value before the change.
        value: String,
    },
    /// That of [`Change::Load`].
    Module {
        /// The parameters; `None` if the module was not loaded.
        parameters: Option<Parameters>,
    },
    /// That of [`Change::Affinity`].
    Affinity {
        /// CPUs as the kernel lists them.
        cpus: String,
        /// Whether it had all online CPUs that its control group allowed. Undoing then sets no limit.
        #[serde(default)]
        unlimited: bool,
    },
    /// That of a [`Change::Command`] whose result another program prints.
    Shown {
        /// The digest (SHA-256, hexadecimal) of its output.
        sha256: String,
    },
    /// That of any other [`Change::Command`]: only the command that undoes it is known.
    Unknown,
}

/// The result of a change, read back, because the kernel or a program may represent it differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum After {
    /// That of [`Change::Value`].
    Value {
        /// The value as the kernel prints it.
        value: String,
    },
    /// That of [`Change::Load`].
    Module {
        /// The parameters; `None` if the module is not loaded.
        parameters: Option<Parameters>,
    },
    /// That of a [`Change::Command`] whose result another program prints.
    Shown {
        /// The digest (SHA-256, hexadecimal) of its output.
        sha256: String,
    },
    /// That of the other changes, whose result is exactly as requested.
    AsAsked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_undoes_what_xen_or_the_kernel_keeps_in_memory() {
        let command = |line: &str| {
            let words = || Some(line.split(' ').map(str::to_owned).collect());
            Change::Command { run: words(), undo: words() }
        };
        assert!(command("xenpm set-scaling-governor 0 performance").volatile());
        assert!(!command("update-grub").volatile());
        let file = |path: &str| Change::File { path: path.to_owned(), content: "x".into() };
        for (path, volatile) in
            [("/run/x", true), ("/sys/x", true), ("/proc/x", true), ("/dev/x", true), ("/etc/x", false)]
        {
            assert_eq!(file(path).volatile(), volatile, "{path}");
        }
        assert!(Change::Value { path: "/sys/x".to_owned(), value: "1".to_owned() }.volatile());
        assert!(Change::Load { module: "kvm".to_owned(), parameters: Parameters::new() }.volatile());
        assert!(Change::Affinity { tid: 1, start_ticks: 1, cpus: "0".to_owned() }.volatile());
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(numbers("0-3,6"), Some(vec![0, 1, 2, 3, 6]));
        for bad in ["", "3-1", "a", "0,", "0-99999999999", "4294967295"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
        assert_eq!(numbers("0-1023").map(|cpus| cpus.len()), Some(1024));
        assert_eq!(numbers(&["0-1023"; 1000].join(",")), None);
    }
}
