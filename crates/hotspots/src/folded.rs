//! Folded stacks, the text format that many flame graph programs read: outermost frame first, `;` between frames, the
//! count last.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::{Activity, Frame, Recording, Selection, Space, Weight};

/// Writes the stacks that [`crate::tree`] takes, one per line, sorted. Functions of the kernel end in `_[k]`, as in the
/// output of `stackcollapse-perf.pl`. In names, which may be from a VM's files, `;` and line ends become `_`, and other
/// control characters become U+FFFD.
///
/// # Errors
/// If writing to `to` fails.
pub fn folded(
    recording: &Recording,
    selection: &Selection,
    weight: Weight,
    to: &mut impl Write,
) -> io::Result<()> {
    // With the `;` of all but the last one in a line, so that lists of names have the order of their lines. Lines, in
    // which names repeat without end, are put together only to be written.
    let names: Vec<String> = recording.frames.iter().map(|frame| name(frame) + ";").collect();
    let mut lines: BTreeMap<(String, Vec<&str>), u64> = BTreeMap::new();
    for stack in recording.stacks.iter().filter(|stack| selection.takes(stack)) {
        let root = match stack.activity {
            Activity::Exit(reason) => reason.to_string(),
            Activity::Monitor => "device model".to_owned(),
            Activity::Guest => continue,
        };
        let amount = weight.of(stack);
        if amount == 0 {
            continue;
        }
        let mut root = clean(&root);
        let code = stack.frames.iter().rev().filter_map(|&number| names.get(number as usize));
        let mut code: Vec<&str> = code.map(String::as_str).collect();
        if let Some(last) = code.last_mut() {
            root.push(';');
            *last = last.trim_end_matches(';');
        }
        let sum = lines.entry((root, code)).or_default();
        *sum = sum.saturating_add(amount);
    }
    for ((root, code), amount) in lines {
        writeln!(to, "{root}{} {amount}", code.concat())?;
    }
    to.flush()
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
    use super::*;
    use crate::{Away, Event, Head, Stack};

    #[test]
    fn a_name_is_one_frame_of_one_line_without_control_characters() {
        assert_eq!(clean(" a;b\nc\u{1b}[2J\u{85}d "), "a_b_c\u{fffd}[2J\u{fffd}d");
    }

    /// Takes text, and notes the longest that it was given at once.
    #[derive(Default)]
    struct Pieces {
        text: Vec<u8>,
        longest: usize,
    }

    impl Write for Pieces {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.longest = self.longest.max(piece.len());
            self.text.write(piece)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stacks_are_in_the_order_of_their_lines_of_which_one_at_a_time_is_in_memory() {
        let (event, kernel, notes) = (Event::Cycles, None, Vec::new());
        let head = Head { kernel, event, frequency_hz: 1, cpus: 1, duration_ns: 1, away: false, notes };
        let mut recording = Recording::new(head);
        let long = "x".repeat(100);
        // The two functions of one name are in two files.
        let names = [("a", "qemu"), ("a1", "qemu"), ("a b", "qemu"), ("a", "libc"), (long.as_str(), "qemu")];
        let numbers = names.map(|(symbol, object)| {
            let (symbol, object) = (Some(symbol.to_owned()), object.to_owned());
            recording.number(Frame { space: Space::User, symbol, object, address: None })
        });
        let [a, a1, a_b, other_a, x] = numbers;
        let callees = [vec![x, a], vec![x, a1], vec![x, a_b], vec![x, other_a], vec![a1], vec![a], vec![]];
        for frames in callees {
            recording.stacks.push(Stack {
                vm: None,
                thread: None,
                activity: Activity::Monitor,
                frames,
                samples: 1,
                away: Away::default(),
                cut: false,
            });
        }
        let mut pieces = Pieces::default();
        folded(&recording, &Selection::default(), Weight::Samples, &mut pieces).unwrap();
        let ends = ["", ";a", ";a b;x", ";a1", ";a1;x", ";a;x"];
        let amounts = [1, 1, 1, 1, 1, 2];
        let line = |(end, amount): (&str, u64)| format!("device model{} {amount}\n", end.replace('x', &long));
        let expected: String = ends.into_iter().zip(amounts).map(line).collect();
        assert_eq!(String::from_utf8(pieces.text).unwrap(), expected);
        assert!(pieces.longest < 2 * long.len(), "{}", pieces.longest);
    }
}
