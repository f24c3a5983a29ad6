//! The sections `[control]` and `[safety]`: the control endpoints of a running daemon, and the privileges that it keeps.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The default path of the control socket.
pub const SOCKET: &str = "/run/exitless/iocm.sock";
/// The default mount point of the control tree.
pub const MOUNT: &str = "/run/exitless/iocm";

/// The control socket and the mount of the control tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ControlConfig {
    /// The path of the socket; empty for none. The default is [`SOCKET`], if it can be created there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// The mount point of the tree; empty for none. The default is [`MOUNT`], if the host allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// The group whose members may use both, besides root and the daemon's user: a name or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl ControlConfig {
    /// The path of the socket, and `true` if the file names it.
    #[must_use]
    pub fn socket(&self) -> Option<(&Path, bool)> {
        said(self.socket.as_deref(), SOCKET)
    }

    /// The mount point of the tree, and `true` if the file names it.
    #[must_use]
    pub fn mount(&self) -> Option<(&Path, bool)> {
        said(self.mount.as_deref(), MOUNT)
    }
}

fn said<'a>(path: Option<&'a Path>, usual: &'static str) -> Option<(&'a Path, bool)> {
    match path {
        Some(path) if path.as_os_str().is_empty() => None,
        Some(path) => Some((path, true)),
        None => Some((Path::new(usual), false)),
    }
}

/// The privileges that a running daemon keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SafetyConfig {
    /// The user that it becomes once its files are open: a name or a number. By default root becomes the user
    /// `exitless`, if that user exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The capabilities that it keeps, such as `CAP_DAC_OVERRIDE`; none by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_capabilities: Vec<String>,
    /// The answer to a system call that the daemon does not need.
    #[serde(skip_serializing_if = "super::is_usual")]
    pub seccomp: Seccomp,
}

/// The answer to a system call that the daemon does not need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seccomp {
    /// The call fails with EPERM.
    #[default]
    Refuse,
    /// The kernel kills the daemon.
    Kill,
    /// No filter is installed.
    Off,
}
