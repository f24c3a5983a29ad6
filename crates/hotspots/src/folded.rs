//! Folded stacks, the text format that many flame graph programs read: outermost frame first, `;` between frames, the
//! count last.

use std::collections::BTreeMap;

use crate::{Activity, Frame, Recording, Selection, Space, Weight};

/// The stacks that [`crate::tree`] takes, one per line, sorted. Functions of the kernel end in `_[k]`, as in the
/// output of `stackcollapse-perf.pl`. In names, which may be from a VM's files, `;` and line ends become `_`, and other
/// control characters become U+FFFD.
#[must_use]
pub fn folded(recording: &Recording, selection: &Selection, weight: Weight) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in recording.stacks.iter().filter(|stack| selection.takes(stack)) {
        let root = match stack.activity {
            Activity::Exit(reason) => reason.to_string(),
            Activity::Monitor => "device model".to_owned(),
            Activity::Guest => continue,
        };
        let code = stack.frames.iter().rev().filter_map(|&number| recording.frame(number));
        let names: Vec<String> = std::iter::once(clean(&root)).chain(code.map(|frame| name(frame))).collect();
        let amount = weight.of(stack);
        if amount > 0 {
            let sum = lines.entry(names.join(";")).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    lines.into_iter().map(|(stack, amount)| format!("{stack} {amount}\n")).collect()
}

fn name(frame: &Frame) -> String {
    let name = clean(&frame.to_string());
    if frame.space == Space::Kernel { format!("{name}_[k]") } else { name }
}

fn clean(text: &str) -> String {
    exits::printable(&text.trim().replace([';', '\n', '\r'], "_"))
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.symbol, self.address) {
            (Some(symbol), _) => f.pad(symbol),
            (None, Some(address)) => f.pad(&format!("{}+{address:#x}", self.object)),
            (None, None) => f.pad(&self.object),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn a_name_is_one_frame_of_one_line_without_control_characters() {
        assert_eq!(clean(" a;b\nc\u{1b}[2J\u{85}d "), "a_b_c\u{fffd}[2J\u{fffd}d");
    }
}
