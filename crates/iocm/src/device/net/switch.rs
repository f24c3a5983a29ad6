//! A learning switch between the network devices of one daemon.
//!
//! It learns the port of an address, floods group and unknown addresses, and ignores VLAN tags. The path of a packet:
//! the worker of the sender's virtqueue copies it to the receiver's [`PortBacklog`], and the worker of the receiver's
//! virtqueue copies it from there to the buffers.

mod backlog;
mod batch;
mod sender;
mod steering;
mod table;

use super::error::NetError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

pub use super::packet::Address;
pub use backlog::PortBacklog;
pub use batch::Batch;
pub use sender::{Forwarded, Sender};
pub use steering::Steering;
pub use table::Table;

/// A port of a switch, the guest's side.
#[derive(Debug)]
pub struct Port {
    /// Its number, unique in the switch.
    pub number: u32,
    /// The address that the configuration assigns to it.
    pub address: Option<Address>,
    /// Drop packets from another address than its own.
    pub checks_source: bool,
    /// The receive queues of its guest, one for each queue pair.
    pub backlogs: Vec<Arc<PortBacklog>>,
    /// The queue pairs by which its guest sends and receives.
    pub steering: Arc<Steering>,
    switch: Arc<Switch>,
}

impl Port {
    /// The switch.
    #[must_use]
    pub const fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }
}

/// The switch's side of a port. It does not keep the device alive.
#[derive(Debug, Clone)]
struct Plugged {
    number: u32,
    backlogs: Vec<Arc<PortBacklog>>,
    steering: Arc<Steering>,
}

impl Plugged {
    /// The number of queue pairs that its guest uses.
    fn open(&self) -> usize {
        let most = self.steering.receives_by();
        self.backlogs.iter().take(most).take_while(|backlog| backlog.is_open()).count()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.switch.unplug(self.number);
    }
}

/// A switch.
#[derive(Debug, Default)]
pub struct Switch {
    table: Table,
    /// Replaced as a whole when a port is added or removed.
    ports: RwLock<Arc<Vec<Plugged>>>,
    next: Mutex<u32>,
}

impl Switch {
    /// The forwarding table.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    fn ports(&self) -> Arc<Vec<Plugged>> {
        Arc::clone(&self.ports.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of ports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ports().len()
    }

    /// Tests whether the switch has no ports.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a port for a guest with this number of queue pairs.
    ///
    /// # Errors
    ///
    /// [`NetError::Address`] when another port has the same address; [`NetError::File`].
    pub fn plug(
        self: &Arc<Self>,
        pairs: u16,
        address: Option<Address>,
        checks_source: bool,
    ) -> Result<Arc<Port>, NetError> {
        let backlogs = (0..pairs).map(|_| PortBacklog::new().map(Arc::new));
        let backlogs = backlogs.collect::<Result<Vec<_>, _>>().map_err(NetError::File)?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *next;
        if let Some(address) = address.filter(|address| !self.table.give(*address, number)) {
            return Err(NetError::Address(address));
        }
        *next += 1;
        let steering = Arc::new(Steering::new(pairs));
        let plugged = Plugged { number, backlogs: backlogs.clone(), steering: Arc::clone(&steering) };
        self.change(|ports| ports.push(plugged));
        Ok(Arc::new(Port { number, address, checks_source, backlogs, steering, switch: Arc::clone(self) }))
    }

    fn unplug(&self, number: u32) {
        self.change(|ports| ports.retain(|port| port.number != number));
        self.table.forget(number);
    }

    fn change(&self, act: impl FnOnce(&mut Vec<Plugged>)) {
        let mut ports = self.ports.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Vec::clone(&ports);
        act(&mut changed);
        *ports = Arc::new(changed);
        drop(ports);
        self.table.change();
    }
}

/// The switches of a daemon by name. A switch exists as long as it has a port.
#[derive(Debug, Default)]
pub struct Switches(Mutex<HashMap<String, Weak<Switch>>>);

impl Switches {
    /// The switch of this name, which is created if it does not exist.
    #[must_use]
    pub fn get(&self, name: &str) -> Arc<Switch> {
        let mut switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        switches.retain(|_, switch| switch.strong_count() > 0);
        if let Some(switch) = switches.get(name).and_then(Weak::upgrade) {
            return switch;
        }
        let switch = Arc::<Switch>::default();
        switches.insert(name.to_owned(), Arc::downgrade(&switch));
        switch
    }
}

#[cfg(test)]
#[path = "switch/switch_tests.rs"]
mod tests;
