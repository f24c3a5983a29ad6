//! Network devices in the configuration file.

use super::ConfigError;
use crate::device::net::{LinkOptions, TapOptions};
use serde::{Deserialize, Serialize};

/// The tap or the switch that a network device is connected to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NetBackend {
    /// A tap interface of the host, which is created if it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tap: Option<String>,
    /// File descriptors of a tap, inherited by the daemon, one for each queue pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tap_fds: Option<Vec<i32>>,
    /// The network namespace of the interface `tap`: a name of `ip netns`, or a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// A switch, shared by all devices of this daemon that name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// Drop packets that the guest sends to a switch from another address than `mac`.
    #[serde(skip_serializing_if = "super::is_usual")]
    pub check_source: bool,
}

/// The most queue pairs: the control queue comes after them, and vhost-user messages have eight bits for a queue's index.
pub(super) const PAIRS: u16 = 127;

impl NetBackend {
    /// The link to it, for the device of this name.
    pub(super) fn link(&self, name: &str) -> Result<LinkOptions, ConfigError> {
        let invalid = |what: &str| Err(ConfigError::Invalid(format!("backend of {name}: {what}")));
        if self.netns.is_some() && self.tap.is_none() {
            return invalid("netns needs a tap, whose name is looked up in it");
        }
        if self.check_source && self.switch.is_none() {
            return invalid("check-source needs a switch");
        }
        match (&self.tap, &self.tap_fds, &self.switch) {
            (Some(tap), None, None) => {
                Ok(LinkOptions::Tap(TapOptions::Name { name: tap.clone(), namespace: self.netns.clone() }))
            }
            (None, Some(files), None) => Ok(LinkOptions::Tap(TapOptions::Files(files.clone()))),
            (None, None, Some(switch)) => {
                Ok(LinkOptions::Switch { name: switch.clone(), checks_source: self.check_source })
            }
            _ => invalid("exactly one of tap, tap-fds and switch is needed"),
        }
    }
}

/// Parses a unicast MAC address.
pub(super) fn address(text: &str) -> Option<[u8; 6]> {
    let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |part: &str| if is_byte(part) { u8::from_str_radix(part, 16).ok() } else { None };
    let bytes: Vec<u8> = text.split(':').map(byte).collect::<Option<_>>()?;
    let address: [u8; 6] = bytes.try_into().ok()?;
    // The lowest bit of the first byte marks group addresses.
    (address[0] & 1 == 0 && address != [0; 6]).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::device::net::NetOptions;

    const NET: &str = "[[device]]\nname = \"a\"\ntype = \"net\"\nsocket = \"/run/a\"\n";

    fn options(more: &str) -> Result<NetOptions, String> {
        let config = Config::parse(&format!("{NET}{more}")).map_err(|error| error.to_string())?;
        config.devices[0].net().map_err(|error| error.to_string())
    }

    #[test]
    fn every_backend_can_be_said() {
        assert_eq!(options("").unwrap(), NetOptions::default());
        let link = |more: &str| options(more).unwrap().link;
        let tap = |namespace: Option<&str>| {
            let namespace = namespace.map(str::to_owned);
            LinkOptions::Tap(TapOptions::Name { name: "t0".to_owned(), namespace })
        };
        assert_eq!(link("backend = { tap = \"t0\" }"), tap(None));
        assert_eq!(link("backend = { tap = \"t0\", netns = \"blue\" }"), tap(Some("blue")));
        assert_eq!(link("backend = { tap-fds = [3] }"), LinkOptions::Tap(TapOptions::Files(vec![3])));
        let more = "mac = \"52:54:00:12:34:5F\"\nmtu = 9000\nqueues = 2\nrequests-per-second = 7\n\
            bytes-per-second = 8\nbackend = { switch = \"lan0\", check-source = true }";
        let all = options(more).unwrap();
        assert_eq!(all.link, LinkOptions::Switch { name: "lan0".to_owned(), checks_source: true });
        assert_eq!(all.mac, Some([0x52, 0x54, 0, 0x12, 0x34, 0x5f]));
        assert_eq!((all.mtu, all.pairs), (9000, 2));
        assert_eq!((all.packets_a_second, all.bytes_a_second), (7, 8));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |more: &str| options(more).unwrap_err();
        assert!(refused("backend = {}").contains("one of tap"));
        assert!(refused("backend = { tap = \"t\", switch = \"s\" }").contains("one of tap"));
        assert!(refused("backend = { switch = \"s\", netns = \"n\" }").contains("netns"));
        assert!(refused("backend = { tap = \"t\", check-source = true }").contains("needs a switch"));
        assert!(refused("backend = { switch = \"s\", check-source = true }").contains("as mac"));
        for mac in [
            "52:54:00:12:34",
            "53:54:00:12:34:56",
            "00:00:00:00:00:00",
            "5:54:00:12:34:56",
            "+2:54:00:12:34:56",
        ] {
            assert!(refused(&format!("mac = \"{mac}\"")).contains(mac), "{mac}");
        }
        assert!(refused("mtu = 67").contains("mtu = 67"));
        assert!(refused("queues = 128").contains("128 pairs"));
        assert!(refused("path = \"/x\"").contains("leave out path"));
        let disk = NET.replace("net", "block");
        assert!(Config::parse(&format!("{disk}mtu = 1500")).unwrap_err().to_string().contains("a disk"));
    }
}
