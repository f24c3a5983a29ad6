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

/// The file of a module's parameter.
#[must_use]
pub fn parameter_path(module: &str, name: &str) -> String {
    format!("/sys/module/{module}/parameters/{name}")
}

/// Parameters of the vendor modules whose variables are in `kvm`. A vendor module that is loaded without APICv or AVIC clears
/// them, and they stay cleared at later loads unless the parameter is passed (Linux 6.16 and later, arch/x86/kvm/x86.c,
/// `enable_ipiv` and `enable_device_posted_irqs`; svm/avic.c, `avic_hardware_setup`).
pub const KEPT_BY_KVM: [&str; 2] = ["enable_ipiv", "enable_device_posted_irqs"];

/// A boolean parameter, as the kernel prints it and people write it (lib/kstrtox.c, `kstrtobool`); `None` for other text.
#[must_use]
pub fn switch(value: &str) -> Option<bool> {
    // The kernel checks only the first letters; these are the words that people use.
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "t" | "true" | "on" => Some(true),
        "0" | "n" | "no" | "f" | "false" | "off" => Some(false),
        _ => None,
    }
}
