//! The lines of `/proc/interrupts`.

use std::collections::BTreeMap;

/// One source of interrupts, with its counts since boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptLine<'a> {
    /// Its IRQ number (`24`) or the kernel's short name (`LOC`).
    pub label: &'a str,
    /// The count on each CPU of the heading.
    pub counts: Vec<u64>,
    /// The rest of the line: chip, type and device of an interrupt line, or the meaning of a special interrupt.
    pub rest: &'a str,
}

/// The CPUs that the heading of `/proc/interrupts` names, and the lines below it. Skips lines that lack counts: damaged
/// ones, and counters of errors, which are not per CPU. `None` without the heading.
#[must_use]
pub fn interrupt_lines(text: &str) -> Option<(Vec<u32>, impl Iterator<Item = InterruptLine<'_>>)> {
    let mut lines = text.lines();
    let cpus: Option<Vec<u32>> =
        lines.next()?.split_whitespace().map(|name| name.strip_prefix("CPU")?.parse().ok()).collect();
    let cpus = cpus.filter(|cpus| !cpus.is_empty())?;
    let columns = cpus.len();
    Some((cpus, lines.filter_map(move |line| InterruptLine::parse(line, columns))))
}

/// The counts of a source in two readings, before and after, on the CPUs that both have: the file has only CPUs that are
/// online, whose counts include those from before they went offline. A source that was requested in between began at 0.
pub fn counts_of_both<'a>(
    before: Option<&'a BTreeMap<u32, u64>>,
    after: &'a BTreeMap<u32, u64>,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    after.iter().filter_map(move |(cpu, &count)| match before {
        Some(before) => Some((*before.get(cpu)?, count)),
        None => Some((0, count)),
    })
}

impl<'a> InterruptLine<'a> {
    fn parse(line: &'a str, columns: usize) -> Option<Self> {
        let (label, mut rest) = line.split_once(':')?;
        let label = label.trim();
        let mut counts: Vec<u64> = Vec::new();
        for _ in 0..columns {
            rest = rest.trim_start();
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            counts.push(rest[..end].parse().ok()?);
            rest = &rest[end..];
        }
        (!label.is_empty()).then_some(Self { label, counts, rest: rest.trim() })
    }

    /// The count on all CPUs.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_comes_or_goes_adds_nothing_and_a_new_source_began_at_zero() {
        let (one, two) = (BTreeMap::from([(0, 5)]), BTreeMap::from([(0, 7), (9, 40_000)]));
        let of = |before, after| counts_of_both(before, after).collect::<Vec<_>>();
        assert_eq!(of(Some(&one), &two), [(5, 7)]);
        assert_eq!(of(Some(&two), &one), [(7, 5)]);
        assert_eq!(of(None, &two), [(0, 7), (0, 40_000)]);
    }

    #[test]
    fn lines_below_a_heading_and_no_damaged_ones() {
        let text = "           CPU0       CPU2\n  24:   7   5  PCI-MSI 1-edge   nvme0q1 \nLOC: 18446744073709551615 1\n\
                    ERR:          9\n 25:  1 x  chip\n: 1 2\nno source\n";
        let (cpus, lines) = interrupt_lines(text).unwrap();
        assert_eq!(cpus, [0, 2]);
        let lines: Vec<_> = lines.collect();
        let told: Vec<_> = lines.iter().map(|line| (line.label, line.total(), line.rest)).collect();
        assert_eq!(told, [("24", 12, "PCI-MSI 1-edge   nvme0q1"), ("LOC", u64::MAX, "")]);
        assert_eq!(lines[0].counts, [7, 5]);
        for text in ["", "\n24: 1 2\n", "24: 1 2 nvme0q1\n", "CPU0 CPUx\n24: 1 2\n"] {
            assert!(interrupt_lines(text).is_none(), "{text}");
        }
    }
}
