//! Facts about a guest that has no agent of ours.

use std::collections::BTreeMap;
use std::time::Duration;

use super::GuestError;
use crate::Output;

const SCRIPT: &str = "echo \"kernel=$(uname -r)\"; \
    echo \"CPU model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)\"; \
    echo \"clock source=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)\"";
const LIMIT: Duration = Duration::from_secs(60);

/// The facts that a script reports; empty if it fails. A guest that cannot run scripts soon fails with a better
/// message.
pub(super) fn ask(
    run: impl FnOnce(&str, Duration) -> Result<Output, GuestError>,
) -> BTreeMap<String, String> {
    let Ok(output) = run(SCRIPT, LIMIT) else { return BTreeMap::new() };
    let lines = output.stdout.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
