//! The daemon: its devices, each with an endpoint, and its workers.

mod bound;
mod figures;
mod loads;

use crate::accounts::AccountError;
use crate::config::{Arrangement, Config, ConfigError, DeviceConfig};
use crate::device::block::StorageError;
use crate::device::net::NetError;
use crate::device::net::switch::Switches;
use crate::endpoint::{BoundEndpoint, Endpoint, EndpointError};
use crate::inherited::Inheritance;
use crate::pool::{Pool, PoolError};
use crate::worker::WorkerError;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bound::RefusedDevice;

pub use bound::BoundDevices;
pub use figures::{DaemonFigures, DeviceReport, FORMAT, QueueReport, WorkerReport};
pub(crate) use loads::Loads;

/// A running daemon. Dropping it ends all requests in flight and disconnects its front-ends.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) config: Config,
    devices: Mutex<Devices>,
    pool: Arc<Pool>,
    pub(crate) loads: Loads,
    /// The names and sockets of devices that are being added, so that no two have the same. Opening a device may wait
    /// for a file server, so no lock is held meanwhile.
    adding: Mutex<Vec<(String, PathBuf)>>,
    /// Held while a device gets its worker and its number.
    numbering: Mutex<()>,
    /// The switches between its network devices.
    switches: Arc<Switches>,
    refused: Mutex<Vec<RefusedDevice>>,
}

#[derive(Debug, Default)]
struct Devices {
    by_number: BTreeMap<u32, Arc<Endpoint>>,
    next: u32,
    /// No device is added any more.
    has_ended: bool,
}

/// A failure to start, or to add a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is another's error")]
pub enum DaemonError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("Device {name} cannot be served")]
    Storage {
        name: String,
        #[source]
        source: StorageError,
    },
    #[error("Device {name} cannot be served")]
    Net {
        name: String,
        #[source]
        source: NetError,
    },
    #[error("Another device has the name {0}, or the same socket")]
    Exists(String),
    #[error("Device {0} cannot be added, because the daemon is stopping; add it to the next daemon")]
    Ended(String),
}

impl Daemon {
    /// Makes the workers and the devices of a configuration.
    ///
    /// # Errors
    ///
    /// [`DaemonError`]; nothing is left then.
    pub fn start(config: &Config) -> Result<Self, DaemonError> {
        Self::serve(BoundDevices::open(config, &mut Inheritance::default())?)
    }

    /// Starts the workers, and serves the devices that were bound before. All threads of the daemon start here.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`].
    pub fn serve(mut bound: BoundDevices) -> Result<Self, DaemonError> {
        let (config, switches) = (bound.config.clone(), Arc::clone(&bound.switches));
        let refused = Mutex::new(std::mem::take(&mut bound.refused));
        let pool = Pool::new();
        if config.workers.arrangement == Arrangement::Shared || config.devices.is_empty() {
            for number in 0..config.workers.count as usize {
                pool.add_worker(&config.workers.worker(number)?)?;
            }
        }
        let daemon = Self {
            config,
            devices: Mutex::default(),
            pool,
            loads: Loads::default(),
            adding: Mutex::default(),
            numbering: Mutex::default(),
            switches,
            refused,
        };
        while let Some((config, device, bound)) = bound.next() {
            // A device's number is its place in the file, which also tells the CPUs of its own worker, even if devices
            // before it are not served.
            let place = daemon.config.devices.iter().position(|other| other.name == config.name);
            daemon.devices().next = place.map_or(0, |place| place as u32);
            daemon.serve_device(config, device, bound)?;
        }
        daemon.devices().next = daemon.config.devices.len() as u32;
        Ok(daemon)
    }

    /// Opens and serves one more device. Returns its number, which is never used again.
    ///
    /// # Errors
    ///
    /// [`DaemonError`]; nothing is left then.
    pub(crate) fn add_device(&self, config: &DeviceConfig) -> Result<u32, DaemonError> {
        config.check()?;
        if config.socket_owner.is_some() || config.socket_group.is_some() {
            let what = format!(
                "socket-owner and socket-group of {} can only be set while the daemon starts: leave them out, or name the \
                 device in the daemon's file",
                config.name
            );
            return Err(ConfigError::Invalid(what).into());
        }
        if config.backend.as_ref().is_some_and(|backend| backend.netns.is_some()) {
            // Entering a network namespace needs privileges that the daemon has dropped, and its filter forbids it.
            let what = format!(
                "netns of {} can only be used while the daemon starts: leave it out, or name the device in the daemon's file",
                config.name
            );
            return Err(ConfigError::Invalid(what).into());
        }
        if config.backend.as_ref().is_some_and(|backend| backend.tap_fds.is_some()) {
            // By now the numbers name other descriptors of the daemon, such as the taps of other VMs.
            let what = format!(
                "tap-fds of {} can only be used while the daemon starts: name an interface as tap, or name the \
                 device in the daemon's file",
                config.name
            );
            return Err(ConfigError::Invalid(what).into());
        }
        let _adding = Adding::new(self, config).ok_or_else(|| DaemonError::Exists(config.name.clone()))?;
        let mut bound = BoundDevices::nothing(&self.config, &self.switches);
        bound.add(config, &mut Inheritance::default())?;
        let number = match bound.next() {
            Some((config, device, bound)) => self.serve_device(config, device, bound)?,
            None => return Err(DaemonError::Exists(config.name.clone())),
        };
        // It takes the place of one that could not be served.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|other| other.config.name != config.name && other.config.socket != config.socket);
        drop(refused);
        Ok(number)
    }

