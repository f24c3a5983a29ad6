//! Addresses of the guests that are started for a study, and of the host on their networks.

use std::net::{IpAddr, Ipv4Addr};

/// The network of these addresses, which is reserved for benchmarks of network devices (RFC 2544, appendix C.2.2).
const MEASURED: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The prefix length of each guest's network, which has four addresses.
pub(super) const PREFIX: u8 = 30;
/// The number of guests' networks in [`MEASURED`].
const NETWORKS: u32 = 1 << 15;

/// The addresses of the host and of guest `index` on the network between them.
pub(super) fn measured_network(index: u32) -> (IpAddr, IpAddr) {
    let network = MEASURED.to_bits() + 4 * (index % NETWORKS);
    let end = |number| IpAddr::V4(Ipv4Addr::from_bits(network + number));
    (end(1), end(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guest_has_a_network_of_its_own() {
        let text = |index| {
            let (host, guest) = measured_network(index);
            format!("{host} {guest}")
        };
        assert_eq!(text(0), "198.18.0.1 198.18.0.2");
        assert_eq!(text(1), "198.18.0.5 198.18.0.6");
        assert_eq!(text(NETWORKS - 1), "198.19.255.253 198.19.255.254");
        assert_eq!(text(NETWORKS), text(0));
    }
}
