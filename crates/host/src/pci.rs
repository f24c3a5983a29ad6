//! Address regions of a VM's PCI devices.

use exits::Access;
use serde::{Deserialize, Serialize};

/// A region of memory or ports of a VM's PCI device: one base address register, as set by the guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bar {
    /// The device's address: `00:03.0`, bus, slot and function.
    pub address: String,
    /// Its name (`id=`); empty without one.
    pub id: String,
    /// The PCI vendor ID.
    pub vendor: u16,
    /// The PCI device ID.
    pub device: u16,
    /// The PCI class and subclass.
    pub class: u16,
    /// The number of the register.
    pub number: u8,
    /// True for I/O ports, false for memory.
    pub is_ports: bool,
    /// Its first address or port.
    pub start: u64,
    /// Its length in bytes.
    pub size: u64,
}

impl Bar {
    /// Tests whether an access is within the region.
    #[must_use]
    pub fn has(&self, access: Access) -> bool {
        let (is_ports, address) = match access {
            Access::Port { port, .. } => (true, u64::from(port)),
            Access::Mmio { address, .. } | Access::FastMmio { address } => (false, address),
            _ => return false,
        };
        is_ports == self.is_ports && address.checked_sub(self.start).is_some_and(|offset| offset < self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::Direction;

    #[test]
    fn a_register_has_its_own_addresses_and_no_others() {
        let direction = Direction::Write;
        let mut bar = Bar {
            address: "00:03.0".to_owned(),
            id: String::new(),
            vendor: 0x8086,
            device: 0x100e,
            class: 0x200,
            number: 1,
            is_ports: true,
            start: 0xc040,
            size: 0x40,
        };
        let port = |port| Access::Port { port, direction };
        assert!(bar.has(port(0xc040)) && bar.has(port(0xc07f)));
        assert!(!bar.has(port(0xc03f)) && !bar.has(port(0xc080)));
        assert!(!bar.has(Access::Mmio { address: 0xc040, direction }));
        (bar.is_ports, bar.start, bar.size) = (false, u64::MAX - 1, u64::MAX);
        assert!(bar.has(Access::Mmio { address: u64::MAX, direction }));
        assert!(bar.has(Access::FastMmio { address: u64::MAX }));
    }
}
