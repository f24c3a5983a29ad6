//! The network device (VIRTIO 1.3, 5.1).

mod buffers;
mod control;
mod error;
mod features;
mod header;
mod offload;
mod packet;
mod receive;
mod segmentation;
pub mod switch;
mod tap;
mod transmit;

use super::{Device, Limit, Limits};
use crate::clock::now_ns;
use crate::protocol::{ProtocolFeatures, VirtioFeatures};
use crate::queue::Handler;
use control::ControlQueue;
use packet::Mac;
use receive::{Receive, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use switch::{Address, Port, Sender, Switches};
use transmit::{Target, Transmit};

pub use buffers::{Buffers, Delivery};
pub use error::NetError;
pub use header::{LEGACY_SIZE, Malformed, NetHeader, SIZE, Segmentation};
pub use offload::Offloads;
pub use packet::{HEAD, HeaderOffsets, LARGEST, Version};
pub use segmentation::cut;
pub use tap::{Tap, TapOptions, TapQueue};

/// The link of a network device: the tap or switch that it is connected to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LinkOptions {
    /// No link: packets are parsed and dropped, for benchmarks.
    #[default]
    Nothing,
    /// A tap of the host.
    Tap(TapOptions),
    /// The other devices of the same switch.
    Switch {
        /// The name of the switch.
        name: String,
        /// Drop packets that the guest sends from another address than the device's.
        checks_source: bool,
    },
}

/// The valid MTUs (VIRTIO 1.3, 5.1.4.1).
pub(crate) const MTUS: std::ops::RangeInclusive<u16> = 68..=65535;

/// The options of a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetOptions {
    /// The tap or switch that it is connected to.
    pub link: LinkOptions,
    /// Its MAC address; `None` if only the front-end knows it.
    pub mac: Option<Address>,
    /// Its MTU; 0 if only the front-end knows it.
    pub mtu: u16,
    /// The largest number of queue pairs.
    pub pairs: u16,
    /// Packets per second in each direction, 0 for no limit.
    pub packets_a_second: u64,
    /// Bytes per second in each direction, 0 for no limit.
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

/// The open link of a device.
#[derive(Debug)]
enum Link {
    Nothing,
    Tap(Tap),
    Port(Arc<Port>),
}

/// A network device, shared by all its queues.
#[derive(Debug)]
pub struct NetDevice {
    link: Link,
    options: NetOptions,
    mtu: AtomicU16,
    /// The front-end has read the MTU that the device names when it knows none, and so may have told it to the guest.
    is_default_read: AtomicBool,
    /// The number of the control queue if this device serves it, else 0.
    control: AtomicU16,
    /// That queue is enabled.
    is_controlled: AtomicBool,
    sent: Limits,
    received: Limits,
}

/// The largest packet of this MTU.
fn largest_of(mtu: u16) -> usize {
    usize::from(mtu) + packet::ETHERNET + 8
}

