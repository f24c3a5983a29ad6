//! The daemon: devices that wait for their front-ends, and the workers that serve them.

mod figures;
mod opened;

use crate::config::{Arrangement, Config, ConfigError, DeviceConfig};
use crate::control::Loads;
use crate::device::block::StorageError;
use crate::device::net::NetError;
use crate::device::net::switch::Switches;
use crate::pool::{Pool, PoolError};
use crate::post::{BoundPost, Post, PostError};
use crate::worker::WorkerError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use figures::{DeviceReport, FORMAT, Figures, QueueReport, WorkerReport};
pub use opened::Opened;

/// A daemon at work. Dropping it ends it: front-ends see the connection close, with all requests ended.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) config: Config,
    devices: Mutex<Devices>,
    pool: Arc<Pool>,
    pub(crate) loads: Loads,
    /// Held while a device is added, so that no two are alike.
    adding: Mutex<()>,
    /// Between its network devices.
    switches: Arc<Switches>,
}

#[derive(Debug, Default)]
struct Devices {
    by_number: BTreeMap<u32, Arc<Placed>>,
    next: u32,
}

/// A device of the daemon.
#[derive(Debug)]
pub(crate) struct Placed {
    /// What it was made from.
    pub(crate) config: DeviceConfig,
    /// Where it waits, and what serves it.
    pub(crate) post: Post,
    /// The worker that is there for it alone.
    pub(crate) own_worker: Option<u32>,
}

/// Why a daemon cannot begin.
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
    Post(#[from] PostError),
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
    #[error("There is a device already that is called {0}, or that waits on its socket")]
    Exists(String),
}

impl Daemon {
    /// Makes workers and devices as a file says.
    ///
    /// # Errors
    /// [`DaemonError`]; nothing is left then.
    pub fn start(config: &Config) -> Result<Self, DaemonError> {
        Self::serve(Opened::open(config)?)
    }

    /// Makes the workers, and has them serve what was opened before. All threads of the daemon begin here.
    ///
    /// # Errors
    /// As of [`Self::start`].
    pub fn serve(mut opened: Opened) -> Result<Self, DaemonError> {
        let (config, switches) = (opened.config.clone(), Arc::clone(&opened.switches));
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
            switches,
        };
        while let Some((config, device, bound)) = opened.next() {
            daemon.place(&config, device, bound)?;
        }
        Ok(daemon)
    }

    /// Opens one more device, and serves it. Its number, which no other ever had.
    ///
    /// # Errors
    /// [`DaemonError`]; nothing is left then.
    pub fn add_device(&self, config: &DeviceConfig) -> Result<u32, DaemonError> {
        config.check()?;
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alike =
            |placed: &Placed| placed.config.name == config.name || placed.config.socket == config.socket;
        if self.placed().iter().any(|(_, placed)| is_alike(placed)) {
            return Err(DaemonError::Exists(config.name.clone()));
        }
        let mut opened = Opened::nothing(&self.switches);
        opened.add(config)?;
        match opened.next() {
            Some((config, device, bound)) => self.place(&config, device, bound),
            None => Err(DaemonError::Exists(config.name.clone())),
        }
    }

    fn place(
        &self,
        config: &DeviceConfig,
        device: Box<dyn crate::device::Device>,
        bound: BoundPost,
    ) -> Result<u32, DaemonError> {
        let own_worker = match self.config.workers.arrangement {
            Arrangement::Shared => None,
            Arrangement::PerDevice => {
                let number = self.devices().next as usize;
                Some(self.pool.add_worker(&self.config.workers.worker(number)?)?)
            }
        };
        let post = Post::wait(config.name.clone(), bound, device, &self.pool)?;
        for queue in &post.served.queues {
            *queue.worker.lock().unwrap_or_else(PoisonError::into_inner) = own_worker;
        }
        let mut devices = self.devices();
        let number = devices.next;
        devices.next += 1;
        devices.by_number.insert(number, Arc::new(Placed { config: config.clone(), post, own_worker }));
        Ok(number)
    }

    /// Ends a device, after all requests that are under way. Whether there was one.
    pub fn remove_device(&self, number: u32) -> bool {
        let Some(placed) = self.device(number) else { return false };
        // Others can look at it meanwhile, and change other devices: it may take as long as a disk does.
        placed.post.close();
        let was_there = self.devices().by_number.remove(&number).is_some();
        if let Some(worker) = placed.own_worker.filter(|_| was_there)
            && let Err(error) = self.pool.remove_worker(worker)
        {
            tracing::debug!("The worker of {} stays: {error}", placed.config.name);
        }
        was_there
    }

    fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its devices by number.
    pub(crate) fn placed(&self) -> Vec<(u32, Arc<Placed>)> {
        self.devices().by_number.iter().map(|(number, placed)| (*number, Arc::clone(placed))).collect()
    }

    /// A device.
    pub(crate) fn device(&self, number: u32) -> Option<Arc<Placed>> {
        self.devices().by_number.get(&number).cloned()
    }

    /// The numbers of its devices, in order.
    pub(crate) fn device_numbers(&self) -> Vec<u32> {
        self.devices().by_number.keys().copied().collect()
    }

    /// Where its devices wait, in the order in which they were made.
    #[must_use]
    pub fn posts(&self) -> Vec<DevicePost> {
        self.placed().into_iter().map(|(_, placed)| DevicePost(placed)).collect()
    }

    /// Its workers.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Whoever still looks at a device keeps it, but not its front-end. All are told first, so that they end at once.
        let placed = self.placed();
        placed.iter().for_each(|(_, placed)| placed.post.begin_to_close());
        placed.iter().for_each(|(_, placed)| placed.post.close());
    }
}

/// Where a device of a daemon waits.
#[derive(Debug, Clone)]
pub struct DevicePost(Arc<Placed>);

impl std::ops::Deref for DevicePost {
    type Target = Post;

    fn deref(&self) -> &Post {
        &self.0.post
    }
}

#[cfg(test)]
#[path = "daemon/daemon_tests.rs"]
mod tests;