    /// The devices of its file that are not served.
    pub(crate) fn refused(&self) -> Vec<RefusedDevice> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serve_device(
        &self,
        config: DeviceConfig,
        device: Box<dyn crate::device::Device>,
        bound: BoundEndpoint,
    ) -> Result<u32, DaemonError> {
        let _numbering = self.numbering.lock().unwrap_or_else(PoisonError::into_inner);
        if self.devices().has_ended {
            return Err(DaemonError::Ended(config.name));
        }
        let own_worker = match self.config.workers.arrangement {
            Arrangement::Shared => None,
            Arrangement::PerDevice => {
                let number = self.devices().next as usize;
                let worker = self.pool.add_worker(&self.config.workers.worker(number)?)?;
                self.loads.begin(worker);
                Some(worker)
            }
        };
        let endpoint = Endpoint::serve(config, bound, device, own_worker, &self.pool)
            .inspect_err(|_| own_worker.into_iter().for_each(|worker| self.remove_own_worker(worker)))?;
        let mut devices = self.devices();
        let number = devices.next;
        devices.next += 1;
        devices.by_number.insert(number, Arc::new(endpoint));
        Ok(number)
    }

    /// Removes a device after its requests in flight have ended. `false` when there is no such device.
    pub(crate) fn remove_device(&self, number: u32) -> bool {
        let Some(endpoint) = self.endpoint(number) else { return false };
        // Closing may wait for a disk, so the lock is not held.
        endpoint.remove();
        let was_there = self.devices().by_number.remove(&number).is_some();
        if let Some(worker) = endpoint.own_worker.filter(|_| was_there) {
            self.remove_own_worker(worker);
        }
        was_there
    }

    /// Removes the worker of one device.
    fn remove_own_worker(&self, worker: u32) {
        match self.pool.remove_worker(worker) {
            Ok(()) => self.loads.forget(worker),
            Err(error) => tracing::debug!("Worker {worker}, which had a device of its own, stays: {error}"),
        }
    }

    /// Ends all requests in flight, disconnects the front-ends, and lets no device be added any more.
    pub(crate) fn end(&self) {
        let endpoints: Vec<_> = {
            // A device that is being added is either among these or refused.
            let _numbering = self.numbering.lock().unwrap_or_else(PoisonError::into_inner);
            let mut devices = self.devices();
            devices.has_ended = true;
            devices.by_number.values().cloned().collect()
        };
        // Others may still hold endpoints, so close them here. Tell all first, so that they close at the same time.
        endpoints.iter().for_each(|endpoint| endpoint.begin_to_close());
        let deadline = Endpoint::deadline();
        endpoints.iter().for_each(|endpoint| endpoint.close(deadline));
    }

    fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoints of its devices, by device number.
    pub(crate) fn numbered_endpoints(&self) -> Vec<(u32, Arc<Endpoint>)> {
        self.devices().by_number.iter().map(|(number, endpoint)| (*number, Arc::clone(endpoint))).collect()
    }

    /// The endpoint of one device.
    pub(crate) fn endpoint(&self, number: u32) -> Option<Arc<Endpoint>> {
        self.devices().by_number.get(&number).cloned()
    }

    /// The numbers of its devices, ascending.
    pub(crate) fn device_numbers(&self) -> Vec<u32> {
        self.devices().by_number.keys().copied().collect()
    }

    /// The endpoints of its devices, in the order in which they were made.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.devices().by_number.values().cloned().collect()
    }

    /// Its workers.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

/// A device that is being added. Dropping it frees its name and its socket, unless a device has them by then.
struct Adding<'a> {
    daemon: &'a Daemon,
    config: &'a DeviceConfig,
}

impl<'a> Adding<'a> {
    /// `None` if another device has the same name or socket.
    fn new(daemon: &'a Daemon, config: &'a DeviceConfig) -> Option<Self> {
        let mut adding = daemon.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alike = |name: &String, socket: &PathBuf| *name == config.name || *socket == config.socket;
        let is_taken = adding.iter().any(|(name, socket)| is_alike(name, socket))
            || daemon.endpoints().iter().any(|other| is_alike(&other.config.name, &other.config.socket));
        if is_taken {
            return None;
        }
        adding.push((config.name.clone(), config.socket.clone()));
        drop(adding);
        Some(Self { daemon, config })
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        let mut adding = self.daemon.adding.lock().unwrap_or_else(PoisonError::into_inner);
        adding.retain(|(name, _)| *name != self.config.name);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
#[path = "daemon/daemon_tests.rs"]
mod tests;
