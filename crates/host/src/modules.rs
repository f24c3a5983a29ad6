//! Loaded kernel modules and their parameters.

use crate::facts::under;
use std::collections::BTreeMap;
use std::path::Path;

/// Parameters of one module, name to value as sysfs prints it. `None` is a value that may not be read.
pub type Parameters = BTreeMap<String, Option<String>>;

/// The parameters of a module, `None` when it is not loaded (or built in without parameters).
pub(crate) fn parameters(root: &Path, module: &str) -> Option<Parameters> {
    let home = under(root, &format!("/sys/module/{module}"));
    if !home.is_dir() {
        return None;
    }
    let mut parameters = Parameters::new();
    // A module without parameters has no such directory; it is loaded all the same.
    for entry in std::fs::read_dir(home.join("parameters")).into_iter().flatten().flatten() {
        let value = std::fs::read(entry.path()).ok();
        let value = value.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        parameters.insert(entry.file_name().to_string_lossy().into_owned(), value);
    }
    Some(parameters)
}
