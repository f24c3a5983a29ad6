use super::*;
use crate::protocol::VirtioFeatures;
use proptest::prelude::*;

/// A TCP or UDP packet over either version, with the sum of its pseudo-header where its checksum goes.
fn packet(version: Version, protocol: u8, data: &[u8]) -> (NetHeader, Vec<u8>) {
    let transport_size = if protocol == 6 { 20 } else { 8 };
    let size = (transport_size + data.len()) as u16;
    let mut packet = vec![2; 12];
    let transport = match version {
        Version::V4 => {
            packet.extend([0x08, 0x00, 0x45, 0]);
            packet.extend((20 + size).to_be_bytes());
            packet.extend([0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            34
        }
        Version::V6 => {
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            packet.extend(size.to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend((0..32).collect::<Vec<u8>>());
            54
        }
    };
    let mut head = vec![0; transport_size];
    head[..4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    if protocol == 6 {
        head[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        // CWR, ACK, PSH and FIN.
        (head[12], head[13]) = (5 << 4, 0x99);
    } else {
        head[4..6].copy_from_slice(&size.to_be_bytes());
    }
    packet.extend(head);
    packet.extend(data);
    let addresses = match version {
        Version::V4 => &packet[26..34],
        Version::V6 => &packet[22..54],
    };
    let pseudo = fold(add(u64::from(protocol) + u64::from(size), addresses));
    let offset = if protocol == 6 { 16 } else { 6 };
    put(&mut packet, transport + offset, pseudo);
    let segmentation = match (version, protocol) {
        (Version::V4, 6) => Segmentation::Tcp4,
        (Version::V6, 6) => Segmentation::Tcp6,
        _ => Segmentation::Datagrams,
    };
    let header = NetHeader {
        checksum: Some((transport as u16, offset as u16)),
        segmentation,
        ecn: false,
        segment: 1000,
        headers: (transport + transport_size) as u16,
    };
    (header, packet)
}

/// Tests all checksums of a packet, computed byte by byte as the RFCs describe it.
fn is_right(packet: &[u8]) -> bool {
    let slow = |bytes: &[u8]| {
        let pairs =
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
        pairs.fold(0_u32, |sum, word| (sum + word) % 0xffff)
    };
    let offsets = HeaderOffsets::of(packet).unwrap();
    let (ip_right, addresses, end) = match offsets.version {
        Version::V4 => {
            let size = usize::from(u16::from_be_bytes([packet[16], packet[17]]));
            (slow(&packet[14..34]) == 0, &packet[26..34], 14 + size)
        }
        Version::V6 => {
            (true, &packet[22..54], 54 + usize::from(u16::from_be_bytes([packet[18], packet[19]])))
        }
    };
    let transport = &packet[offsets.transport..];
    let sum = slow(addresses) + u32::from(offsets.protocol) + transport.len() as u32 + slow(transport);
    ip_right && sum.is_multiple_of(0xffff) && end == packet.len()
}

#[test]
fn checksums_are_made_as_the_rfcs_have_them() {
    for version in [Version::V4, Version::V6] {
        for protocol in [6, 17] {
            for size in [0, 1, 2, 3, 4, 5, 777] {
                let data: Vec<u8> = (0..size).map(|byte| (byte * 7) as u8).collect();
                let (header, mut packet) = packet(version, protocol, &data);
                let (start, offset) = header.checksum.unwrap();
                make_checksum(&mut packet, start, offset);
                if version == Version::V4 {
                    let sum = !fold(add(0, &packet[14..34]));
                    put(&mut packet, 24, sum);
                }
                assert!(is_right(&packet), "{version:?} {protocol} {size}");
            }
        }
    }
}

#[test]
fn a_place_beyond_the_packet_is_left_alone() {
    let mut packet = vec![1; 20];
    make_checksum(&mut packet, 30, 1);
    make_checksum(&mut packet, 19, 0);
    assert_eq!(packet, [1; 20]);
}

#[test]
fn large_packets_are_cut_into_whole_ones() {
    for version in [Version::V4, Version::V6] {
        for protocol in [6, 17] {
            let data: Vec<u8> = (0..3500_u32).map(|byte| ((byte * 31) >> 2) as u8).collect();
            let (header, packet) = packet(version, protocol, &data);
            let mut pieces = Vec::new();
            let mut keep = |head: &[u8], data: &[u8]| {
                pieces.push([head, data].concat());
                true
            };
            assert_eq!(cut(&header, &packet, &mut keep), 0);
            assert_eq!(pieces.len(), 4);
            let mut rest = 2;
            let left = cut(&header, &packet, |_, _| {
                rest -= 1;
                rest >= 0
            });
            assert_eq!((left, rest), (2, -1), "the third is not taken, and the fourth is not made");
            let headers = usize::from(header.headers);
            let back: Vec<u8> = pieces.iter().flat_map(|piece| piece[headers..].to_vec()).collect();
            assert_eq!(back, data);
            assert!(pieces.iter().all(|piece| is_right(piece)), "{version:?} {protocol}");
            let transport = usize::from(header.checksum.unwrap().0);
            if protocol == 6 {
                let numbers = pieces
                    .iter()
                    .map(|piece| u32::from_be_bytes(*piece[transport + 4..].first_chunk().unwrap()));
                let numbers: Vec<u32> = numbers.collect();
                assert_eq!(numbers, [u32::MAX, 999, 1999, 2999], "it wraps");
                let flags: Vec<u8> = pieces.iter().map(|piece| piece[transport + 13]).collect();
                assert_eq!(flags, [0x90, 0x10, 0x10, 0x19], "CWR with the first, PSH and FIN with the last");
            }
            if version == Version::V4 {
                let ids: Vec<u8> = pieces.iter().map(|piece| piece[19]).collect();
                assert_eq!(ids, [0xfe, 0xff, 0, 1]);
            }
        }
    }
}

/// As with `ip -6 route add ... encap seg6 mode inline`.
#[test]
fn segments_on_their_way_to_another_hop_have_the_checksum_of_the_last() {
    for protocol in [6, 17] {
        let (header, packet) = packet(Version::V6, protocol, &[7; 3500]);
        let (network, transport) = (14, 54);
        let mut routed = packet.clone();
        let last: [u8; 16] = *packet[network + 24..].first_chunk().unwrap();
        routed[network + 24..network + 40].copy_from_slice(&[0xfd; 16]);
        routed[network + 6] = 43;
        // A segment routing header (RFC 8754) with one segment left.
        let routing = [&[protocol, 2, 4, 1, 0, 0, 0, 0][..], &last].concat();
        let size = routing.len();
        routed.splice(transport..transport, routing);
        let (start, offset) = header.checksum.unwrap();
        let header = NetHeader {
            checksum: Some((start + size as u16, offset)),
            headers: header.headers + size as u16,
            ..header
        };
        let mut pieces = 0;
        let left = cut(&header, &routed, |head, data| {
            // As it arrives at the last hop, without the routing header.
            let mut piece = [head, data].concat();
            assert_eq!(HeaderOffsets::of(&piece).unwrap().transport, transport + size);
            piece.drain(transport..transport + size);
            piece[network + 6] = protocol;
            piece[network + 24..network + 40].copy_from_slice(&last);
            let length = (piece.len() - transport) as u16;
            put(&mut piece, network + 4, length);
            assert!(is_right(&piece), "{protocol}");
            pieces += 1;
            true
        });
        assert_eq!((left, pieces), (0, 4));
    }
}

#[test]
fn who_does_what_is_told_by_features() {
    let features = VirtioFeatures(1 << 1 | 1 << 7 | 1 << 54);
    let guest = Offloads::of_guest(features);
    assert!(guest.checksum && guest.tcp4 && guest.datagrams4 && !guest.tcp6 && !guest.datagrams6);
    assert_eq!(Offloads::of_guest(VirtioFeatures(1 << 7)), Offloads::default(), "nothing without checksums");
    assert_eq!(Offloads::of_bits(guest.bits()), guest);
    let (header, packet) = packet(Version::V4, 17, &[0; 3000]);
    assert!(guest.takes(&header, &packet));
    assert!(!Offloads { datagrams4: false, ..guest }.takes(&header, &packet));
    let tcp = NetHeader { segmentation: Segmentation::Tcp4, ecn: true, ..header };
    assert!(!guest.takes(&tcp, &packet), "not with a mark");
    assert!(guest.takes(&NetHeader { ecn: false, ..tcp }, &packet));
    assert!(Offloads::default().takes(&NetHeader::NOTHING, &packet));
}

proptest! {
    #[test]
    fn nothing_is_lost_and_every_piece_is_right(
        data in prop::collection::vec(any::<u8>(), 1..5000),
        segment in 48_u16..2000,
        six: bool,
        tcp: bool,
    ) {
        let version = if six { Version::V6 } else { Version::V4 };
        let (header, packet) = packet(version, if tcp { 6 } else { 17 }, &data);
        let header = NetHeader { segment, ..header };
        let mut back = Vec::new();
        let mut right = true;
        let left = cut(&header, &packet, |head, data| {
            right &= is_right(&[head, data].concat());
            back.extend_from_slice(data);
            true
        });
        prop_assert_eq!(left, 0);
        prop_assert!(right);
        prop_assert_eq!(back, data);
    }
}
