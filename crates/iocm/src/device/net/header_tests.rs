use super::*;
use proptest::prelude::*;

const ALL: Offloads = Offloads {
    checksum: true,
    tcp4: true,
    tcp6: true,
    ecn: true,
    fragments: true,
    datagrams4: true,
    datagrams6: true,
};

/// An IPv4 packet of this protocol with `data` bytes of data.
fn packet(protocol: u8, data: usize) -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let transport = if protocol == 6 { 20 } else { 8 };
    packet.extend(vec![0; transport + data]);
    if protocol == 6 {
        packet[34 + 12] = 5 << 4;
    }
    packet
}

fn bytes(flags: u8, kind: u8, segment: u16, start: u16, offset: u16) -> [u8; LEGACY_SIZE] {
    let [s0, s1] = segment.to_le_bytes();
    let [c0, c1] = start.to_le_bytes();
    let [o0, o1] = offset.to_le_bytes();
    [flags, kind, 0xff, 0xff, s0, s1, c0, c1, o0, o1]
}

fn check(bytes: [u8; LEGACY_SIZE], packet: &[u8], negotiated: Offloads) -> Result<NetHeader, Malformed> {
    NetHeader::check(bytes, &packet[..packet.len().min(HEAD)], packet.len(), negotiated)
}

use super::super::packet::HEAD;

#[test]
fn a_guest_without_checksums_is_not_told_that_they_are_right() {
    let flags = |flags: u8, guest: Offloads| NetHeader::of_kernel(bytes(flags, 0, 0, 0, 0), guest)[0];
    assert_eq!([0, 1, 2].map(|one| flags(one, ALL)), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|one| flags(one, Offloads::default())), [0, 1, 0]);
}

