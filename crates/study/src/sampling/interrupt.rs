//! The host's interrupts by source: `/proc/interrupts`.

use exits::counted;
use host::{InterruptLine, counts_of_both, interrupt_lines};
use std::collections::BTreeMap;

/// The counts of one source since boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SourceCounts {
    /// The kernel's description: chip, type and device of an interrupt line, or the meaning of a special
    /// interrupt.
    pub(super) description: String,
    /// The count on each CPU.
    pub(super) each: BTreeMap<u32, u64>,
}

/// One reading: sources by label, which is an IRQ number (`24`) or the kernel's short name (`LOC`).
pub(super) type Interrupts = BTreeMap<String, SourceCounts>;

/// Lines with error counters instead of interrupts (arch/x86/kernel/irq.c, `arch_show_interrupts`).
const NO_INTERRUPTS: [&str; 2] = ["ERR", "MIS"];

/// Parses `/proc/interrupts`; `None` without its heading.
pub(super) fn parse(text: &str) -> Option<Interrupts> {
    let (cpus, lines) = interrupt_lines(text)?;
    let lines = lines.filter(|line| !NO_INTERRUPTS.contains(&line.label));
    let source = |line: InterruptLine<'_>| {
        let description = line.rest.split_whitespace().collect::<Vec<_>>().join(" ");
        let each = cpus.iter().copied().zip(line.counts).collect();
        (line.label.to_owned(), SourceCounts { description, each })
    };
    Some(lines.map(source).collect())
}

/// The numbers of interrupts, summed over the intervals between readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InterruptCounts {
    /// By label.
    pub(super) sources: BTreeMap<String, u64>,
    /// Labels whose counter decreased, and the number of times.
    went_back: BTreeMap<String, u64>,
}

impl InterruptCounts {
    /// Adds the increases between two readings, for CPUs that both contain.
    pub(super) fn add(&mut self, before: &Interrupts, after: &Interrupts) {
        for (label, later) in after {
            let earlier = before.get(label).map(|source| &source.each);
            for (base, count) in counts_of_both(earlier, &later.each) {
                match count.checked_sub(base) {
                    Some(more) => *self.sources.entry(label.clone()).or_default() += more,
                    None => *self.went_back.entry(label.clone()).or_default() += 1,
                }
            }
        }
    }

    /// Interrupts of devices, whose labels are numbers.
    pub(super) fn of_devices(&self) -> u64 {
        let number = |label: &&String| label.bytes().all(|byte| byte.is_ascii_digit());
        self.sources.iter().filter(|(label, _)| number(label)).map(|(_, count)| count).sum()
    }

    /// Warnings about intervals that were left out.
    pub(super) fn warnings(&self) -> Vec<String> {
        let back = self.went_back.iter().map(|(label, times)| {
            let times = counted(*times, "time");
            format!("The counter of interrupt {label} went backwards {times}; such intervals count as 0")
        });
        back.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEFORE: &str = "           CPU0       CPU2\n  \
        24:          7          0  PCI-MSIX-0000:00:05.0   0-edge      nvme0q1\n \
        LOC:       1000       2000   Local timer interrupts\n \
        RES:          1          2   Rescheduling interrupts\n \
        ERR:          9\n MIS:          4\n";

    #[test]
    fn sources_are_told_apart_and_errors_are_no_interrupts() {
        let read = parse(BEFORE).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["24", "LOC", "RES"]);
        assert_eq!(read["24"].description, "PCI-MSIX-0000:00:05.0 0-edge nvme0q1");
        assert_eq!(read["LOC"].each, BTreeMap::from([(0, 1000), (2, 2000)]));
    }

    #[test]
    fn what_grew_is_counted() {
        let after = BEFORE
            .replace("7          0", "9          1")
            .replace("2000", "2500")
            .replace("1          2", "0          4")
            + " 25: 3 4 new\n";
        let mut struck = InterruptCounts::default();
        struck.add(&parse(BEFORE).unwrap(), &parse(&after).unwrap());
        let expected = [("24", 3), ("25", 7), ("LOC", 500), ("RES", 2)];
        assert_eq!(
            struck.sources,
            expected.into_iter().map(|(label, count)| (label.to_owned(), count)).collect()
        );
        assert_eq!(struck.of_devices(), 10);
        assert!(struck.warnings()[0].contains("interrupt RES went backwards 1 time;"));
    }

    #[test]
    fn a_cpu_that_came_online_adds_nothing_yet() {
        let one = "CPU0\nLOC: 5 Local timer interrupts\n";
        let two = "CPU0 CPU1\nLOC: 6 1000 Local timer interrupts\n";
        let mut struck = InterruptCounts::default();
        struck.add(&parse(one).unwrap(), &parse(two).unwrap());
        struck.add(&parse(two).unwrap(), &parse(one).unwrap());
        assert_eq!(struck.sources["LOC"], 1);
        assert!(struck.warnings()[0].contains("LOC"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(( {0,3}CPU[0-9]{1,10}){0,3}\n)?( {0,3}[A-Z0-9]{0,3}:?( [0-9x]{0,21}){0,4}\n){0,4}") {
            let _ = parse(&text);
        }
    }
}
