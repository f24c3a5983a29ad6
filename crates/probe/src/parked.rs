//! The vCPU that never runs: the handle by which the VM's interrupt virtualization is inhibited. It has a
//! thread of its own, so that one thread makes all the changes and a tracer can tell them by its id.

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
                // The receiver waits for this one message before anything else.
                let _ = hello.send(threads::id());
                for order in inbox {
                    let result = inhibit::set(&fd, order.mechanism, order.inhibit);
                    // Whoever ordered waits for it.
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

    /// Sets or lifts the inhibit; KVM has told every vCPU when this returns.
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
