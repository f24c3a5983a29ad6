//! The protocol headers of a packet (IEEE 802.3 and 802.1Q, RFC 791, 8200, 9293, 768).

/// An Ethernet address.
pub type Address = [u8; 6];

/// A MAC address in the usual notation.
pub(super) struct Mac<'a>(pub(super) &'a Address);

impl std::fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// The length of a packet's head, in which headers are looked for, bytes: Ethernet with two tags, the longest IPv4
/// header or an IPv6 header with some extensions, and the longest TCP header.
pub const HEAD: usize = 256;

/// The largest packet, bytes: the longest IP packet with an Ethernet header and two VLAN tags.
pub const LARGEST: usize = 65535 + ETHERNET + 8;

/// Version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The offsets of the headers of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderOffsets {
    /// Version of IP.
    pub version: Version,
    /// The offset of the IP header.
    pub network: usize,
    /// The offset of the transport header.
    pub transport: usize,
    /// The transport protocol: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// The packet is a fragment, and may have no transport header.
    pub is_fragment: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl HeaderOffsets {
    /// Finds the headers of an IP packet in its first bytes; `None` for other packets, or if the headers before the
    /// transport header are not complete.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        let mut network = ETHERNET;
        let mut kind = word(head, ETHERNET - 2)?;
        // Up to two VLAN tags.
        while matches!(kind, 0x8100 | 0x88a8) && network < ETHERNET + 8 {
            kind = word(head, network + 2)?;
            network += 4;
        }
        let first = *head.get(network)?;
        match (kind, first >> 4) {
            (0x0800, 4) => {
                let size = usize::from(first & 0xf) * 4;
                let (protocol, fragment) = (*head.get(network + 9)?, word(head, network + 6)?);
                (size >= 20).then_some(Self {
                    version: Version::V4,
                    network,
                    transport: network + size,
                    protocol,
                    is_fragment: fragment & 0x3fff != 0,
                })
            }
            (0x86dd, 6) => Self::of_ipv6(head, network),
            _ => None,
        }
    }

    fn of_ipv6(head: &[u8], network: usize) -> Option<Self> {
        let (mut protocol, mut transport) = (*head.get(network + 6)?, network + 40);
        // Hop-by-hop, routing and destination options, as far as they fit in the head.
        while matches!(protocol, 0 | 43 | 60) {
            let size = usize::from(*head.get(transport + 1)?) * 8 + 8;
            protocol = *head.get(transport)?;
            transport += size;
        }
        Some(Self { version: Version::V6, network, transport, protocol, is_fragment: protocol == 44 })
    }

    /// Tests for this protocol over this version of IP.
    #[must_use]
    pub fn is(&self, version: Version, protocol: u8) -> bool {
        self.version == version && self.protocol == protocol
    }

    /// The length of all headers before the data of TCP or UDP; `None` if they are not complete.
    #[must_use]
    pub fn headers(&self, head: &[u8]) -> Option<usize> {
        if self.is_fragment {
            return None;
        }
        let size = match self.protocol {
            6 => usize::from(*head.get(self.transport + 12)? >> 4) * 4,
            17 => 8,
            _ => return None,
        };
        let least = if self.protocol == 6 { 20 } else { 8 };
        (size >= least && self.transport + size <= head.len()).then_some(self.transport + size)
    }

    /// A hash that is the same for all packets of a connection in this direction. Its upper bits depend on all bytes alike.
    #[must_use]
    pub(crate) fn flow(&self, head: &[u8]) -> u64 {
        hash(self.ends(head))
    }

    /// [`Self::flow`] of the packets in the other direction.
    #[must_use]
    pub(crate) fn flow_back(&self, head: &[u8]) -> u64 {
        let [from, to, from_port, to_port] = self.ends(head);
        hash([to, from, to_port, from_port])
    }

    /// The addresses of the sender and of the receiver, and their ports, which are empty for a fragment and for other
    /// protocols than TCP and UDP.
    fn ends<'a>(&self, head: &'a [u8]) -> [&'a [u8]; 4] {
        let (first, size) = match self.version {
            Version::V4 => (self.network + 12, 4),
            Version::V6 => (self.network + 8, 16),
        };
        let port = if !self.is_fragment && matches!(self.protocol, 6 | 17) { 2 } else { 0 };
        let part = |at: usize, size: usize| head.get(at..at + size).unwrap_or(&[]);
        [
            part(first, size),
            part(first + size, size),
            part(self.transport, port),
            part(self.transport + port, port),
        ]
    }
}

