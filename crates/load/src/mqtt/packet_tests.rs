use super::*;
use proptest::prelude::*;

#[test]
fn packets_are_those_of_the_standard() {
    // The fields are those of the example in 3.1.3, except for the client identifier.
    assert_eq!(connect("a"), b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a");
    assert_eq!(subscribe(10, "a/b", 1), b"\x82\x08\x00\x0a\x00\x03a/b\x01");
    assert_eq!(puback(0x0102), b"\x40\x02\x01\x02");
    let mut packet = vec![9];
    publish_to(&mut packet, "a/b", None, b"xy");
    assert_eq!(packet, b"\x30\x07\x00\x03a/bxy");
    publish_to(&mut packet, "a/b", Some(10), b"");
    assert_eq!(packet, b"\x32\x07\x00\x03a/b\x00\x0a");
}

#[test]
fn packets_of_a_broker_are_read() {
    let read = |bytes: &'static [u8]| decode(bytes).map(|found| found.map(|(packet, _)| packet));
    assert_eq!(read(b"\x20\x02\x00\x05"), Ok(Some(Packet::Connack(5))));
    assert_eq!(read(b"\x90\x03\x00\x01\x80"), Ok(Some(Packet::Suback(0x80))));
    assert_eq!(read(b"\x40\x02\x00\x01"), Ok(Some(Packet::Puback)));
    assert_eq!(read(b"\xd0\x00"), Ok(Some(Packet::Pingresp)));
    assert_eq!(read(b"\x20\x02\x00"), Ok(None));
    assert_eq!(read(b"\x30\x80"), Ok(None));
    let message = Packet::Publish { identifier: Some(7), payload: b"z" };
    assert_eq!(read(b"\x32\x06\x00\x01t\x00\x07z"), Ok(Some(message)));
}

#[test]
fn what_no_broker_sends_is_refused() {
    for bytes in
        [&b"\x30\xff\xff\xff\xff"[..], b"\x30\xff\xff\xff\x7f", b"\x34\x04\x00\x00\x00\x01", b"\x30\x01\x00"]
    {
        assert!(decode(bytes).is_err(), "{bytes:x?}");
    }
    assert!(decode(b"\x10\x00").is_err());
    assert!(decode(b"\x30\x02\x00\x05").is_err());
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written(payload: Vec<u8>, identifier: Option<u16>, topic in "[a-z/]{0,20}") {
        let mut packet = Vec::new();
        publish_to(&mut packet, &topic, identifier, &payload);
        let length = packet.len();
        prop_assert_eq!(decode(&packet[..length - 1]), Ok(None));
        packet.push(0x20);
        let message = Packet::Publish { identifier, payload: &payload };
        prop_assert_eq!(decode(&packet), Ok(Some((message, length))));
    }

    #[test]
    fn any_bytes_are_a_packet_or_not(bytes: Vec<u8>) {
        if let Ok(Some((_, length))) = decode(&bytes) {
            prop_assert!(length <= bytes.len() && length > 0);
        }
    }
}
