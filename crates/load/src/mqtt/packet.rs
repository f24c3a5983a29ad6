//! The packets of MQTT 3.1.1 that a client sends and receives (OASIS standard, sections 2 and 3).

/// The longest packet that is accepted.
const LONGEST: usize = 1 << 20;

/// A packet from the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// 3.2: the return code, 0 if accepted.
    Connack(u8),
    /// 3.9: the first return code, 0x80 if refused.
    Suback(u8),
    /// 3.3: the payload, and the identifier if the quality of service has one.
    Publish { identifier: Option<u16>, payload: &'a [u8] },
    /// 3.4.
    Puback,
    /// 3.13.
    Pingresp,
}

/// The reason why bytes are not a packet from a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sent {0}")]
pub(crate) struct Malformed(&'static str);

/// The first packet, and its length; `None` while it is incomplete.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    let Some((length, digits)) = remaining_length(rest)? else { return Ok(None) };
    let Some(body) = rest.get(digits..digits + length) else { return Ok(None) };
    Ok(Some((packet(first, body)?, 1 + digits + length)))
}

/// 2.2.3: seven bits a byte, the lowest first, four bytes at most.
fn remaining_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut length = 0;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let fits = length <= LONGEST;
            return if fits { Ok(Some((length, index + 1))) } else { Err(Malformed("a packet above 1 MiB")) };
        }
    }
    if bytes.len() >= 4 { Err(Malformed("a length of more than four bytes")) } else { Ok(None) }
}

fn packet(first: u8, body: &[u8]) -> Result<Packet<'_>, Malformed> {
    match (first >> 4, body) {
        (2, &[_, code]) => Ok(Packet::Connack(code)),
        (3, _) => publish(first, body),
        (4, &[_, _]) => Ok(Packet::Puback),
        (9, &[_, _, code, ..]) => Ok(Packet::Suback(code)),
        (13, []) => Ok(Packet::Pingresp),
        _ => Err(Malformed("a packet that no client expects")),
    }
}

fn publish(first: u8, body: &[u8]) -> Result<Packet<'_>, Malformed> {
    let short = Malformed("a message that is shorter than its own fields");
    let (length, rest) = body.split_first_chunk::<2>().ok_or(short)?;
    let rest = rest.get(usize::from(u16::from_be_bytes(*length))..).ok_or(short)?;
    match (first >> 1) & 3 {
        0 => Ok(Packet::Publish { identifier: None, payload: rest }),
        1 => {
            let (identifier, payload) = rest.split_first_chunk::<2>().ok_or(short)?;
            Ok(Packet::Publish { identifier: Some(u16::from_be_bytes(*identifier)), payload })
        }
        _ => Err(Malformed("a message of a quality of service that was not asked for")),
    }
}

/// 3.1: a clean session without keep-alive.
pub(crate) fn connect(client: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + client.len());
    text(&mut body, "MQTT");
    // Protocol level 4; clean session; keep alive off.
    body.extend([4, 2, 0, 0]);
    text(&mut body, client);
    whole(0x10, &body)
}

/// 3.8: one topic.
pub(crate) fn subscribe(identifier: u16, topic: &str, quality: u8) -> Vec<u8> {
    let mut body = identifier.to_be_bytes().to_vec();
    text(&mut body, topic);
    body.push(quality);
    whole(0x82, &body)
}

/// 3.3: with an identifier at quality of service 1, without one at 0.
pub(crate) fn publish_to(packet: &mut Vec<u8>, topic: &str, identifier: Option<u16>, payload: &[u8]) {
    packet.clear();
    packet.push(0x30 | u8::from(identifier.is_some()) << 1);
    let length = 2 + topic.len() + if identifier.is_some() { 2 } else { 0 } + payload.len();
    push_length(packet, length);
    text(packet, topic);
    packet.extend(identifier.into_iter().flat_map(u16::to_be_bytes));
    packet.extend_from_slice(payload);
}

/// 3.4.
pub(crate) fn puback(identifier: u16) -> Vec<u8> {
    whole(0x40, &identifier.to_be_bytes())
}

fn whole(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(body.len() + 5);
    packet.push(first);
    push_length(&mut packet, body.len());
    packet.extend_from_slice(body);
    packet
}

fn push_length(packet: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    loop {
        let digit = (rest & 0x7f) as u8;
        rest >>= 7;
        packet.push(if rest > 0 { digit | 0x80 } else { digit });
        if rest == 0 {
            return;
        }
    }
}

/// 1.5.3: a string with its length. Our strings are short; a longer one than the length allows is cut.
fn text(packet: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    packet.extend(length.to_be_bytes());
    packet.extend_from_slice(&text.as_bytes()[..length.into()]);
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