fn hash(ends: [&[u8]; 4]) -> u64 {
    // FNV-1a: no secret is needed, because a bad choice costs only one guest's own speed.
    let hash = ends.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    // The last bytes, a port, only affect the lower bits so far: a server's answers differ in them alone.
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// One of `count` queues for a connection, by the hash of its packets.
#[must_use]
pub(crate) fn queue_of(flow: u64, count: usize) -> usize {
    // Each queue has an equal part of the hash's range.
    ((u128::from(flow) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ipv4(tags: usize, protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 12];
        for _ in 0..tags {
            packet.extend([0x81, 0x00, 0, 5]);
        }
        packet.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(rest);
        packet
    }

    #[test]
    fn headers_are_found_behind_tags_and_extensions() {
        for tags in 0..=2 {
            let mut tcp = [0; 24];
            tcp[12] = 6 << 4;
            let packet = ipv4(tags, 6, &tcp);
            let offsets = HeaderOffsets::of(&packet).unwrap();
            assert_eq!((offsets.network, offsets.transport), (14 + 4 * tags, 34 + 4 * tags));
            assert!(offsets.is(Version::V4, 6));
            assert_eq!(offsets.headers(&packet), Some(58 + 4 * tags));
        }
        assert_eq!(HeaderOffsets::of(&ipv4(3, 6, &[])), None, "three tags");
        let mut packet = vec![0; 12];
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 0, 64]);
        packet.extend([0; 32]);
        packet.extend([17, 1, 0, 0, 0, 0, 0, 0]);
        packet.extend([0; 8 + 8]);
        let offsets = HeaderOffsets::of(&packet).unwrap();
        assert_eq!((offsets.transport, offsets.protocol), (14 + 40 + 16, 17));
        assert_eq!(offsets.headers(&packet), Some(packet.len()));
        assert_eq!(offsets.headers(&packet[..packet.len() - 1]), None);
    }

    #[test]
    fn a_fragment_has_no_transport_header() {
        let mut packet = ipv4(0, 17, &[0; 8]);
        packet[20] = 0x20;
        let offsets = HeaderOffsets::of(&packet).unwrap();
        assert!(offsets.is_fragment);
        assert_eq!(offsets.headers(&packet), None);
    }

    #[test]
    fn a_flow_is_told_by_addresses_and_ports() {
        let flow = |packet: &[u8]| HeaderOffsets::of(packet).unwrap().flow(packet);
        let (a, b) = (ipv4(0, 17, &[0, 1, 0, 2, 9]), ipv4(0, 17, &[0, 1, 0, 3, 9]));
        assert_ne!(flow(&a), flow(&b));
        assert_eq!(flow(&a), flow(&ipv4(0, 17, &[0, 1, 0, 2, 7])));
        let mut back = ipv4(0, 17, &[0, 2, 0, 1, 9]);
        back[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        let flow_back = |packet: &[u8]| HeaderOffsets::of(packet).unwrap().flow_back(packet);
        assert_eq!((flow_back(&a), flow(&a)), (flow(&back), flow_back(&back)));
    }

    /// Many clients and one server: each side's view of the other's packets.
    #[test]
    fn connections_are_spread_over_all_queues() {
        for (server, count) in
            [80_u16, 443, 1883, 5432, 11211].into_iter().flat_map(|port| (2..=16).map(move |n| (port, n)))
        {
            for to_server in [true, false] {
                let clients = (32768..60999_u16).step_by(3);
                let all = clients.len();
                let mut queues = vec![0_usize; count];
                for client in clients {
                    let ports = if to_server { [client, server] } else { [server, client] };
                    let packet = ipv4(0, 6, ports.map(u16::to_be_bytes).as_flattened());
                    queues[queue_of(HeaderOffsets::of(&packet).unwrap().flow(&packet), count)] += 1;
                }
                let fair = all / count;
                let is_fair = queues.iter().all(|queue| queue.abs_diff(fair) * 5 < fair);
                assert!(is_fair, "port {server}, to it: {to_server}: {queues:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_lead_beyond_the_head(mut head: Vec<u8>, kind in 0..4, first: u8) {
            if head.len() > 14 {
                let kind: [u8; 2] = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]][kind as usize];
                head[12..14].copy_from_slice(&kind);
                head[14] = first;
            }
            if let Some(offsets) = HeaderOffsets::of(&head) {
                prop_assert_eq!(offsets.flow(&head), offsets.flow(&head));
                prop_assert_eq!(offsets.flow_back(&head), offsets.flow_back(&head));
                prop_assert!(offsets.network >= ETHERNET && offsets.transport >= offsets.network + 20);
                if let Some(headers) = offsets.headers(&head) {
                    prop_assert!(headers <= head.len() && headers >= offsets.transport + 8);
                }
            }
        }
    }
}
