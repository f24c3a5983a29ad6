//! The guest's network interface.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::settings::Network;

const INTERFACE: &str = "eth0";
const DHCP_SCRIPT: &str = "/run/exitless-dhcp";
/// The script that BusyBox's udhcpc runs when it has a lease (its variables: networking/udhcp/dhcpc.c of BusyBox).
const DHCP: &str = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip addr add \"$ip/$mask\" dev \"$interface\"\n\
    [ -z \"$router\" ] || ip route add default via \"${router%% *}\"\n";

/// Brings the interfaces up, and returns the guest's address.
pub(super) fn set_up(network: Option<&Network>) -> Result<Option<IpAddr>, String> {
    run(&["ip", "link", "set", "lo", "up"])?;
    let Some(network) = network else { return Ok(None) };
    run(&["ip", "link", "set", INTERFACE, "up"])?;
    match network {
        Network::Static { address, prefix, host } => {
            run(&["ip", "addr", "add", &format!("{address}/{prefix}"), "dev", INTERFACE])?;
            run(&["ip", "route", "add", "default", "via", &host.to_string()])?;
            Ok(Some(*address))
        }
        Network::Dhcp => {
            let written = fs::write(DHCP_SCRIPT, DHCP)
                .and_then(|()| fs::set_permissions(DHCP_SCRIPT, fs::Permissions::from_mode(0o755)));
            written.map_err(|error| format!("writing {DHCP_SCRIPT}: {error}"))?;
            run(&["busybox", "udhcpc", "-n", "-q", "-t", "10", "-i", INTERFACE, "-s", DHCP_SCRIPT])?;
            let shown = run(&["ip", "-o", "-4", "addr", "show", "dev", INTERFACE])?;
            Ok(address_in(&shown))
        }
    }
}

/// The address in the output of `ip -o -4 addr show`.
fn address_in(shown: &str) -> Option<IpAddr> {
    let (_, rest) = shown.split_once(" inet ")?;
    rest.split(['/', ' ']).next()?.parse().ok()
}

fn run(words: &[&str]) -> Result<String, String> {
    let (program, arguments) = words.split_first().unwrap_or((&"", &[]));
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let output = Command::new(program).args(arguments).env("PATH", path).output();
    let line = words.join(" ");
    let output = output.map_err(|error| format!("running `{line}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("`{line}` failed ({}): {said}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_what_ip_shows() {
        let shown =
            "2: eth0    inet 192.168.122.7/24 brd 192.168.122.255 scope global eth0\\       valid_lft";
        assert_eq!(address_in(shown), Some([192, 168, 122, 7].into()));
        assert_eq!(address_in(""), None);
    }
}
