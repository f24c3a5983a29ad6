//! Names and shares of advice, the same in every medium.

use advice::Of;
use exits::Access;

/// The name of a row.
pub(crate) fn name(of: Of<'_>) -> String {
    match of {
        Of::Device(device) => device.name.clone(),
        Of::UnknownAccess(Access::Port { port, .. }) => format!("unknown device, port {port:#x}"),
        Of::UnknownAccess(Access::Mmio { address, .. } | Access::FastMmio { address }) => {
            format!("unknown device, {address:#x}")
        }
        Of::UnknownAccess(Access::Msr { number, .. }) => format!("unknown MSR {number:#x}"),
        Of::UnknownAccess(_) => "unknown device, accesses not kept apart".to_owned(),
        Of::UnknownReason(reason) => format!("unknown reason {reason}"),
    }
}

pub(crate) fn per_second(exits: u64, observed_ns: u64) -> Option<f64> {
    (observed_ns > 0).then(|| exits as f64 / observed_ns as f64 * 1e9)
}

/// The time in percent of one CPU.
pub(crate) fn percent(time_ns: u64, observed_ns: u64) -> Option<f64> {
    (observed_ns > 0).then(|| time_ns as f64 / observed_ns as f64 * 100.0)
}
