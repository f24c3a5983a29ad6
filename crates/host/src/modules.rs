//! Loaded kernel modules and their parameters.

use crate::Root;
use std::collections::BTreeMap;

/// Intel's vendor module.
pub const INTEL: &str = "kvm_intel";
/// AMD's vendor module.
pub const AMD: &str = "kvm_amd";

/// Parameters of one module: names and values as in sysfs. `None` is a value that cannot be read.
pub type Parameters = BTreeMap<String, Option<String>>;

/// The parameters of a module; `None` if it is not loaded (or built in without parameters).
pub(crate) fn parameters(root: &Root, module: &str) -> Option<Parameters> {
    let home = format!("/sys/module/{module}");
    if !root.is_directory(&home) {
        return None;
    }
    let home = format!("{home}/parameters");
    let mut parameters = Parameters::new();
    // A module without parameters has no such directory, although it is loaded.
    for name in root.entries(&home, |_| true).unwrap_or_default() {
        let value = root.read(&format!("{home}/{name}")).ok();
        let value = value.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        parameters.insert(name, value);
    }
    Some(parameters)
}

/// A boolean parameter, as `param_get_bool` of `kernel/params.c` prints it and people write it; `None` for other text.
#[must_use]
pub fn switch(value: &str) -> Option<bool> {
    match value.trim() {
        "Y" | "y" | "1" => Some(true),
        "N" | "n" | "0" => Some(false),
        _ => None,
    }
}
