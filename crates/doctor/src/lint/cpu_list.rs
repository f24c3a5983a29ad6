//! Lists of host CPUs as libvirt and the kernel write them.

use std::collections::BTreeSet;

/// The largest number of CPUs of a kernel (`CONFIG_NR_CPUS` on x86).
const MOST: u32 = 8192;

/// The CPUs of a list such as `0-3,6` or `0-7,^3`; `None` for other texts.
pub(super) fn cpus(list: &str) -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    // The number of CPUs that the parts name, with repetitions. It bounds the work: no real list names each CPU
    // ten times.
    let mut named = 0;
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (part, without) = part.strip_prefix('^').map_or((part, false), |rest| (rest, true));
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        named += last - first + 1;
        if named > 10 * MOST {
            return None;
        }
        for cpu in first..=last {
            if without {
                found.remove(&cpu);
            } else {
                found.insert(cpu);
            }
        }
    }
    Some(found)
}

/// The CPUs as a list with ranges.
pub(super) fn list(cpus: &BTreeSet<u32>) -> String {
    cpus.iter().copied().collect::<host::CpuSet>().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_single_cpus_and_exceptions() {
        let read = |text| list(&cpus(text).unwrap());
        assert_eq!(read("0-3,6"), "0-3,6");
        assert_eq!(read(" 4, 0-2,^1"), "0,2,4");
        for bad in ["3-1", "a", "0-99999999", "1-"] {
            assert_eq!(cpus(bad), None, "{bad}");
        }
        assert_eq!(cpus("0-8191").map(|all| all.len()), Some(8192));
        assert_eq!(cpus(&["0-8191"; 1000].join(",")), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,^ -]{0,40}") {
            if let Some(set) = cpus(&text) {
                prop_assert_eq!(cpus(&list(&set)), Some(set));
            }
        }
    }
}
