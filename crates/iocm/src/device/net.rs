//! The network device (VIRTIO 1.3, 5.1).

mod buffers;
mod control;
mod features;
mod header;
mod offload;
mod packet;
mod receive;
pub mod switch;
mod tap;
mod transmit;

use super::{Device, Limit, Limits};
use crate::clock::now_ns;
use crate::protocol::{ProtocolFeatures, VirtioFeatures};
use crate::queue::Handler;
use control::ControlQueue;
use receive::{Receive, Source};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use switch::{Address, Port, Sender, Switches};
use transmit::{Target, Transmit};

pub use buffers::{Buffers, Delivery};
pub use header::{Cut, LEGACY_SIZE, Malformed, NetHeader, SIZE};
pub use offload::{Offloads, cut, make_checksum};
pub use packet::{HEAD, LARGEST, Layers, Version};
pub use tap::{Tap, TapOptions, TapQueue};

/// What a device's packets go to and come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LinkOptions {
    /// Nothing: packets are looked at and forgotten, for measuring.
    #[default]
    Nothing,
    /// A network interface of the host.
    Tap(TapOptions),
    /// The other devices of the same switch.
    Switch {
        /// What it is called.
        name: String,
        /// Whether what the guest sends from another address than the device's is dropped.
        checks_source: bool,
    },
}

/// What a network device is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetOptions {
    /// What its packets go to and come from.
    pub link: LinkOptions,
    /// Its address; `None` when only the front-end knows it.
    pub mac: Option<Address>,
    /// Most bytes of a packet without its Ethernet header; 0 when only the front-end knows it.
    pub mtu: u16,
    /// Pairs of queues at most.
    pub pairs: u16,
    /// Packets a second in each direction, 0 for no limit.
    pub packets_a_second: u64,
    /// Bytes a second in each direction, 0 for no limit.
    pub bytes_a_second: u64,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::Nothing,
            mac: None,
            mtu: 0,
            pairs: 1,
            packets_a_second: 0,
            bytes_a_second: 0,
        }
    }
}

