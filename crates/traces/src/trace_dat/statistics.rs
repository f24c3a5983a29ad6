//! The kernel's count of lost events: the contents of `per_cpu/cpu*/stats` of tracefs (`tracing_stats_read` in
//! `kernel/trace/trace.c`), which trace-cmd writes after the data.

use std::collections::BTreeMap;

/// The title of an instance's statistics.
const INSTANCE: &str = "Buffer: ";
/// Events that were overwritten before they were read, that did not fit, or that nested too deeply.
const LOST: [&str; 3] = ["overrun: ", "commit overrun: ", "dropped events: "];

/// The number of lost events by buffer; the name is empty for the top-level buffer.
pub(super) fn lost(statistics: &str) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    let mut buffer = "";
    for line in statistics.lines() {
        if let Some(name) = line.strip_prefix(INSTANCE) {
            buffer = name;
        } else if let Some(count) = LOST.iter().find_map(|title| line.strip_prefix(title)) {
            let sum: &mut u64 = sums.entry(buffer).or_default();
            *sum = sum.saturating_add(count.trim().parse().unwrap_or(0));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_has_its_own_sum() {
        let text = "CPU: 0\nentries: 9\noverrun: 3\ncommit overrun: 1\ndropped events: 2\nread events: 8\n\
                    CPU: 1\noverrun: 4\n\n\nBuffer: guests\n\nCPU: 0\noverrun: 50\ndropped events: x\n";
        assert_eq!(lost(text), BTreeMap::from([("", 10), ("guests", 50)]));
        assert!(lost("").is_empty());
    }
}
