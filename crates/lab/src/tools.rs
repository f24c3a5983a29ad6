//! Runs Debian's programs from an unpacked tree on any host, with the tree's own dynamic loader and
//! libraries. So the host's distribution does not matter, and chroot(2) is not needed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The folder of libraries in Debian's amd64 packages.
pub(crate) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A program and its arguments, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<std::ffi::OsString>,
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
}

impl Invocation {
    /// A program of this machine.
    pub(crate) fn of_host(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// A program of an unpacked tree.
    pub(crate) fn of_tree(root: &Path, program: &str) -> Self {
        let libraries = root.join(LIBRARIES);
        let mut invocation = Self::of_host(libraries.join("ld-linux-x86-64.so.2"));
        invocation.arg("--library-path").arg(&libraries).arg(root.join(program));
        invocation
    }

    pub(crate) fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args<S: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = S>) -> &mut Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(&mut self, name: &'static str, value: impl Into<PathBuf>) -> &mut Self {
        self.environment.push((name, value.into()));
        self
    }

    /// The command with a wrapper in front that executes it in the same process.
    pub(crate) fn command_under(&self, wrapper: &[&str]) -> std::process::Command {
        let mut words = wrapper.iter().map(OsStr::new).chain([self.program.as_os_str()]);
        let first = words.next().unwrap_or_default();
        let mut command = std::process::Command::new(first);
        command
            .args(words)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}
