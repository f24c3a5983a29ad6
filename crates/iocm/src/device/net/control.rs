//! The control virtqueue (VIRTIO 1.3, 5.1.6.5).
//!
//! QEMU and others serve it themselves, and enable the queues of the pairs in use. For a front-end that does not, it is
//! served here: such a front-end enables all queues. The only thing to configure is the number of pairs in use.

use super::NetDevice;
use crate::queue::{Handler, Submitter, Token, Virtqueue, WorkDone};
use crate::ring::{Chain, RingError, Side};
use std::sync::Arc;

/// `VIRTIO_NET_OK` and `VIRTIO_NET_ERR`.
const OK: u8 = 0;
const ERROR: u8 = 1;

/// The handler of the control virtqueue.
pub(super) struct ControlQueue {
    device: Arc<NetDevice>,
    chain: Chain,
    /// The number of pairs that the guest may use.
    pairs: u16,
}

impl ControlQueue {
    pub(super) fn new(device: Arc<NetDevice>, pairs: u16) -> Self {
        Self { device, chain: Chain::new(), pairs }
    }

    /// Handles a command: its class, its number, and its data.
    fn handle(&self, bytes: &[u8]) -> u8 {
        match bytes {
            // `VIRTIO_NET_CTRL_MQ`.
            [4, 0, low, high, ..] => match u16::from_le_bytes([*low, *high]) {
                pairs if (1..=self.pairs).contains(&pairs) => {
                    self.device.receive_by(pairs);
                    OK
                }
                _ => ERROR,
            },
            // Receive modes and the table of addresses to receive, which have no effect because a guest gets all packets
            // of its port, and the acknowledgement of an announcement.
            [0 | 3, ..] | [1, 0, ..] => OK,
            _ => ERROR,
        }
    }
}

impl Handler for ControlQueue {
    fn serve(&mut self, queue: &mut Virtqueue, _submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        let mut work = WorkDone::default();
        while work.units() < budget && queue.pop(&mut self.chain) {
            work.requests += 1;
            work.extra += self.chain.extra_units(queue.memory()) as u32;
            let mut bytes = [0; 8];
            let count = self.chain.read(0, &mut bytes);
            let room = self.chain.bytes(Side::Writable);
            if count == 0 && room > 1 {
                queue.give_up(RingError::NoCommand);
                break;
            }
            let answer = self.handle(&bytes[..count]);
            if answer != OK {
                queue.count_error();
            }
            // The answer is the last byte.
            let written = if room > 0 { self.chain.write(room - 1, &[answer]) } else { 0 };
            for part in self.chain.pieces(Side::Writable, room.saturating_sub(1), written as u64) {
                queue.memory().wrote(part.guest, u64::from(part.size));
            }
            queue.push(self.chain.id, u32::try_from(room).unwrap_or(u32::MAX), 0);
        }
        work.more = work.units() >= budget;
        work
    }

    fn complete(&mut self, _queue: &mut Virtqueue, _token: Token, _result: i32) {}

    fn in_flight(&self) -> usize {
        0
    }
}
