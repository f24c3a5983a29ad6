//! Exits by the accessed I/O port, or by the accessed page of MMIO addresses.

use std::collections::BTreeMap;
use std::fmt;

use exits::{Access, Profile};

use crate::{Better, Combine, Metric, Unit};

/// The most places with their own figures. A guest that writes to a trapped frame buffer accesses thousands of pages.
pub(crate) const MOST_PLACES: usize = 48;
/// The size of the address range of a place: a device's registers are in a few pages, and a figure for each register
/// would be too many.
const PAGE: u64 = 4096;

/// The target of a guest's access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Port(u16),
    Page(u64),
}

impl Place {
    fn of(access: Access) -> Option<Self> {
        match access {
            Access::Port { port, .. } => Some(Self::Port(port)),
            Access::Mmio { address, .. } | Access::FastMmio { address } => {
                Some(Self::Page(address / PAGE * PAGE))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(formatter, "port.{port:#x}"),
            Self::Page(address) => write!(formatter, "mmio.{address:#x}"),
        }
    }
}

/// Accesses a second by place, reads and writes together: `accesses.port.0x20`, `accesses.mmio.0xfec00000`. The totals
/// of all ports and all addresses are `accesses.port` and `accesses.mmio`. The second value contains a warning if there
/// were too many places for a figure each, or if the place of some accesses is unknown.
///
/// Accesses are not exits: an exit may have several accesses, and most exits have none.
pub(super) fn metrics(profile: &Profile, elapsed_ns: u64) -> (Vec<Metric>, Vec<String>) {
    if elapsed_ns == 0 {
        return (Vec::new(), Vec::new());
    }
    let mut places: BTreeMap<Place, u64> = BTreeMap::new();
    let accesses = profile.accesses();
    for (&access, exits) in &accesses {
        if let Some(place) = Place::of(access) {
            *places.entry(place).or_default() += exits.count;
        }
    }
    let rate = |name: String, count: u64| Metric {
        name: format!("accesses.{name}"),
        unit: Unit::PerSecond,
        better: Better::Lower,
        combine: Combine::Single,
        value: count as f64 * 1e9 / elapsed_ns as f64,
    };
    let sum = |ports: bool| {
        let of = places.iter().filter(|(place, _)| matches!(place, Place::Port(_)) == ports);
        of.map(|(_, count)| count).sum::<u64>()
    };
    let mut metrics = vec![rate("port".to_owned(), sum(true)), rate("mmio".to_owned(), sum(false))];
    let mut by_count: Vec<(Place, u64)> = places.into_iter().collect();
    by_count.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
    let left_out = by_count.len().saturating_sub(MOST_PLACES);
    by_count.truncate(MOST_PLACES);
    metrics.extend(by_count.into_iter().map(|(place, count)| rate(place.to_string(), count)));
    let left_out = (left_out > 0).then(|| {
        format!(
            "{left_out} {} no figure of {} own, for only the {MOST_PLACES} most used ports and pages have; exits.json has all",
            exits::agree(left_out as u64, "port or page of addresses has", "ports and pages of addresses have"),
            exits::agree(left_out as u64, "its", "their"),
        )
    });
    let other = accesses.get(&Access::Other).map_or(0, |exits| exits.count);
    let without_place = (other > 0).then(|| {
        format!(
            "{other} {} of more ports, addresses and registers than are told apart, and in no figure",
            exits::agree(other, "access is", "accesses are")
        )
    });
    (metrics, left_out.into_iter().chain(without_place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{Direction, Vcpu};

    fn profile(accesses: impl IntoIterator<Item = (Access, u64)>) -> Profile {
        let mut profile = Profile::new();
        let vcpu = Vcpu { vm: Some(7), number: Some(0), thread: Some(70) };
        for (access, count) in accesses {
            profile.vcpu(vcpu).accesses.entry(access).or_default().count = count;
        }
        profile
    }

    #[test]
    fn both_directions_and_the_registers_of_a_page_are_one_place() {
        let port = |direction| Access::Port { port: 0x20, direction };
        let mmio = |address| Access::Mmio { address, direction: Direction::Write };
        let msr = Access::Msr { number: 0x80b, direction: Direction::Write };
        let profile = profile([
            (port(Direction::Read), 10),
            (port(Direction::Write), 30),
            (mmio(0xfec0_0010), 5),
            (mmio(0xfec0_0000), 6),
            (Access::FastMmio { address: 0xfec0_0008 }, 1),
            (msr, 1000),
        ]);
        let (metrics, warnings) = metrics(&profile, 2_000_000_000);
        let told: Vec<(&str, f64)> =
            metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
        let expected = [
            ("accesses.port", 20.0),
            ("accesses.mmio", 6.0),
            ("accesses.port.0x20", 20.0),
            ("accesses.mmio.0xfec00000", 6.0),
        ];
        assert_eq!((told.as_slice(), warnings.len()), (expected.as_slice(), 0));
        assert_eq!(super::metrics(&profile, 0), (Vec::new(), Vec::new()));
    }

    #[test]
    fn of_too_many_places_the_most_used_are_told_and_all_are_in_the_sum() {
        let many = (0..100u16)
            .map(|port| (Access::Port { port, direction: Direction::Write }, 100 + u64::from(port)));
        let (metrics, warnings) = metrics(&profile(many.chain([(Access::Other, 7)])), 1_000_000_000);
        assert_eq!(metrics.len(), 2 + MOST_PLACES);
        assert_eq!(metrics[0].value, f64::from(100 * 100 + 99 * 50));
        assert_eq!(metrics[2].name, "accesses.port.0x63");
        assert!(warnings[0].starts_with("52 ports"), "{warnings:?}");
        assert!(warnings[1].starts_with("7 accesses are of more ports"), "{warnings:?}");
    }
}
