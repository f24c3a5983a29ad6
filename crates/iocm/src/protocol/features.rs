//! Features that front-end and back-end negotiate.

/// Virtio features, the bits of `VHOST_USER_GET_FEATURES`, without those of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtioFeatures(pub u64);

impl VirtioFeatures {
    /// `VHOST_F_LOG_ALL`: writes to the guest's memory are logged.
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

    /// The features that every device offers. `VIRTIO_F_ACCESS_PLATFORM` is not among them: the front-end would have to
    /// translate each address.
    pub const OFFERED: u64 = Self::LOG_ALL
        | Self::INDIRECT
        | Self::EVENT_INDEX
        | Self::PROTOCOL_FEATURES
        | Self::VERSION_1
        | Self::PACKED;

    /// Tests whether all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
}

/// Protocol features, the bits of `VHOST_USER_GET_PROTOCOL_FEATURES`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProtocolFeatures(pub u64);

impl ProtocolFeatures {
    /// `MQ`: more than one queue or queue pair.
    pub const QUEUES: u64 = 1 << 0;
    /// `LOG_SHMFD`: the dirty log is a file.
    pub const LOG_FILE: u64 = 1 << 1;
    /// `RARP`: the back-end sends gratuitous ARP.
    pub const RARP: u64 = 1 << 2;
    /// `REPLY_ACK`: the front-end may ask for a reply to any message.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// `NET_MTU`: the front-end tells the MTU.
    pub const MTU: u64 = 1 << 4;
    /// `BACKEND_REQ`: the back-end may send requests.
    pub const BACKEND_REQUESTS: u64 = 1 << 5;
    /// `CONFIG`: messages read and write the configuration space.
    pub const CONFIG: u64 = 1 << 9;
    /// `INFLIGHT_SHMFD`: requests in flight survive the back-end.
    pub const INFLIGHT: u64 = 1 << 12;
    /// `RESET_DEVICE`: a message resets the device.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// `CONFIGURE_MEM_SLOTS`: memory regions are added and removed one by one.
    pub const MEMORY_SLOTS: u64 = 1 << 15;
    /// `STATUS`: the front-end tells the device status.
    pub const STATUS: u64 = 1 << 16;

    /// The protocol features that every device offers. `RARP` and `MTU` are added by network devices, `INFLIGHT` by
    /// devices whose requests must not be lost.
    pub const OFFERED: u64 = Self::QUEUES
        | Self::LOG_FILE
        | Self::REPLY_ACK
        | Self::BACKEND_REQUESTS
        | Self::CONFIG
        | Self::RESET_DEVICE
        | Self::MEMORY_SLOTS
        | Self::STATUS;

    /// Tests whether all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
}
