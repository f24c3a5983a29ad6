//! Packets that are sent, to nothing or to another port of a switch.

use crate::{BATCH, Outcome, Turn};
use iocm::device::net::switch::Switches;
use iocm::device::net::{LinkOptions, NetDevice, NetOptions};
use iocm::protocol::VirtioFeatures;
use iocm::queue::{Handler, Notifiers, Queue, QueueState};
use iocm::testing::{Driver, NetDriver, OneWorker};
use std::sync::Arc;

const SIZE: u16 = 64;
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

struct Packets {
    sender: NetDriver,
    /// The guest that receives the packets, if there is one.
    receiver: Option<NetDriver>,
    worker: OneWorker,
    frame: Vec<u8>,
}

impl Packets {
    fn new(link: &LinkOptions, receives: bool, size: usize) -> Outcome<Self> {
        let switches = Switches::default();
        let mut worker = OneWorker::new()?;
        let mut serve = |driver: &Driver, handler: Box<dyn Handler>| {
            let state = Arc::<QueueState>::default();
            let mut queue = Queue::new(driver.ring()?, Notifiers::default(), handler, state);
            queue.set_enabled(true);
            worker.add(queue);
            Ok::<(), Box<dyn std::error::Error>>(())
        };
        let device = |mac| {
            NetDevice::open(
                NetOptions { link: link.clone(), mac: Some(mac), ..NetOptions::default() },
                &switches,
            )
        };
        let negotiated = VirtioFeatures(VirtioFeatures::VERSION_1);
        let sender = NetDriver::new(SIZE, super::block::SPLIT);
        serve(&sender.transmit, Box::new(device(MACS[0])?.transmit(0, negotiated)))?;
        let receiver = receives.then(|| NetDriver::new(SIZE, super::block::SPLIT));
        if let Some(receiver) = &receiver {
            serve(&receiver.receive, Box::new(device(MACS[1])?.receive(0, negotiated)))?;
        }
        let mut frame = [&MACS[1][..], &MACS[0], &[0x88, 0xb5]].concat();
        frame.resize(size, 7);
        Ok(Self { sender, receiver, worker, frame })
    }
}

impl Turn for Packets {
    fn submit(&mut self) {
        for _ in 0..BATCH {
            assert!(self.sender.send([0; 10], &self.frame).is_some(), "the ring has room");
            if let Some(receiver) = &mut self.receiver {
                assert!(receiver.offer(2048).is_some(), "the ring has room");
            }
        }
    }

    fn serve(&mut self) {
        // The worker serves the second queue in the same round or in the next one; two rounds are enough.
        self.worker.round();
        self.worker.round();
    }

    fn finish(&mut self) -> usize {
        let sent = std::iter::from_fn(|| self.sender.sent()).count();
        match &mut self.receiver {
            None => sent,
            Some(receiver) => std::iter::from_fn(|| receiver.received()).count().min(sent),
        }
    }
}

/// Packets that the device parses and drops.
pub(crate) fn nothing(size: usize) -> Outcome<Box<dyn Turn>> {
    Ok(Box::new(Packets::new(&LinkOptions::Nothing, false, size)?))
}

/// Packets from port to port.
pub(crate) fn switch(size: usize) -> Outcome<Box<dyn Turn>> {
    let link = LinkOptions::Switch { name: "lan".to_owned(), checks_source: false };
    Ok(Box::new(Packets::new(&link, true, size)?))
}