impl NetDevice {
    /// Creates the device and its link; a switch is taken from `switches`, or created there.
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
        let (control, is_controlled) = (AtomicU16::new(0), AtomicBool::new(false));
        let is_default_read = AtomicBool::new(false);
        Ok(Arc::new(Self { link, mtu, is_default_read, control, is_controlled, sent, received, options }))
    }

    /// Its options.
    #[must_use]
    pub const fn options(&self) -> &NetOptions {
        &self.options
    }

    fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// The largest packet without segmentation: with an Ethernet header and two VLAN tags.
    fn largest(&self) -> usize {
        match self.mtu() {
            0 => LARGEST,
            mtu => largest_of(mtu),
        }
    }

    /// The same of those that a guest receives. If it `knows` an MTU (`VIRTIO_NET_F_MTU`), it may rely on what it was told
    /// (VIRTIO 1.3, 5.1.4.1). Some front-ends, such as cloud-hypervisor, tell one that only they know.
    fn largest_received(&self, knows: bool) -> usize {
        match self.mtu() {
            0 if knows && self.is_default_read.load(Ordering::Relaxed) => largest_of(features::DEFAULT_MTU),
            _ => self.largest(),
        }
    }

    /// The size of the header that a guest with these features uses.
    fn header(features: VirtioFeatures) -> usize {
        let has = |bits| features.has(bits);
        if has(VirtioFeatures::VERSION_1) || has(features::MERGEABLE) { SIZE } else { LEGACY_SIZE }
    }

    /// Makes the handler of a receive queue.
    #[must_use]
    pub fn receive(self: &Arc<Self>, pair: u16, negotiated: VirtioFeatures) -> Receive {
        let source = match &self.link {
            Link::Nothing => Source::Nothing,
            Link::Tap(tap) => {
                tap.set_offloads(Offloads::of_guest(negotiated));
                tap.queue(usize::from(pair)).map_or(Source::Nothing, Source::Tap)
            }
            Link::Port(port) => match port.backlogs.get(usize::from(pair)) {
                Some(backlog) => Source::Switch(Arc::clone(backlog)),
                None => Source::Nothing,
            },
        };
        Receive::new(Arc::clone(self), source, negotiated)
    }

    /// Makes the handler of a transmit queue.
    #[must_use]
    pub fn transmit(self: &Arc<Self>, pair: u16, negotiated: VirtioFeatures) -> Transmit {
        let target = match &self.link {
            Link::Nothing => Target::Nothing,
            Link::Tap(tap) => tap.queue(usize::from(pair)).map_or(Target::Nothing, Target::Tap),
            Link::Port(port) => Target::Switch(Box::new(Sender::new(Arc::clone(port), pair))),
        };
        Transmit::new(Arc::clone(self), target, Self::header(negotiated), Offloads::of_device(negotiated))
    }

    /// Has a guest of a switch receive by its first so many queue pairs. One of a tap receives by the first pair alone while
    /// its control queue is served here: attaching the others takes longer than a worker may.
    fn receive_by(&self, pairs: u16) {
        if let Link::Port(port) = &self.link {
            port.steering.receive_by(pairs);
        }
    }

    /// Announces a guest to the network (RFC 903: a request for its own address).
    fn tell_network(&self, mac: Address) -> Result<(), String> {
        // The packet counts towards the guest's limit.
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
            Link::Port(port) => match Sender::new(Arc::clone(port), 0).announce(&frame, mac, now_ns()) {
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

    fn handler(&self, index: u16, _size: u16, features: VirtioFeatures) -> Box<dyn Handler> {
        let pair = index / 2;
        // Without several queue pairs the control queue follows the first (VIRTIO 1.3, 5.1.2).
        let pairs = if features.has(features::QUEUES) { self.options.pairs } else { 1 };
        if pair >= pairs {
            self.control.store(index, Ordering::Relaxed);
            return Box::new(ControlQueue::new(Arc::clone(self), pairs));
        }
        if self.control.load(Ordering::Relaxed) == index {
            self.control.store(0, Ordering::Relaxed);
        }
        match index {
            _ if index.is_multiple_of(2) => Box::new(self.receive(pair, features)),
            _ => Box::new(self.transmit(pair, features)),
        }
    }

    fn config(&self, offset: u32, size: u32) -> Vec<u8> {
        self.read_config(offset, size)
    }

    fn set_config(&self, offset: u32, _bytes: &[u8]) -> Result<(), String> {
        Err(format!("byte {offset} of the configuration space is read-only"))
    }

    fn limits(&self) -> Vec<[&Limit; 2]> {
        [&self.sent, &self.received].map(|limits| [&limits.requests, &limits.bytes]).to_vec()
    }

    fn enable(&self, index: u16, enabled: bool) {
        if index > 0 && index == self.control.load(Ordering::Relaxed) {
            // "By default ... only receiveq1, transmitq1" are used until the guest's command (VIRTIO 1.3, 5.1.5).
            if self.is_controlled.swap(enabled, Ordering::Relaxed) != enabled {
                self.receive_by(if enabled { 1 } else { u16::MAX });
            }
            if let (Link::Tap(tap), true) = (&self.link, enabled) {
                (1..usize::from(self.options.pairs)).for_each(|pair| tap.attach(pair, false));
            }
            return;
        }
        let pair = usize::from(index / 2);
        if let (Link::Tap(tap), true) = (&self.link, index.is_multiple_of(2)) {
            tap.attach(pair, enabled && (pair == 0 || !self.is_controlled.load(Ordering::Relaxed)));
        }
    }

    fn set_mtu(&self, mtu: Option<u64>) -> Result<(), String> {
        let own = self.options.mtu;
        let mtu = match mtu {
            None => {
                self.is_default_read.store(false, Ordering::Relaxed);
                own
            }
            Some(told) => {
                let told = u16::try_from(told).ok().filter(|told| MTUS.contains(told));
                let told = told.ok_or_else(|| format!("an MTU is {} to {}", MTUS.start(), MTUS.end()))?;
                // The front-end's user does not lift the administrator's limit, and the guest should not be told so.
                if own != 0 && told > own {
                    return Err(format!("an MTU of {told} is larger than the device's `mtu`, {own}"));
                }
                told
            }
        };
        self.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    fn announce(&self, mac: [u8; 6]) -> Result<(), String> {
        self.tell_network(mac)
    }
}

#[cfg(test)]
#[path = "net/net_tests.rs"]
mod tests;
