//! What front-end and back-end agree on.

/// Bits of `VHOST_USER_GET_FEATURES`: virtio's own, beside those of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtioFeatures(pub u64);

impl VirtioFeatures {
    /// `VHOST_F_LOG_ALL`: writes to the guest's memory are to be marked.
    pub const LOG_ALL: u64 = 1 << 26;
    /// `VIRTIO_F_RING_INDIRECT_DESC`.
    pub const INDIRECT: u64 = 1 << 28;
    /// `VIRTIO_F_RING_EVENT_IDX`.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// `VHOST_USER_F_PROTOCOL_FEATURES`.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// `VIRTIO_F_VERSION_1`.
    pub const VERSION_1: u64 = 1 << 32;
    /// `VIRTIO_F_RING_PACKED`.
    pub const PACKED: u64 = 1 << 34;
    /// `VIRTIO_F_RING_RESET`.
    pub const RING_RESET: u64 = 1 << 40;

    /// What is offered for every device. An IOMMU of the guest (`VIRTIO_F_ACCESS_PLATFORM`) is not: the front-end would
    /// have to translate each address.
    pub const OFFERED: u64 = Self::LOG_ALL
        | Self::INDIRECT
        | Self::EVENT_INDEX
        | Self::PROTOCOL_FEATURES
        | Self::VERSION_1
        | Self::PACKED;

    /// Whether all of `bits` are there.
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
}

/// Bits of `VHOST_USER_GET_PROTOCOL_FEATURES`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProtocolFeatures(pub u64);

impl ProtocolFeatures {
    /// More than one queue, or pair of queues.
    pub const QUEUES: u64 = 1 << 0;
    /// The log of dirty pages is a file.
    pub const LOG_FILE: u64 = 1 << 1;
    /// Gratuitous ARP by the back-end.
    pub const RARP: u64 = 1 << 2;
    /// Any message can be answered.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The MTU is told.
    pub const MTU: u64 = 1 << 4;
    /// The back-end can send requests.
    pub const BACKEND_REQUESTS: u64 = 1 << 5;
    /// The configuration is read and written by messages.
    pub const CONFIG: u64 = 1 << 9;
    /// Requests that are under way survive the back-end.
    pub const INFLIGHT: u64 = 1 << 12;
    /// The device can be reset by a message.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Memory is added and removed region by region.
    pub const MEMORY_SLOTS: u64 = 1 << 15;
    /// The driver's device status is told.
    pub const STATUS: u64 = 1 << 16;

    /// What is offered for every device; `RARP` and `MTU` are of network devices alone, and `INFLIGHT` of those whose
    /// requests must not be lost.
    pub const OFFERED: u64 = Self::QUEUES
        | Self::LOG_FILE
        | Self::REPLY_ACK
        | Self::BACKEND_REQUESTS
        | Self::CONFIG
        | Self::RESET_DEVICE
        | Self::MEMORY_SLOTS
        | Self::STATUS;

    /// Whether all of `bits` are there.
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
}
