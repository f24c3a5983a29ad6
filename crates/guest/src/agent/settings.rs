//! The settings that the host passes to a guest on its kernel's command line.

use std::fs;
use std::net::IpAddr;

const COMMAND_LINE: &str = "/proc/cmdline";

/// Settings of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Modules to load, with their dependencies.
    pub modules: Vec<String>,
    /// The channel to the host.
    pub port: Port,
    /// The guest has a data disk, which the agent formats and mounts.
    pub data: bool,
    /// The network interface's settings.
    pub network: Option<Network>,
}

/// The channel between guest and host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Port {
    /// A virtio port.
    #[default]
    Virtio,
    /// The second serial port.
    Serial,
    /// The console of a Xen domain.
    XenConsole,
}

const PORTS: [(Port, &str); 3] =
    [(Port::Virtio, "virtio"), (Port::Serial, "serial"), (Port::XenConsole, "xen-console")];

/// The source of the network interface's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// By DHCP.
    Dhcp,
    /// A static address.
    Static {
        /// The guest's address.
        address: IpAddr,
        /// The length of the network's prefix.
        prefix: u8,
        /// The host's address, the default gateway.
        host: IpAddr,
    },
}

impl Settings {
    /// The settings on the running kernel's command line.
    pub(super) fn of_kernel() -> Result<Self, String> {
        let text =
            fs::read_to_string(COMMAND_LINE).map_err(|error| format!("reading {COMMAND_LINE}: {error}"))?;
        Ok(Self::read(&text))
    }

    /// Parses a kernel's command line; ignores other parameters and invalid values.
    fn read(text: &str) -> Self {
        let own = text.split_whitespace().filter_map(|word| word.strip_prefix("exitless.")?.split_once('='));
        own.fold(Self::default(), |mut settings, (key, value)| {
            match key {
                "modules" => settings.modules = value.split(',').map(str::to_owned).collect(),
                "channel" => {
                    let named = PORTS.iter().find(|(_, name)| *name == value);
                    settings.port = named.map_or(settings.port, |&(port, _)| port);
                }
                "data" => settings.data = value == "1",
                "network" => settings.network = Network::read(value),
                _ => (),
            }
            settings
        })
    }

    /// The settings as kernel parameters.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("exitless.modules={}", self.modules.join(","))];
        if let Some((_, name)) = PORTS.iter().find(|(port, _)| *port == self.port && *port != Port::Virtio) {
            arguments.push(format!("exitless.channel={name}"));
        }
        if self.data {
            arguments.push("exitless.data=1".to_owned());
        }
        match &self.network {
            None => (),
            Some(Network::Dhcp) => arguments.push("exitless.network=dhcp".to_owned()),
            Some(Network::Static { address, prefix, host }) => {
                arguments.push(format!("exitless.network={address}/{prefix},{host}"));
            }
        }
        arguments
    }
}

impl Network {
    fn read(value: &str) -> Option<Self> {
        if value == "dhcp" {
            return Some(Self::Dhcp);
        }
        let (own, host) = value.split_once(',')?;
        let (address, prefix) = own.split_once('/')?;
        Some(Self::Static {
            address: address.parse().ok()?,
            prefix: prefix.parse().ok()?,
            host: host.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_says_is_what_the_guest_reads() {
        let host: IpAddr = [10, 0, 2, 2].into();
        let fixed = Network::Static { address: [10, 0, 2, 15].into(), prefix: 24, host };
        let networks = [None, Some(Network::Dhcp), Some(fixed)];
        for (network, (port, _)) in networks.into_iter().zip(PORTS) {
            let modules = vec!["overlay".to_owned(), "virtio_blk".to_owned()];
            let settings = Settings { modules, port, data: true, network };
            let line = format!("console=ttyS0 {} quiet exitless.unknown=1", settings.arguments().join(" "));
            assert_eq!(Settings::read(&line), settings);
        }
    }

    #[test]
    fn words_that_are_not_understood_are_passed_over() {
        let text = "exitless.network=10.0.2.15 exitless.data exitless. exitless.modules=a";
        assert_eq!(Settings::read(text), Settings { modules: vec!["a".to_owned()], ..Settings::default() });
    }
}