/// Why a network device cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The kernel does not give the interface.
    #[error("The tap {name} {what}; it takes CAP_NET_ADMIN, or an interface that was made for this user")]
    Tap {
        /// What it is called.
        name: String,
        /// What cannot be.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error("Cannot enter the network namespace {path}")]
    Namespace {
        /// Where it is.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A descriptor is none of a tap.
    #[error("Descriptor {number} is no tap's that can be used")]
    NoTap {
        /// Which.
        number: i32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There are not as many descriptors as queues.
    #[error("{pairs} pairs of queues need as many descriptors of a tap, and {files} are given")]
    Files {
        /// Descriptors.
        files: usize,
        /// Pairs of queues.
        pairs: u16,
    },
    /// Another device of the switch has the address.
    #[error("Another device of the same switch has the address {}", Mac(.0))]
    Address(Address),
    /// The kernel gives no more files.
    #[error("No file for waking an I/O worker")]
    File(#[source] io::Error),
}

/// An address as people write it.
struct Mac<'a>(&'a Address);

impl std::fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

/// What a device's packets go to and come from, opened.
#[derive(Debug)]
enum Link {
    Nothing,
    Tap(Tap),
    Port(Arc<Port>),
}

/// A network device: what all its queues share.
#[derive(Debug)]
pub struct NetDevice {
    link: Link,
    options: NetOptions,
    mtu: AtomicU16,
    sent: Limits,
    received: Limits,
}

impl NetDevice {
    /// Opens what it is made of; switches are looked for, or made, among `switches`.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn open(options: NetOptions, switches: &Switches) -> Result<Arc<Self>, NetError> {
        let link = match &options.link {
            LinkOptions::Nothing => Link::Nothing,
            LinkOptions::Tap(tap) => Link::Tap(Tap::open(tap, options.pairs, options.mtu)?),
            LinkOptions::Switch { name, checks_source } => {
                Link::Port(switches.get(name).plug(options.pairs, options.mac, *checks_source)?)
            }
        };
        let limits = || Limits::new(options.packets_a_second, options.bytes_a_second);
        let (mtu, sent, received) = (AtomicU16::new(options.mtu), limits(), limits());
        Ok(Arc::new(Self { link, mtu, sent, received, options }))
    }

    /// What it was made of.
    #[must_use]
    pub const fn options(&self) -> &NetOptions {
        &self.options
    }

    /// Limits of what the guest sends.
    #[must_use]
    pub const fn sent_limits(&self) -> &Limits {
        &self.sent
    }

    /// Limits of what it receives.
    #[must_use]
    pub const fn received_limits(&self) -> &Limits {
        &self.received
    }

    fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// Most bytes of a packet that is not to be cut: with an Ethernet header and two VLAN tags.
    fn largest(&self) -> u64 {
        match self.mtu() {
            0 => LARGEST as u64,
            mtu => u64::from(mtu) + packet::ETHERNET as u64 + 8,
        }
    }

    /// Bytes of the header that a guest that agreed on these features reads and writes.
    fn header(features: VirtioFeatures) -> usize {
        let has = |bits| features.has(bits);
        if has(VirtioFeatures::VERSION_1) || has(features::MERGEABLE) { SIZE } else { LEGACY_SIZE }
    }

    /// What gives a guest its packets by one of its pairs of queues.
    #[must_use]
    pub fn receive(self: &Arc<Self>, pair: u16, agreed: VirtioFeatures) -> Receive {
        let offloads = Offloads::of_guest(agreed);
        let source = match &self.link {
            Link::Nothing => Source::Nothing,
            Link::Tap(tap) => {
                tap.set_offloads(offloads);
                tap.queue(usize::from(pair)).map_or(Source::Nothing, Source::Tap)
            }
            Link::Port(port) => match port.receive_queues.get(usize::from(pair)) {
                Some(receive_queue) => Source::Switch(Arc::clone(receive_queue)),
                None => Source::Nothing,
            },
        };
        let merges = agreed.has(features::MERGEABLE);
        Receive::new(Arc::clone(self), source, merges, Self::header(agreed), offloads)
    }

    /// What takes a guest's packets by one of its pairs of queues.
    #[must_use]
    pub fn transmit(self: &Arc<Self>, pair: u16, agreed: VirtioFeatures) -> Transmit {
        let target = match &self.link {
            Link::Nothing => Target::Nothing,
            Link::Tap(tap) => tap.queue(usize::from(pair)).map_or(Target::Nothing, Target::Tap),
            Link::Port(port) => Target::Switch(Box::new(Sender::new(Arc::clone(port)))),
        };
        Transmit::new(Arc::clone(self), target, Self::header(agreed), Offloads::of_device(agreed))
    }

    /// Tells the network that a guest is here now (RFC 903: by asking for its own address).
    fn tell_network(&self, mac: Address) -> Result<(), String> {
        // It is a packet of the guest's, whoever makes it.
        if self.sent.wait(now_ns).is_some() {
            return Err("the device's limit is used up".to_owned());
        }
        let mut frame = [0; 60];
        self.sent.take(1, frame.len() as u64);
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&mac);
        // Reverse ARP; Ethernet and IPv4, addresses of 6 and 4 bytes, a request.
        frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 0x08, 0, 6, 4, 0, 3]);
        frame[22..28].copy_from_slice(&mac);
        frame[32..38].copy_from_slice(&mac);
        match &self.link {
            Link::Nothing => Ok(()),
            Link::Tap(tap) if tap.inject(&frame) => Ok(()),
            Link::Tap(tap) => Err(format!("the tap {} takes no packets", tap.name())),
            Link::Port(port) => match Sender::new(Arc::clone(port)).announce(&frame, mac, now_ns()) {
                true => Ok(()),
                false => Err(format!("the device may not send from {}", Mac(&mac))),
            },
        }
    }
}

impl Device for Arc<NetDevice> {
    fn kind(&self) -> &'static str {
        "net"
    }

    fn features(&self) -> u64 {
        self.offered()
    }

    fn protocol_features(&self) -> u64 {
        ProtocolFeatures::RARP | ProtocolFeatures::MTU
    }

    fn queues(&self) -> u16 {
        2 * self.options.pairs + 1
    }

    fn queue_number(&self) -> u16 {
        self.options.pairs
    }

    fn handler(&self, index: u16, _size: u16, features: VirtioFeatures) -> Box<dyn Handler> {
        let pair = index / 2;
        match index {
            _ if pair >= self.options.pairs => Box::new(ControlQueue::new(self.options.pairs)),
            _ if index.is_multiple_of(2) => Box::new(self.receive(pair, features)),
            _ => Box::new(self.transmit(pair, features)),
        }
    }

    fn config(&self, offset: u32, size: u32) -> Vec<u8> {
        self.read_config(offset, size)
    }

    fn set_config(&self, offset: u32, _bytes: &[u8]) -> Result<(), String> {
        Err(format!("byte {offset} of the configuration cannot be written"))
    }

    fn limits(&self) -> Vec<[&Limit; 2]> {
        [self.sent_limits(), self.received_limits()].map(|limits| [&limits.requests, &limits.bytes]).to_vec()
    }

    fn set_mtu(&self, mtu: u64) {
        if let Ok(mtu) = u16::try_from(mtu) {
            self.mtu.store(mtu, Ordering::Relaxed);
        }
    }

    fn announce(&self, mac: [u8; 6]) -> Result<(), String> {
        self.tell_network(mac)
    }
}

#[cfg(test)]
#[path = "net/net_tests.rs"]
mod tests;
