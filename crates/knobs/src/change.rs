//! The changes that can be made, and what is kept of each so that it can be undone.

use crate::{Content, program};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// Parameters of a kernel module, name to value as sysfs prints it. Those that may not be read are left out.
pub type Parameters = BTreeMap<String, String>;

/// One change of the host. Paths are those of a running host (`/etc/modprobe.d/exitless.conf`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Change {
    /// A file gets this content at once, or goes when there is none. Directories that lack are made.
    File {
        /// The file.
        path: String,
        /// All its bytes.
        content: Option<Content>,
    },
    /// A value is written to a file of the kernel: sysfs, procfs or a control group.
    Value {
        /// The file, which must be there.
        path: String,
        /// The text that is written.
        value: String,
    },
    /// A kernel module is loaded with these parameters; one that is loaded is removed first.
    Load {
        /// The module's name as in `/sys/module`.
        module: String,
        /// The parameters that are given; the others are as modprobe.d and the kernel's command line say.
        parameters: Parameters,
    },
    /// A kernel module is removed.
    Unload {
        /// The module's name as in `/sys/module`.
        module: String,
    },
    /// A program is run: one of those that exitless knows, or the script of a study's plan.
    ///
    /// Changes are undone in reverse. A program that works out files from others (`update-grub`) is therefore named
    /// twice: with only `undo` before the change of its input, and with only `run` after it.
    Command {
        /// The command that is run now; nothing when there is none.
        run: Option<Vec<String>>,
        /// The command that undoes it; it must do no harm when it is run twice, or when `run` never was.
        undo: Option<Vec<String>>,
    },
    /// A thread may run on these CPUs only.
    Affinity {
        /// The thread.
        tid: i32,
        /// When it started, in clock ticks since boot (proc_pid_stat(5), field 22): another thread that gets its number
        /// later is not touched.
        start_ticks: u64,
        /// CPUs as the kernel lists them: `0-3,6`.
        cpus: String,
    },
}

impl Change {
    /// Tests whether the next boot undoes it anyway.
    #[must_use]
    pub fn volatile(&self) -> bool {
        match self {
            Self::Value { .. } | Self::Load { .. } | Self::Unload { .. } | Self::Affinity { .. } => true,
            Self::File { path, .. } => {
                ["/run/", "/sys/", "/proc/", "/dev/"].iter().any(|place| path.starts_with(place))
            }
            // Xen keeps what xenpm sets in its memory.
            Self::Command { undo: Some(words), .. } => {
                words.first().is_some_and(|program| program == "xenpm")
            }
            Self::Command { .. } => false,
        }
    }

    /// Tests whether undoing it runs the script of a study's plan, which may be anything.
    #[must_use]
    pub fn undone_by_script(&self) -> Option<&str> {
        match self {
            Self::Command { undo: Some(words), .. } => program::script(words),
            _ => None,
        }
    }

    /// Tests whether exitless makes such a change; `Err` says why it does not. What a journal says is looked at with the same
    /// eyes as what is asked for.
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
            Self::Unload { module } => check_module(module),
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

/// The places of the kernel's values: sysfs with the control groups, and procfs.
const VALUES: [&str; 2] = ["/sys/", "/proc/"];

/// A path from the root that leads nowhere else.
pub(crate) fn is_path(path: &str) -> bool {
    let whole = Path::new(path);
    let plain = whole.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    whole.is_absolute() && plain && whole.file_name().is_some() && !path.contains('\0')
}

/// modprobe takes words with a dash, a slash or a `=` for something else than a module.
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
        // A range that comes again and again is a short text and a long list.
        if first > last || last >= CpuSet::MAX_CPU || cpus.len() + (last - first) >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// A file as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// All its bytes.
    pub content: Content,
    /// Permission bits (inode(7)).
    pub mode: u32,
    /// The owner's number.
    pub user: u32,
    /// The group's number.
    pub group: u32,
}

/// The state before a change, as far as it takes to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Before {
    /// That of [`Change::File`].
    File {
        /// The file; `None` when there was none.
        file: Option<FileState>,
        /// Directories above it that were not there, the outermost first.
        missing: Vec<String>,
    },
    /// That of [`Change::Value`].
    Value {
        /// The kernel's error.
        value: String,
    },
    /// That of [`Change::Load`] and [`Change::Unload`].
    Module {
        /// The parameters; `None` when the module was not loaded.
        parameters: Option<Parameters>,
    },
    /// That of [`Change::Affinity`].
    Affinity {
        /// CPUs as the kernel lists them.
        cpus: String,
    },
    /// That of a [`Change::Command`] of whose work another program shows the result.
    Shown {
        /// The digest (SHA-256, hexadecimal) of what it showed.
        sha256: String,
    },
    /// That of another [`Change::Command`], of which only the inverse is known.
    Unknown,
}

/// The result of a change, read back from the kernel, for changes that the kernel may answer in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum After {
    /// That of [`Change::Value`].
    Value {
        /// The kernel's words.
        value: String,
    },
    /// That of [`Change::Load`] and [`Change::Unload`].
    Module {
        /// The parameters; `None` when it is not loaded.
        parameters: Option<Parameters>,
    },
    /// That of a [`Change::Command`] of whose work another program shows the result.
    Shown {
        /// The digest (SHA-256, hexadecimal) of what it showed.
        sha256: String,
    },
    /// That of the other changes, which are as they were asked for.
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
        let file = |path: &str| Change::File { path: path.to_owned(), content: None };
        assert!(file("/run/x").volatile() && !file("/etc/x").volatile());
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
