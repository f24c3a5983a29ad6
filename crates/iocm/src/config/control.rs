//! Where a daemon can be looked at and changed while it runs, and what it may do.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Where the control socket is, unless it is said.
pub const SOCKET: &str = "/run/exitless/iocm.sock";
/// Where the control tree is mounted, unless it is said.
pub const MOUNT: &str = "/run/exitless/iocm";

/// Where a daemon can be looked at and changed while it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ControlConfig {
    /// The socket; an empty one for none. Unless it is said, it is [`SOCKET`] where that can be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Where the tree is mounted; an empty one for nowhere. Unless it is said, it is [`MOUNT`] where that can be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// The group whose members may use both, beside root and the daemon's user: a name or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl ControlConfig {
    /// Where the socket shall be, and whether that was said.
    #[must_use]
    pub fn socket(&self) -> Option<(&Path, bool)> {
        said(self.socket.as_deref(), SOCKET)
    }

    /// Where the tree shall be mounted, and whether that was said.
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

/// What a daemon may do once it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SafetyConfig {
    /// Whom it becomes after it has opened what its file names: a name or a number. Unless it is said, root becomes the user
    /// `exitless` where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Capabilities that it keeps, such as `CAP_DAC_OVERRIDE`; it keeps none unless it is said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_capabilities: Vec<String>,
    /// What becomes of a system call that it has no use for.
    #[serde(skip_serializing_if = "super::is_usual")]
    pub seccomp: Seccomp,
}

/// What becomes of a system call that the daemon has no use for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seccomp {
    /// It fails with EPERM.
    #[default]
    Refuse,
    /// It ends the daemon.
    Kill,
    /// It is made.
    Off,
}
