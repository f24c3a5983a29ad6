//! The files and sockets of a daemon, bound before it gives up the privileges to open them.

use super::DaemonError;
use crate::config::{Config, DeviceConfig, DeviceType, SocketsConfig};
use crate::device::Device;
use crate::device::block::BlockDevice;
use crate::device::net::switch::Switches;
use crate::device::net::{LinkOptions, NetDevice};
use crate::endpoint::{BoundEndpoint, Endpoint};
use crate::inherited::{Inheritance, InheritedSocket};
use crate::socket_file::SocketAccess;
use exits::with_causes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Devices with open files and listening sockets. Dropping them removes the sockets.
#[derive(Debug)]
pub struct BoundDevices {
    pub(super) config: Config,
    pub(super) switches: Arc<Switches>,
    devices: VecDeque<(DeviceConfig, Box<dyn Device>, BoundEndpoint)>,
    pub(super) refused: Vec<RefusedDevice>,
    /// They are added to a running daemon.
    late: bool,
}

/// A device that the daemon's file names, and that is not served because its disk cannot be used.
#[derive(Debug, Clone)]
pub(crate) struct RefusedDevice {
    pub(crate) config: DeviceConfig,
    /// The reason, in one line.
    pub(crate) why: String,
}

impl BoundDevices {
    /// Opens what a configuration names, with the sockets that were inherited. A disk that cannot be used is left out
    /// beside other devices: a guest can write to its disk what makes it look like an image, and other guests do not pay
    /// for that.
    ///
    /// # Errors
    ///
    /// [`DaemonError`]; nothing is left then.
    pub fn open(config: &Config, inheritance: &mut Inheritance) -> Result<Self, DaemonError> {
        let mut bound = Self::empty(config.clone(), Arc::default(), false);
        // Before any of them opens a tap: that could get the number of a descriptor that was not inherited.
        config.devices.iter().try_for_each(check_inherited)?;
        let mut first = None;
        for device in &config.devices {
            match bound.add(device, inheritance) {
                Err(DaemonError::Storage { name, source }) => {
                    bound.refused.push(RefusedDevice { config: device.clone(), why: with_causes(&source) });
                    first.get_or_insert(DaemonError::Storage { name, source });
                }
                outcome => outcome?,
            }
        }
        match first {
            Some(error) if bound.devices.is_empty() => return Err(error),
            _ => {}
        }
        for RefusedDevice { config, why } in &bound.refused {
            tracing::error!("Device {} is not served, but the others are: {why}", config.name);
        }
        Ok(bound)
    }

    /// Opens one device for a single front-end, which connects through `socket` if there is one, and else through the
    /// device's own socket.
    ///
    /// # Errors
    ///
    /// [`DaemonError`]; nothing is left then.
    pub fn open_one(
        config: &Config,
        device: &DeviceConfig,
        socket: Option<InheritedSocket>,
    ) -> Result<Self, DaemonError> {
        let config = Config { devices: vec![device.clone()], ..config.clone() };
        let mut bound = Self::empty(config, Arc::default(), false);
        let served = open(device, &bound.switches)?;
        let endpoint = match socket {
            Some(socket) => Endpoint::inherit(socket)?,
            None => Endpoint::bind(&device.socket, SocketAccess::default(), &mut Inheritance::default())?,
        };
        bound.devices.push_back((device.clone(), served, endpoint.once()));
        Ok(bound)
    }

    fn empty(config: Config, switches: Arc<Switches>, late: bool) -> Self {
        Self { config, switches, devices: VecDeque::new(), refused: Vec::new(), late }
    }

    /// No devices: one of a running daemon is added later. Its socket gets the mode of `[sockets]`, less the umask, but not
    /// the owner and group, because the daemon may no longer have the privilege to set them.
    pub(super) fn nothing(of: &Config, switches: &Arc<Switches>) -> Self {
        let sockets = SocketsConfig { owner: None, group: None, ..of.sockets.clone() };
        let config = Config { sockets, ..Config::default() };
        Self::empty(config, Arc::clone(switches), true)
    }

    pub(super) fn add(
        &mut self,
        config: &DeviceConfig,
        inheritance: &mut Inheritance,
    ) -> Result<(), DaemonError> {
        let access = config.sockets().or(&self.config.sockets).access()?;
        let access = SocketAccess { less_umask: self.late, ..access };
        let device = open(config, &self.switches)?;
        let bound = Endpoint::bind(&config.socket, access, inheritance)?;
        self.devices.push_back((config.clone(), device, bound));
        Ok(())
    }

    pub(super) fn next(&mut self) -> Option<(DeviceConfig, Box<dyn Device>, BoundEndpoint)> {
        self.devices.pop_front()
    }
}

/// Tests whether the descriptors that a device names are those of a tap.
fn check_inherited(config: &DeviceConfig) -> Result<(), DaemonError> {
    let net = |source| DaemonError::Net { name: config.name.clone(), source };
    match config.kind {
        DeviceType::Block => Ok(()),
        DeviceType::Net => match config.net()?.link {
            LinkOptions::Tap(tap) => tap.check_inherited(config.queues).map_err(net),
            LinkOptions::Nothing | LinkOptions::Switch { .. } => Ok(()),
        },
    }
}

fn open(config: &DeviceConfig, switches: &Switches) -> Result<Box<dyn Device>, DaemonError> {
    let storage = |source| DaemonError::Storage { name: config.name.clone(), source };
    let net = |source| DaemonError::Net { name: config.name.clone(), source };
    match config.kind {
        DeviceType::Block => Ok(Box::new(BlockDevice::open(config.block()).map_err(storage)?)),
        DeviceType::Net => Ok(Box::new(NetDevice::open(config.net()?, switches).map_err(net)?)),
    }
}
