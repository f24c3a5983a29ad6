//! One client of the broker.

use super::packet::{self, Packet, decode};
use crate::crowd::{Happened, Session};

/// The size of the run and the message's number, with which each payload begins.
pub(super) const SMALLEST_MESSAGE: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Publisher,
    Subscriber,
}

/// A client and its protocol state.
pub(crate) struct Client {
    run: u64,
    index: u32,
    role: Role,
    acknowledged: bool,
    identifier: u16,
    pub(super) unacknowledged: u32,
}

/// The topic of subscriber `index`.
pub(super) fn topic(run: u64, index: u32) -> String {
    format!("exitless/{run:x}/{index}")
}

/// The payload of a message.
pub(super) fn message(payload: &mut Vec<u8>, run: u64, number: u64, size: u32) {
    payload.clear();
    payload.extend(run.to_be_bytes());
    payload.extend(number.to_be_bytes());
    payload.resize(size as usize, 0);
}

impl Client {
    pub(super) fn new(run: u64, index: u32, role: Role, acknowledged: bool) -> Self {
        Self { run, index, role, acknowledged, identifier: 0, unacknowledged: 0 }
    }

    /// A subscriber of a run, for fuzzing.
    pub(crate) fn for_fuzzing(run: u64) -> Self {
        Self::new(run, 0, Role::Subscriber, true)
    }

    /// The identifier of a message that will be acknowledged. 0 is not valid (2.3.1).
    pub(super) fn next_identifier(&mut self) -> u16 {
        self.unacknowledged += 1;
        self.identifier = self.identifier.checked_add(1).unwrap_or(1);
        self.identifier
    }

    fn packet(&mut self, packet: Packet<'_>, happened: &mut Vec<Happened>) -> Result<(), String> {
        match packet {
            Packet::Connack(0) if self.role == Role::Publisher => happened.push(Happened::Ready),
            Packet::Connack(0) => {
                let topic = topic(self.run, self.index);
                let request = packet::subscribe(1, &topic, u8::from(self.acknowledged));
                happened.push(Happened::Reply(request));
            }
            Packet::Connack(code) => return Err(format!("refused the client with code {code}")),
            Packet::Suback(code) if code < 0x80 => happened.push(Happened::Ready),
            Packet::Suback(_) => return Err("refused the subscription".to_owned()),
            Packet::Puback => {
                self.unacknowledged = self.unacknowledged.saturating_sub(1);
                happened.push(Happened::Acknowledged);
            }
            Packet::Pingresp => {}
            Packet::Publish { identifier, payload } => {
                happened.extend(identifier.map(|identifier| Happened::Reply(packet::puback(identifier))));
                let bytes = payload.len() as u64;
                let Some((run, rest)) = payload.split_first_chunk::<8>() else { return Ok(()) };
                let Some((number, _)) = rest.split_first_chunk::<8>() else { return Ok(()) };
                // Ignore messages of other runs on the same broker.
                if u64::from_be_bytes(*run) == self.run {
                    happened.push(Happened::Delivery { message: u64::from_be_bytes(*number), bytes });
                }
            }
        }
        Ok(())
    }
}

impl Session for Client {
    fn greeting(&mut self) -> Vec<u8> {
        packet::connect(&format!("exitless-{:x}-{}", self.run, self.index))
    }

    fn take(&mut self, incoming: &[u8], happened: &mut Vec<Happened>) -> Result<usize, String> {
        let mut taken = 0;
        while let Some((packet, length)) = decode(&incoming[taken..]).map_err(|error| error.to_string())? {
            self.packet(packet, happened)?;
            taken += length;
        }
        Ok(taken)
    }
}
