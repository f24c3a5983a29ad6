//! A level of a factor in a plan.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FrequencyLevel, Inhibit, Setting};
use crate::Span;

/// One level of a factor: the changes of the host and of the guests while it is in force. All are optional; a
/// level without changes is the host as it is.
///
/// Changes of the host are made before the arm's guests start, in this order: module parameters, files,
/// kernel settings, frequency, commands. They are undone in reverse order after the guests have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Its name in results.
    pub name: String,
    /// Parameters of kernel modules by module: { kvm_intel = { enable_apicv = "N" } }. A module with other
    /// values that cannot be written while it is loaded is loaded again with these; no VM may run then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub module_parameters: BTreeMap<String, BTreeMap<String, Setting>>,
    /// Values written to existing files of sysfs, procfs or control groups, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Setting>,
    /// Kernel settings by their sysctl names: { "kernel.numa_balancing" = 0 }.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernel_settings: BTreeMap<String, Setting>,
    /// Frequencies or a governor for CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<FrequencyLevel>,
    /// Other changes, as pairs of shell commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandPair>,
    /// Interrupt virtualization of the micro VM (tool "probe"), which switches it for itself only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_virtualization: Option<Switch>,
    /// The method that makes KVM inhibit interrupt virtualization for each QEMU guest, or "none". Checked
    /// while the guests run: a run that contradicts it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inhibit: Option<Inhibit>,
    /// Settings of the plan's `[guests]` table that this level replaces.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub guests: toml::Table,
}

/// A shell command, and the command that undoes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandPair {
    /// Run with `sh -c` when the level is applied; the study stops if its status is not 0.
    pub before: String,
    /// Run when the level ends in any way, also by `exitless restore`: it must do no harm when it is run
    /// twice, or when the other command did not run.
    pub after: String,
    /// The time limit of each command; processes that it leaves running are not waited for.
    #[serde(default = "command_limit", skip_serializing_if = "is_command_limit")]
    pub limit: Span,
}

fn command_limit() -> Span {
    Span::seconds(300)
}

/// Omits the default, so that plans from before the limit existed serialize as before.
fn is_command_limit(limit: &Span) -> bool {
    *limit == command_limit()
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// A level that cannot be applied on any host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Level {level:?}: {what} is {found:?}, expected {expected}")]
pub struct BadLevel {
    level: String,
    what: String,
    found: String,
    expected: &'static str,
}

impl Level {
    /// The settings to merge over the plan's table `[guests]`: those of [`Self::inhibit`], overridden by
    /// [`Self::guests`].
    #[must_use]
    pub(crate) fn guest_settings(&self) -> toml::Table {
        let mut settings = self.inhibit.map(Inhibit::guest_settings).unwrap_or_default();
        settings.extend(self.guests.clone());
        settings
    }

    /// Tests whether it changes the host, and not only guests.
    pub(crate) fn changes_host(&self) -> bool {
        !self.module_parameters.is_empty()
            || !self.files.is_empty()
            || !self.kernel_settings.is_empty()
            || self.frequency.is_some()
            || !self.commands.is_empty()
    }

    /// The module parameters that it sets, by name or as files: each with its module.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.module_parameters.iter().flat_map(|(module, parameters)| {
            parameters.keys().map(move |name| (module.as_str(), name.as_str()))
        });
        let paths = self.files.keys();
        named.chain(paths.filter_map(|path| path.strip_prefix("/sys/module/")?.split_once("/parameters/")))
    }

    /// Checks names and paths, beyond what the types guarantee.
    ///
    /// # Errors
    /// [`BadLevel`] for the first fault.
    pub fn check(&self) -> Result<(), BadLevel> {
        let bad = |what: &str, found: &str, expected| BadLevel {
            level: self.name.clone(),
            what: what.to_owned(),
            found: found.to_owned(),
            expected,
        };
        for (module, parameters) in &self.module_parameters {
            if !is_word(module) {
                return Err(bad("a module", module, "a name as in /sys/module, with letters, digits and _"));
            }
            if let Some(name) = parameters.keys().find(|name| !is_word(name)) {
                return Err(bad(&format!("a parameter of {module}"), name, "letters, digits and _"));
            }
            let blank = |value: &&Setting| value.to_string().contains(char::is_whitespace);
            if let Some(value) = parameters.values().find(blank) {
                return Err(bad(&format!("a value of {module}"), &value.to_string(), "no blanks"));
            }
        }
        let places = ["/sys/", "/proc/"];
        if let Some(path) = self.files.keys().find(|path| {
            !places.iter().any(|place| path.starts_with(place)) || path.split('/').any(|part| part == "..")
        }) {
            return Err(bad("a file", path, "a path below /sys or /proc; for others use commands"));
        }
        if let Some(name) = self.kernel_settings.keys().find(|name| setting_path(name).is_none()) {
            return Err(bad("a kernel setting", name, "a name such as kernel.numa_balancing"));
        }
        if let Some(cpus) = self.frequency.as_ref().and_then(|frequency| frequency.cpus.as_ref())
            && host::CpuSet::parse(cpus).is_none_or(|set| set.is_empty() || set.count() > 8192)
        {
            return Err(bad("frequency.cpus", cpus, "a list of CPUs such as 0-3,8"));
        }
        if let Some(FrequencyLevel { minimum: Some(minimum), maximum: Some(maximum), .. }) = &self.frequency
            && minimum > maximum
        {
            return Err(bad("frequency.minimum", &minimum.to_string(), "no more than the maximum"));
        }
        let empty = |pair: &&CommandPair| pair.before.trim().is_empty() || pair.after.trim().is_empty();
        match self.commands.iter().find(empty) {
            Some(pair) => Err(bad("a command", &pair.before, "a command and one that takes it back")),
            None => Ok(()),
        }
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The file of a kernel setting: `net.core.rmem_max` is `/proc/sys/net/core/rmem_max`. Names with slashes are
/// not converted, because their parts may contain dots (sysctl(8)).
pub(super) fn setting_path(name: &str) -> Option<String> {
    let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    let plain = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    plain.then(|| format!("/proc/sys/{path}"))
}

#[cfg(test)]
#[path = "level_tests.rs"]
mod tests;
