//! The line above a title: the host and the time.

use host::Fingerprint;

use crate::format::counted;

/// CPU model, number of CPUs and kernel of a host, as far as they are known.
pub(crate) fn machine(fingerprint: &Fingerprint) -> Vec<String> {
    let model = fingerprint.cpu.as_ref().and_then(|cpu| cpu.name.clone());
    let cpus = fingerprint.online_cpus.map(|count| counted(count.into(), "CPU"));
    let kernel = fingerprint.kernel_release.as_ref().map(|release| format!("Linux {release}"));
    [model, cpus, kernel].into_iter().flatten().collect()
}

/// A date and time: "2025-06-15 15:06:40 UTC".
pub(crate) fn when(seconds: u64) -> String {
    // The formatter only accepts dates up to the year 9999.
    const LAST: u64 = 253_402_300_799;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.min(LAST));
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', " UTC")
}
