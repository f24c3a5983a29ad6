//! The daemon: devices that wait for their front-ends, and the workers that serve them.

use crate::config::{Arrangement, Config, ConfigError, DeviceConfig, DeviceType};
use crate::device::Device;
use crate::device::block::{BlockDevice, StorageError};
use crate::device::net::switch::Switches;
use crate::device::net::{NetDevice, NetError};
use crate::pool::{Pool, PoolError};
use crate::post::{Post, PostError};
use crate::statistics::{BUCKETS, QueueFigures, WorkerFigures};
use crate::worker::WorkerError;
use serde::Serialize;
use std::sync::{Arc, PoisonError};

/// Number of the form of [`Figures`].
pub const FORMAT: u32 = 1;

/// A daemon at work. Dropping it ends it: front-ends see the connection close, with all requests ended.
#[derive(Debug)]
pub struct Daemon {
    posts: Vec<Post>,
    pool: Arc<Pool>,
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
}

/// What was counted up to now.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// [`FORMAT`].
    pub format: u32,
    /// The workers.
    pub workers: Vec<WorkerReport>,
    /// The devices.
    pub devices: Vec<DeviceReport>,
}

/// A worker's figures.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerReport {
    /// Its number.
    pub worker: u32,
    /// Its thread.
    pub thread: i32,
    /// What was counted.
    #[serde(flatten)]
    pub figures: WorkerFigures,
}

/// A device's figures.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// Whether a front-end is there.
    pub connected: bool,
    /// Its queues.
    pub queues: Vec<QueueReport>,
}

/// A queue's figures.
#[derive(Debug, Clone, Serialize)]
pub struct QueueReport {
    /// Which queue of the device.
    pub queue: usize,
    /// Which worker serves it; `None` while none does.
    pub worker: Option<u32>,
    /// What was counted.
    #[serde(flatten)]
    pub figures: QueueFigures,
    /// How many requests waited at least 2^n nanoseconds before they were taken, and less than twice that.
    pub delays: Vec<u64>,
}

impl Daemon {
    /// Makes workers and devices as a file says.
    ///
    /// # Errors
    /// [`DaemonError`]; nothing is left then.
    pub fn start(config: &Config) -> Result<Self, DaemonError> {
        let pool = Pool::new();
        let shared = config.workers.arrangement == Arrangement::Shared;
        let count = if shared { config.workers.count as usize } else { config.devices.len().max(1) };
        for number in 0..count {
            pool.add_worker(&config.workers.worker(number)?)?;
        }
        let switches = Switches::default();
        let mut posts = Vec::new();
        for (index, device) in config.devices.iter().enumerate() {
            let post = open(device, &pool, &switches)?;
            if !shared {
                for queue in &post.served.queues {
                    *queue.worker.lock().unwrap_or_else(PoisonError::into_inner) = u32::try_from(index).ok();
                }
            }
            posts.push(post);
        }
        Ok(Self { posts, pool })
    }

    /// Its devices.
    #[must_use]
    pub fn posts(&self) -> &[Post] {
        &self.posts
    }

    /// Its workers.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// What was counted up to now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let workers = self.pool.workers().into_iter().map(|worker| WorkerReport {
            worker: worker.number(),
            thread: worker.thread_id(),
            figures: worker.counters().read(),
        });
        let devices = self.posts.iter().map(|post| DeviceReport {
            name: post.name.clone(),
            kind: post.served.device.kind(),
            connected: post.is_connected(),
            queues: post
                .served
                .queues
                .iter()
                .enumerate()
                .map(|(queue, served)| {
                    let key = *served.key.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut delays = served.state.delays.counts().to_vec();
                    let used =
                        (0..BUCKETS).rev().find(|bucket| delays[*bucket] > 0).map_or(0, |bucket| bucket + 1);
                    delays.truncate(used);
                    QueueReport {
                        queue,
                        worker: key.and_then(|key| self.pool.place(key)),
                        figures: served.state.counters.read(),
                        delays,
                    }
                })
                .collect(),
        });
        Figures { format: FORMAT, workers: workers.collect(), devices: devices.collect() }
    }
}

fn open(config: &DeviceConfig, pool: &Arc<Pool>, switches: &Switches) -> Result<Post, DaemonError> {
    let storage = |source| DaemonError::Storage { name: config.name.clone(), source };
    let net = |source| DaemonError::Net { name: config.name.clone(), source };
    let device: Box<dyn Device> = match config.kind {
        DeviceType::Block => Box::new(BlockDevice::open(config.block()).map_err(storage)?),
        DeviceType::Net => Box::new(NetDevice::open(config.net()?, switches).map_err(net)?),
    };
    Ok(Post::open(config.name.clone(), &config.socket, device, pool)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RingFeatures;
    use crate::testing::{BlockDriver, FrontEnd};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn config(directory: &std::path::Path, arrangement: &str) -> Config {
        let devices = (0..3).map(|number| {
            let socket = directory.join(format!("{number}.sock"));
            format!("[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\n")
        });
        let devices: String = devices.collect();
        Config::parse(&format!("[workers]\narrangement = \"{arrangement}\"\n{devices}")).unwrap()
    }

    #[test]
    fn devices_are_given_to_workers_as_they_are_to_be() {
        for (arrangement, workers) in [("shared", [0, 0, 0]), ("per-device", [0, 1, 2])] {
            let directory = tempfile::tempdir().unwrap();
            let daemon = Daemon::start(&config(directory.path(), arrangement)).unwrap();
            let mut fronts = Vec::new();
            for post in daemon.posts() {
                let driver = BlockDriver::new(16, RingFeatures::default());
                let mut front = FrontEnd::new(UnixStream::connect(&post.socket).unwrap()).unwrap();
                front.agree(&driver.driver, 0).unwrap();
                assert!(front.start(0, &driver.driver.place(), 16, 0).unwrap());
                fronts.push((front, driver));
            }
            let figures = daemon.figures();
            let places: Vec<_> = figures.devices.iter().map(|device| device.queues[0].worker).collect();
            assert_eq!(places, workers.map(Some));
            assert!(figures.devices.iter().all(|device| device.connected));
            let text = serde_json::to_string(&figures).unwrap();
            assert!(text.contains("\"kicks_saved\":0") && text.contains("\"naps\":"), "{text}");
            let sockets: Vec<_> = daemon.posts().iter().map(|post| post.socket.clone()).collect();
            drop(daemon);
            assert!(sockets.iter().all(|socket| !socket.exists()), "nothing is left");
            for (mut front, _) in fronts {
                assert!(front.ask(1).is_err(), "the connection is closed");
            }
        }
    }

    #[test]
    fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path(), "shared");
        drop(std::os::unix::net::UnixListener::bind(&config.devices[0].socket).unwrap());
        let daemon = Daemon::start(&config).unwrap();
        let error = Daemon::start(&config).unwrap_err();
        assert!(error.to_string().contains("0.sock"), "{error}");
        std::thread::sleep(Duration::from_millis(10));
        assert!(daemon.posts()[0].socket.exists());
    }
}
