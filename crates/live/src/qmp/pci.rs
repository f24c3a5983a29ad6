//! A VM's PCI devices and their addresses, from QEMU's `query-pci` (qapi/pci.json of QEMU).

use super::{Monitor, QmpError};
use host::pci::Bar;
use host::vms::{MonitorUse, Vm};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::Path;
use std::time::Duration;

/// The deepest nesting of bridges that is followed; there are only 256 bus numbers.
const DEEPEST: usize = 32;

/// The reason why a VM's PCI devices could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PciError {
    /// There is no monitor to ask.
    #[error("QEMU has no monitor that is free to be asked; add `-qmp unix:PATH,server=on,wait=off`")]
    NoMonitor,
    /// The monitor did not answer.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// The answer has an unexpected form.
    #[error("The answer of QEMU to `query-pci` is not as documented")]
    Answer(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Bus {
    bus: i64,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    slot: i64,
    function: i64,
    class_info: Class,
    id: Identity,
    #[serde(default)]
    qdev_id: String,
    #[serde(default)]
    regions: Vec<Region>,
    pci_bridge: Option<Bridge>,
}

#[derive(Deserialize)]
struct Class {
    class: i64,
}

#[derive(Deserialize)]
struct Identity {
    vendor: i64,
    device: i64,
}

#[derive(Deserialize)]
struct Region {
    bar: i64,
    #[serde(rename = "type")]
    kind: String,
    /// -1 if the guest did not assign one.
    address: i64,
    size: i64,
}

#[derive(Deserialize)]
struct Bridge {
    bus: BridgeBus,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct BridgeBus {
    secondary: i64,
}

/// Asks the first of the VM's monitors that answers within its share of `timeout`. The host's `/proc` is below `root`.
///
/// # Errors
/// [`PciError`]
pub fn pci_bars(root: &Path, vm: &Vm, timeout: Duration) -> Result<Vec<Bar>, PciError> {
    let open = vm.monitors.iter().filter(|one| one.used == MonitorUse::Open);
    let paths: Vec<&str> = open.filter_map(|one| one.path.as_deref()).collect();
    let share = timeout / u32::try_from(paths.len().max(1)).unwrap_or(u32::MAX);
    let mut failure = PciError::NoMonitor;
    for path in paths {
        match Monitor::of_process(root, vm.pid, path, share).and_then(ask) {
            Ok(answer) => return bars(answer.get()),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

fn ask(mut monitor: Monitor) -> Result<Box<RawValue>, QmpError> {
    monitor.ask("query-pci", None)
}

/// The regions that have an address, on all buses.
fn bars(answer: &str) -> Result<Vec<Bar>, PciError> {
    let buses: Vec<Bus> = serde_json::from_str(answer)?;
    let mut found = Vec::new();
    for bus in &buses {
        of_devices(bus.bus, &bus.devices, DEEPEST, &mut found);
    }
    found.sort_unstable();
    Ok(found)
}

fn of_devices(bus: i64, devices: &[Device], deeper: usize, found: &mut Vec<Bar>) {
    for device in devices {
        let one = |region: &Region| {
            Some(Bar {
                address: format!("{bus:02x}:{:02x}.{:x}", device.slot, device.function),
                id: device.qdev_id.clone(),
                vendor: u16::try_from(device.id.vendor).ok()?,
                device: u16::try_from(device.id.device).ok()?,
                class: u16::try_from(device.class_info.class).ok()?,
                number: u8::try_from(region.bar).ok()?,
                is_ports: region.kind == "io",
                start: u64::try_from(region.address).ok()?,
                size: u64::try_from(region.size).ok().filter(|&size| size > 0)?,
            })
        };
        found.extend(device.regions.iter().filter_map(one));
        if let Some(bridge) = device.pci_bridge.as_ref().filter(|_| deeper > 0) {
            of_devices(bridge.bus.secondary, &bridge.devices, deeper - 1, found);
        }
    }
}

#[cfg(test)]
#[path = "pci_tests.rs"]
mod tests;
