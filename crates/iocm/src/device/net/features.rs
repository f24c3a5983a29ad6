//! The features and the configuration space of a network device (VIRTIO 1.3, 5.1.3 and 5.1.4).

use super::{Link, NetDevice};
use std::sync::atomic::Ordering;

const CHECKSUM: u64 = 1 << 0;
const GUEST_CHECKSUM: u64 = 1 << 1;
/// `VIRTIO_NET_F_MTU`.
pub(super) const MTU: u64 = 1 << 3;
const MAC: u64 = 1 << 5;
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_TSO6: u64 = 1 << 8;
const GUEST_ECN: u64 = 1 << 9;
const GUEST_UFO: u64 = 1 << 10;
const HOST_TSO4: u64 = 1 << 11;
const HOST_TSO6: u64 = 1 << 12;
const HOST_ECN: u64 = 1 << 13;
const HOST_UFO: u64 = 1 << 14;
/// `VIRTIO_NET_F_MRG_RXBUF`.
pub(super) const MERGEABLE: u64 = 1 << 15;
const STATUS: u64 = 1 << 16;
const CONTROL: u64 = 1 << 17;
const CONTROL_RECEIVE: u64 = 1 << 18;
const ANNOUNCE: u64 = 1 << 21;
/// `VIRTIO_NET_F_MQ`.
pub(super) const QUEUES: u64 = 1 << 22;
const GUEST_USO4: u64 = 1 << 54;
const GUEST_USO6: u64 = 1 << 55;
const HOST_USO: u64 = 1 << 56;

/// `VIRTIO_NET_S_LINK_UP`.
const LINK_UP: u16 = 1;
/// The MTU of Ethernet.
pub(super) const DEFAULT_MTU: u16 = 1500;
/// The bytes of the MTU in the configuration space.
const MTU_BYTES: std::ops::Range<u32> = 10..12;

impl NetDevice {
    /// The feature bits of the device type.
    pub(super) fn offered(&self) -> u64 {
        let always = CHECKSUM
            | GUEST_CHECKSUM
            | MTU
            | GUEST_TSO4
            | GUEST_TSO6
            | GUEST_ECN
            | HOST_TSO4
            | HOST_TSO6
            | HOST_ECN
            | MERGEABLE
            | STATUS
            | CONTROL
            | CONTROL_RECEIVE
            | ANNOUNCE;
        let datagrams = GUEST_USO4 | GUEST_USO6 | HOST_USO;
        let cuts = match &self.link {
            Link::Tap(tap) => GUEST_UFO | HOST_UFO | if tap.knows_datagrams() { datagrams } else { 0 },
            // A switch would have to fragment datagrams for guests without UFO, and no recent driver uses UFO.
            Link::Port(_) | Link::Nothing => datagrams,
        };
        let mac = if self.options.mac.is_some() { MAC } else { 0 };
        let several = if self.options.pairs > 1 { QUEUES } else { 0 };
        always | cuts | mac | several
    }

    /// Reads the configuration space; bytes after its end are zero.
    pub(super) fn read_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let end = offset.saturating_add(size);
        let mtu = match self.mtu() {
            0 => {
                if offset < MTU_BYTES.end && end > MTU_BYTES.start {
                    self.is_default_read.store(true, Ordering::Relaxed);
                }
                DEFAULT_MTU
            }
            mtu => mtu,
        };
        let words = [LINK_UP, self.options.pairs, mtu].map(u16::to_le_bytes);
        // Speed and duplex are unknown.
        let all = [&self.options.mac.unwrap_or_default()[..], words.as_flattened(), &[0xff; 5]].concat();
        let byte = |at: u32| all.get(at as usize).copied().unwrap_or(0);
        (offset..end).map(byte).collect()
    }
}
