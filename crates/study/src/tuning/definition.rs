//! A guest's definition as lines that can be compared.

use super::step::Best;
use crate::factor::Level;
use guests::{GuestPlan, qemu_definition};

/// The settings of the host, then the definition of the first guest: QEMU's command line with one option per line, or
/// the plan's table if the guests are not started by QEMU here.
pub(super) fn definition(best: &Best) -> Vec<String> {
    let mut lines = of_host(&best.host);
    match &best.guests {
        GuestPlan::Qemu(plan) => lines.extend(qemu_definition(plan)),
        other => lines.extend(toml::to_string(other).unwrap_or_default().lines().map(str::to_owned)),
    }
    lines
}

fn of_host(level: &Level) -> Vec<String> {
    let mut lines = Vec::new();
    for (module, parameters) in &level.module_parameters {
        lines.extend(parameters.iter().map(|(name, value)| format!("host: options {module} {name}={value}")));
    }
    lines.extend(level.files.iter().map(|(path, value)| format!("host: {path} = {value}")));
    lines.extend(level.kernel_settings.iter().map(|(name, value)| format!("host: sysctl {name}={value}")));
    if let Some(frequency) = &level.frequency {
        let settings = toml::to_string(frequency).unwrap_or_default();
        lines.extend(settings.lines().map(|line| format!("host: frequency {line}")));
    }
    lines.extend(level.commands.iter().map(|pair| format!("host: {}", pair.before.replace('\n', "; "))));
    lines
}