#[test]
fn what_is_whole_needs_nothing() {
    // The driver's DATA_VALID flag and its hint of where the headers end are not passed on.
    let header = check(bytes(2, 0, 77, 66, 55), &packet(17, 3), Offloads::default()).unwrap();
    assert_eq!(header, NetHeader::NOTHING);
    assert_eq!(header.bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn work_that_was_agreed_on_goes_on_as_it_came() {
    let kinds = [
        (6, 1, 1448, 16),
        (6, 0x81, 1448, 16),
        // For a peer whose MSS is 48, with timestamps; and the smallest.
        (6, 1, 36, 16),
        (6, 1, 8, 16),
        (17, 5, 1200, 6),
        (17, 3, 1480, 6),
        (17, 0, 0, 6),
    ];
    for (protocol, kind, segment, offset) in kinds {
        let packet = packet(protocol, 5000);
        let header = check(bytes(1, kind, segment, 34, offset), &packet, ALL).unwrap();
        assert_eq!(header.checksum, Some((34, offset)));
        let told = header.bytes();
        assert_eq!((told[0], told[1]), (1, kind));
        let again = check(*told.first_chunk().unwrap(), &packet, ALL).unwrap();
        assert_eq!(again, header);
        let headers = if protocol == 6 { 54 } else { 42 };
        assert_eq!(header.headers, if kind == 0 { 0 } else { headers });
        let pieces = if kind == 0 { 1 } else { 5000_usize.div_ceil(usize::from(segment)) };
        assert_eq!(header.segments(packet.len()), pieces);
        let piece = match kind {
            0 => packet.len(),
            // A fragment has the headers of Ethernet and IP.
            3 => 34 + usize::from(segment),
            _ => usize::from(headers) + usize::from(segment),
        };
        assert_eq!(header.largest_piece(packet.len()), piece);
        assert_eq!(header.largest_piece(60), 60);
        assert!(check(bytes(1, kind, segment, 34, offset), &packet, Offloads::default()).is_err());
    }
}

#[test]
fn what_is_not_agreed_on_or_cannot_be_is_refused() {
    let tcp = packet(6, 5000);
    let refused = |bytes, packet: &[u8]| check(bytes, packet, ALL).unwrap_err();
    let no_ecn = Offloads { ecn: false, ..ALL };
    assert!(matches!(check(bytes(1, 0x81, 1448, 34, 16), &tcp, no_ecn), Err(Malformed::NotNegotiated(0x81))));
    for kind in [2, 6, 7, 0x40, 0x7f] {
        assert_eq!(refused(bytes(1, kind, 1448, 34, 16), &tcp), Malformed::NotNegotiated(kind));
    }
    assert_eq!(refused(bytes(1, 0x83, 1480, 34, 6), &packet(17, 5000)), Malformed::NotNegotiated(0x83));
    for (start, offset) in [(13, 0), (0, 0), (u16::MAX, u16::MAX), (34, 5100), (5074, 0), (5073, 0)] {
        let error = refused(bytes(1, 0, 0, start, offset), &tcp);
        assert!(matches!(error, Malformed::Checksum { .. }), "{start} {offset}: {error}");
    }
    let cuts = [
        // No checksum to complete; a segment size of 0; one that is too small.
        (bytes(0, 1, 1448, 34, 16), &tcp),
        (bytes(1, 1, 0, 34, 16), &tcp),
        (bytes(1, 1, 7, 34, 16), &tcp),
        // The checksum is not where TCP has it.
        (bytes(1, 1, 1448, 38, 16), &tcp),
        (bytes(1, 1, 1448, 34, 6), &tcp),
        // The segmentation is for another IP version or protocol.
        (bytes(1, 4, 1448, 34, 16), &tcp),
        (bytes(1, 5, 1448, 34, 6), &tcp),
    ];
    for (bytes, packet) in cuts {
        assert!(matches!(refused(bytes, packet), Malformed::Segmentation(_)), "{bytes:?}");
    }
    assert!(matches!(refused(bytes(1, 3, 47, 34, 6), &packet(17, 5000)), Malformed::Segmentation(_)));
    assert!(matches!(refused(bytes(1, 5, 0, 34, 6), &packet(17, 9)), Malformed::Segmentation(_)));
    assert!(matches!(refused(bytes(1, 5, 5, 34, 6), &packet(17, 5000)), Malformed::Segmentation(_)));
    assert!(
        matches!(refused(bytes(1, 1, 1448, 34, 16), &packet(6, 0)), Malformed::Segmentation(_)),
        "no data"
    );
    let mut odd = tcp;
    odd[34 + 12] = 4 << 4;
    assert!(
        matches!(refused(bytes(1, 1, 1448, 34, 16), &odd), Malformed::Segmentation(_)),
        "a short TCP header"
    );
}

proptest! {
    /// Whatever the header says: what is accepted lies within its packet.
    #[test]
    fn what_is_accepted_is_within_the_packet(
        bytes: [u8; LEGACY_SIZE],
        kind in prop::sample::select(vec![0_u8, 1, 3, 4, 5, 0x81]),
        protocol in prop::sample::select(vec![6_u8, 17]),
        data in 0..3000_usize,
        start in prop::sample::select(vec![34_u16, 20, 54]),
        doctored: bool,
        flip: (usize, u8),
    ) {
        let mut packet = packet(protocol, data);
        let (at, value) = (flip.0 % packet.len(), flip.1);
        packet[at] = value;
        let mut bytes = bytes;
        if doctored {
            bytes[0] = 1;
            bytes[1] = kind;
            bytes[6..8].copy_from_slice(&start.to_le_bytes());
            bytes[8..10].copy_from_slice(&[if protocol == 6 { 16 } else { 6 }, 0]);
        }
        if let Ok(header) = check(bytes, &packet, ALL) {
            if let Some((start, offset)) = header.checksum {
                prop_assert!(usize::from(start) + usize::from(offset) + 2 <= packet.len());
            }
            if header.segmentation != Segmentation::None {
                prop_assert!(usize::from(header.headers) < packet.len());
                prop_assert!(header.segment > 0);
            }
        }
    }
}
