//! This machine's limits for many connections: open files, and ports of source addresses.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::LoadError;

/// Files besides the connections: standard streams, epoll, the timer, and those of libraries.
const SPARE_FILES: u64 = 64;

/// Linux's default of net.ipv4.ip_local_port_range.
const DEFAULT_PORTS: u32 = 28_232;

/// Raises this process's limit of open files (RLIMIT_NOFILE) if needed.
pub(super) fn allow_files(connections: u32, threads: u32) -> Result<(), LoadError> {
    let wanted = u64::from(connections) + 2 * u64::from(threads) + SPARE_FILES;
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let maximum = now.maximum.map(|maximum| maximum.max(wanted));
    // A user may raise the soft limit up to the hard limit; root may raise the hard limit too.
    let within = now.maximum.is_none_or(|maximum| maximum >= wanted);
    let raised = Rlimit { current: Some(wanted), maximum: if within { now.maximum } else { maximum } };
    setrlimit(Resource::Nofile, raised)
        .map_err(|_| LoadError::OpenFiles { wanted, allowed: now.maximum.unwrap_or(u64::MAX) })
}

/// The source addresses to bind to, with enough ports for all connections; empty if the kernel may choose. `targets` is
/// not empty.
pub(super) fn sources(
    targets: &[SocketAddr],
    connections: u32,
    named: &[IpAddr],
) -> Result<Vec<IpAddr>, LoadError> {
    // connect(2) prefers ports of one parity (net/ipv4/inet_hashtables.c, __inet_hash_connect). Once those are taken,
    // each connection searches them in vain first, which takes longer than everything else.
    let ports = local_ports() / 20 * 9;
    let Some(&target) = targets.first() else { return Ok(Vec::new()) };
    let at_each = connections.div_ceil(u32::try_from(targets.len()).unwrap_or(u32::MAX));
    let needed = connections.div_ceil(ports.max(1)).max(1);
    if !named.is_empty() {
        let unlike = |source: &&IpAddr| targets.iter().any(|target| source.is_ipv4() != target.is_ipv4());
        if let Some(other) = named.iter().find(unlike) {
            let why = format!("names {other}, which is of another kind than {target}");
            return Err(LoadError::Settings { field: "--source", why });
        }
        // bind(2) to a named address takes a port once, not once for each target.
        if named.len() < needed as usize {
            return Err(LoadError::Ports { connections, target, needed, ports });
        }
        return Ok(named.to_vec());
    }
    // If the kernel chooses the address at connect(2), a port can be used once for each target.
    if at_each <= ports {
        return Ok(Vec::new());
    }
    match target.ip() {
        // All of 127.0.0.0/8 is local.
        IpAddr::V4(address)
            if address.is_loopback() && targets.iter().all(|target| target.ip().is_loopback()) =>
        {
            let first = u32::from(Ipv4Addr::LOCALHOST);
            Ok((first..first + needed).map(|address| IpAddr::V4(Ipv4Addr::from(address))).collect())
        }
        _ => Err(LoadError::Ports { connections, target, needed, ports }),
    }
}

fn local_ports() -> u32 {
    let range = || {
        let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
        let mut ends = text.split_whitespace().map(|end| end.parse::<u32>().ok());
        let (first, last) = (ends.next()??, ends.next()??);
        (last >= first).then(|| last - first + 1)
    };
    range().unwrap_or(DEFAULT_PORTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(target: &str, connections: u32, named: &[&str]) -> Result<Vec<String>, String> {
        let named: Vec<IpAddr> = named.iter().map(|address| address.parse().unwrap()).collect();
        let targets: Vec<SocketAddr> = target.split(' ').map(|target| target.parse().unwrap()).collect();
        sources(&targets, connections, &named)
            .map(|sources| sources.iter().map(ToString::to_string).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn as_many_addresses_of_the_loopback_as_the_ports_need() {
        assert_eq!(addresses("127.0.0.1:1883", 100, &[]), Ok(Vec::new()));
        let many = addresses("127.0.0.1:1883", 200_000, &[]).unwrap();
        assert!(many.len() >= 4 && many[..2] == ["127.0.0.1", "127.0.0.2"], "{many:?}");
    }

    #[test]
    fn elsewhere_addresses_must_be_named() {
        let error = addresses("192.0.2.1:1883", 200_000, &[]).unwrap_err();
        assert!(
            error.contains("200000 connections to 192.0.2.1:1883 need") && error.contains("--source"),
            "{error}"
        );
        assert!(addresses("192.0.2.1:1883", 200_000, &["192.0.2.2"]).is_err());
        let ports: Vec<String> = (1..=20).map(|port| format!("192.0.2.1:{port}")).collect();
        assert_eq!(addresses(&ports.join(" "), 200_000, &[]), Ok(Vec::new()));
        assert_eq!(addresses("192.0.2.1:1883", 9, &["192.0.2.2"]), Ok(vec!["192.0.2.2".to_owned()]));
        assert!(addresses("192.0.2.1:1883", 9, &["::1"]).unwrap_err().contains("another kind"));
    }

    #[test]
    fn files_beyond_every_limit_are_refused() {
        let error = allow_files(u32::MAX, 1).unwrap_err().to_string();
        assert!(error.contains("ulimit -n 4294967"), "{error}");
        allow_files(1, 1).unwrap();
    }
}
