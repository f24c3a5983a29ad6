//! Facts of a guest that is reached by scripts only.

use std::collections::BTreeMap;
use std::time::Duration;

use super::GuestError;
use crate::Output;

const SCRIPT: &str = "echo \"kernel=$(uname -r)\"; \
    echo \"CPU model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)\"; \
    echo \"clock source=$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)\"";
const LIMIT: Duration = Duration::from_secs(60);

/// The facts that the guest reports. A guest that reports none fails elsewhere with a better reason.
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
