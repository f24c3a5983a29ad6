//! The vCPU that never runs: inhibits are set and lifted through it. It has a thread of its own, so all
//! changes come from one thread and a tracer recognizes them by its ID.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use kvm_ioctls::VcpuFd;

use crate::error::Error;
use crate::inhibit::{self, InhibitMechanism};
use crate::threads;

struct Order {
    mechanism: InhibitMechanism,
    inhibit: bool,
    done: Sender<Result<(), Error>>,
}

/// The handle of the parked vCPU and its thread.
#[derive(Debug)]
pub(crate) struct Parked {
    index: u16,
    tid: i32,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Parked {
    pub(crate) fn start(index: u16, fd: VcpuFd) -> Result<Self, Error> {
        let (orders, inbox) = channel::<Order>();
        let (hello, greeting) = channel();
        let thread = std::thread::Builder::new()
            .name("vcpu parked".to_owned())
            .spawn(move || {
                // Cannot fail: the receiver waits for this message first.
                let _ = hello.send(threads::id());
                for order in inbox {
                    let result = inhibit::set(&fd, order.mechanism, order.inhibit);
                    // Cannot fail: `set` waits for the result.
                    let _ = order.done.send(result);
                }
            })
            .map_err(Error::host("start a thread for the parked vCPU"))?;
        let tid = greeting.recv().map_err(|_| Error::ThreadGone { vcpu: index })?;
        Ok(Self { index, tid, orders: Some(orders), thread: Some(thread) })
    }

    /// The thread that makes the changes.
    pub(crate) fn tid(&self) -> i32 {
        self.tid
    }

    /// Sets or lifts the inhibit. When this returns, KVM has notified every vCPU.
    pub(crate) fn set(&self, mechanism: InhibitMechanism, inhibit: bool) -> Result<(), Error> {
        let gone = || Error::ThreadGone { vcpu: self.index };
        let (done, result) = channel();
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(Order { mechanism, inhibit, done }).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())?
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.orders = None;
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("the thread of the parked vCPU panicked");
        }
    }
}
