//! Devices that an emulated host can assign to its guests.

use crate::definition::Lab;
use crate::error::Error;
use crate::tools::Invocation;

/// A device behind a PCIe root port of its own, below the emulated IOMMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// An empty NVMe disk: reads return zeros, and writes are discarded.
    Nvme,
    /// An Intel 82576 network card with seven virtual functions (SR-IOV). It has no cable; its functions
    /// reach each other through the card's internal switch.
    Igb,
}

impl Device {
    /// Every device, in the order of the command's help.
    pub const ALL: [Self; 2] = [Self::Nvme, Self::Igb];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Igb => "igb",
        }
    }

    /// Adds the device behind the root port with this number.
    fn add(self, invocation: &mut Invocation, port: usize) {
        let bus = format!("port{port}");
        let root_port = format!("pcie-root-port,id={bus},bus=pcie.0,chassis={port},slot={port}");
        invocation.arg("-device").arg(root_port);
        match self {
            Self::Nvme => {
                // The latency is host time, and long enough for a waiting guest to go idle. It takes no
                // emulated time if all CPUs only wait.
                let disk = format!(
                    "driver=null-co,node-name=nvme{port},size=67108864,read-zeroes=on,latency-ns=1000000"
                );
                let controller = format!("nvme,serial=exitless,drive=nvme{port},bus={bus}");
                invocation.arg("-blockdev").arg(disk).arg("-device").arg(controller);
            }
            Self::Igb => {
                // A hub without another port: the card's cable is unplugged.
                invocation.arg("-netdev").arg(format!("hubport,id=net{port},hubid={port}"));
                invocation.arg("-device").arg(format!("igb,netdev=net{port},bus={bus},romfile="));
            }
        }
    }
}

/// Checks that the laboratory's machine can have these devices. Called before anything is downloaded.
///
/// # Errors
/// [`Error::NoDevices`].
pub(crate) fn require(lab: &Lab, devices: &[Device]) -> Result<(), Error> {
    if lab.can_have_devices() || devices.is_empty() {
        Ok(())
    } else {
        Err(Error::NoDevices { lab: lab.name })
    }
}

/// Adds devices, and the IOMMU that they need for assignment. It can post interrupts if the CPU has AVIC.
pub(crate) fn add(invocation: &mut Invocation, devices: &[Device], avic: bool) {
    if devices.is_empty() {
        return;
    }
    // Keep the firmware from looking for disks to boot: it would enable the NVMe controller, whose state
    // cannot be saved afterwards.
    invocation.args(["-boot", "strict=on"]);
    let posting = if avic { ",gapic=on" } else { "" };
    invocation.arg("-device").arg(format!("amd-iommu,intremap=on,irte-cache=on{posting}"));
    for (device, port) in devices.iter().zip(1..) {
        device.add(invocation, port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_a_port_of_its_own_below_the_iommu() {
        let arguments = |devices: &[Device], avic| {
            let mut invocation = Invocation::of_host("qemu");
            add(&mut invocation, devices, avic);
            let words: Vec<_> = invocation.arguments.iter().map(|word| word.to_string_lossy()).collect();
            words.join(" ")
        };
        assert_eq!(arguments(&[], true), "");
        let both = arguments(&[Device::Nvme, Device::Igb], true);
        for part in [
            "amd-iommu,intremap=on,irte-cache=on,gapic=on",
            "drive=nvme1,bus=port1",
            "igb,netdev=net2,bus=port2",
        ] {
            assert!(both.contains(part), "{part}: {both}");
        }
        assert!(!arguments(&[Device::Igb], false).contains("gapic"));
    }

    #[test]
    fn laboratories_in_bochs_have_no_devices() {
        let can = |name| require(Lab::find(name).unwrap(), &[Device::Nvme]).is_ok();
        assert!(can("amd-avic") && can("amd-svm") && can("xen"));
        assert!(!can("intel-apicv") && !can("xen-apicv"));
        assert!(require(Lab::find("xen-apicv").unwrap(), &[]).is_ok());
    }
}
