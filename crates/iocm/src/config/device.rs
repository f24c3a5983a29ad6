//! Devices in the configuration file.

use super::net::{self, NetBackend};
use super::{ConfigError, SocketsConfig, is_usual};
use crate::device::block::{BlockOptions, SECTOR, SERIAL_BYTES};
use crate::device::net::{LinkOptions, NetOptions};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DeviceConfig {
    /// The name of the device, unique in the file.
    pub name: String,
    /// The type of the device.
    #[serde(rename = "type")]
    pub kind: DeviceType,
    /// The vhost-user socket on which it listens.
    pub socket: PathBuf,
    /// The user who owns the socket, in place of that of `[sockets]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_owner: Option<String>,
    /// The group of the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<String>,
    /// The mode of the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<String>,
    /// A raw file or a block device. Without a path the disk is a null disk for benchmarks, which discards writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The format of the file. If it is not set, what looks like an image of another format than `raw` is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,
    /// The size of a null disk, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_size_bytes: Option<u64>,
    /// The guest may only read.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub read_only: bool,
    /// Others who share the file too may write to it while this device is in use (QEMU's `share-rw`).
    #[serde(default, skip_serializing_if = "is_usual")]
    pub share_rw: bool,
    /// Bypass the host's page cache (`O_DIRECT`).
    #[serde(default, skip_serializing_if = "is_usual")]
    pub direct: bool,
    /// The block size of the disk that the guest sees, bytes: 512, 1024, 2048 or 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// The serial number of the disk, at most 20 bytes.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub serial: String,
    /// The largest number of queues; for a network device, of queue pairs.
    #[serde(default = "one")]
    pub queues: u16,
    /// The tap or switch behind a network device. Without one, packets are parsed and dropped, for benchmarks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<NetBackend>,
    /// The MAC address of a network device, such as `52:54:00:12:34:56`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The MTU of a network device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The limit of requests per second; 0 for none.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub requests_per_second: u64,
    /// The limit of bytes per second; 0 for none.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub bytes_per_second: u64,
}

/// The types of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceType {
    /// A disk.
    Block,
    /// A network device.
    Net,
}

/// The format of a disk's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFormat {
    /// The blocks of the disk, and nothing else.
    Raw,
}

const fn one() -> u16 {
    1
}

impl DeviceConfig {
    /// A device with default values.
    #[must_use]
    pub fn new(name: &str, kind: DeviceType, socket: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            socket,
            socket_owner: None,
            socket_group: None,
            socket_mode: None,
            path: None,
            format: None,
            null_size_bytes: None,
            read_only: false,
            share_rw: false,
            direct: false,
            block_size: None,
            serial: String::new(),
            queues: one(),
            backend: None,
            mac: None,
            mtu: None,
            requests_per_second: 0,
            bytes_per_second: 0,
        }
    }

    /// Checks the values that do not depend on other devices.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let invalid = |what: String| Err(ConfigError::Invalid(what));
        let name = &self.name;
        if name.is_empty() || name.chars().any(char::is_control) {
            return invalid("a device's name is one line of text".to_owned());
        }
        if self.serial.len() > SERIAL_BYTES {
            return invalid(format!("the serial number of {name} has more than {SERIAL_BYTES} bytes"));
        }
        if let Some(size) = self.block_size.filter(|size| ![512, 1024, 2048, 4096].contains(size)) {
            return invalid(format!("{name} has block-size = {size}, expected 512, 1024, 2048 or 4096"));
        }
        if !(1..=256).contains(&self.queues) {
            return invalid(format!("{name} has {} queues, and 1 to 256 can be", self.queues));
        }
        self.sockets().check(name)?;
        self.check_kind()?;
        if self.path.is_some() && self.null_size_bytes.is_some() {
            return invalid(format!("{name} has a path, and its file's size: leave out null-size-bytes"));
        }
        Ok(())
    }

    /// The options of a network device.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`].
    pub fn net(&self) -> Result<NetOptions, ConfigError> {
        let name = &self.name;
        let invalid = |what: String| ConfigError::Invalid(format!("{name}: {what}"));
        let link = self.backend.as_ref().map(|backend| backend.link(name)).transpose()?.unwrap_or_default();
        let mac = self.mac.as_ref().map(|text| {
            net::address(text)
                .ok_or_else(|| invalid(format!("`{text}` is not an address such as 52:54:00:12:34:56")))
        });
        let mac = mac.transpose()?;
        if matches!(link, LinkOptions::Switch { checks_source: true, .. }) && mac.is_none() {
            return Err(invalid("check-source needs the guest's address as mac".to_owned()));
        }
        if let Some(mtu) = self.mtu.filter(|mtu| !crate::device::net::MTUS.contains(mtu)) {
            return Err(invalid(format!("mtu = {mtu}, expected 68 to 65535")));
        }
        if self.queues > net::PAIRS {
            return Err(invalid(format!("{} pairs of queues, expected 1 to {}", self.queues, net::PAIRS)));
        }
        Ok(NetOptions {
            link,
            mac,
            mtu: self.mtu.unwrap_or(0),
            pairs: self.queues,
            packets_a_second: self.requests_per_second,
            bytes_a_second: self.bytes_per_second,
        })
    }

    /// The socket's owner, group and mode, as far as the device has its own.
    pub(crate) fn sockets(&self) -> SocketsConfig {
        let [owner, group, mode] =
            [&self.socket_owner, &self.socket_group, &self.socket_mode].map(Clone::clone);
        SocketsConfig { owner, group, mode }
    }

    /// Rejects values that do not belong to a device of this type.
    fn check_kind(&self) -> Result<(), ConfigError> {
        let of_net = self.backend.is_some() || self.mac.is_some() || self.mtu.is_some();
        let of_block = self.path.is_some()
            || self.format.is_some()
            || self.null_size_bytes.is_some()
            || self.read_only
            || self.share_rw
            || self.direct
            || self.block_size.is_some()
            || !self.serial.is_empty();
        let invalid = |what: &str| Err(ConfigError::Invalid(format!("{} is {what}", self.name)));
        match self.kind {
            DeviceType::Block if of_net => invalid("a disk: leave out backend, mac and mtu"),
            DeviceType::Net if of_block => invalid(
                "a network device: leave out path, format, null-size-bytes, read-only, share-rw, direct, block-size and serial",
            ),
            DeviceType::Net => self.net().map(drop),
            DeviceType::Block => Ok(()),
        }
    }

    /// The options of a block device.
    #[must_use]
    pub fn block(&self) -> BlockOptions {
        BlockOptions {
            path: self.path.clone(),
            null_size: self.null_size_bytes.unwrap_or(1 << 30),
            read_only: self.read_only,
            direct: self.direct,
            raw: self.format == Some(DiskFormat::Raw),
            share_rw: self.share_rw,
            block_size: self.block_size.unwrap_or(SECTOR as u32),
            serial: self.serial.clone(),
            queues: self.queues,
            requests_a_second: self.requests_per_second,
            bytes_a_second: self.bytes_per_second,
        }
    }
}
