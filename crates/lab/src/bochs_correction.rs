//! Bochs 3.0 departs from the SDM in how it virtualizes interrupts, and on several CPUs in what it saves at a VM exit, so
//! that Linux guests on it fail or stand still.
//! What is wrong is corrected in the laboratory's own copy of Debian's program, each fault only where its instructions
//! are found exactly once. docs/nested-guests.md tells what each fault does to a guest and how it was found.

use std::fs;
use std::path::Path;

use crate::error::Error;

/// A fault, the instructions that have it, and those that have not.
#[derive(Debug)]
struct Correction {
    /// What is wrong, to follow the words "the instructions for".
    fault: &'static str,
    /// Bytes in hexadecimal; `..` stands for any, because addresses and offsets differ from build to build.
    wrong: &'static str,
    /// As many bytes; `..` leaves what is there.
    right: &'static str,
    /// Where the displacement of a call stands in `wrong` and in `right`, in bytes.
    moved_calls: &'static [(usize, usize)],
    /// Instructions elsewhere, from which offsets in `right` were taken: without them the offsets mean nothing.
    only_with: Option<&'static str>,
}

const CORRECTIONS: [Correction; 5] = [
    // A page-aligned descriptor is demanded where the SDM (volume 3, "Checks on VMX Controls") demands one of 64 bytes,
    // and every VM entry of a Linux that uses posted interrupts fails (upstream issue 556, mended in 3.1). VMCS field
    // 0x2016 is read and `movabs $0xffffff0000000fff, %rdx` loads the bits that must be zero.
    Correction {
        fault: "the alignment of the posted-interrupt descriptor",
        wrong: "be 16 20 00 00 48 89 df e8 .. .. .. .. 48 ba ff 0f 00 00 00 ff ff ff",
        right: ".. .. .. .. .. .. .. .. .. .. .. .. .. .. .. 3f 00 .. .. .. .. .. ..",
        moved_calls: &[],
        only_with: None,
    },
    // After a posted interrupt RVI becomes the highest vector requested ("Posted-Interrupt Processing"). The search
    // gives -1 when there is none, which is usual: KVM has taken the requests before it entered the guest. Cut down to a
    // byte that is vector 255, which the guest then gets, and no other ever again, because nobody ends a spurious
    // interrupt. `cmp RVI, %al; jb over` becomes `test %eax, %eax; js over`; RVI's own vector is among those searched.
    Correction {
        fault: "posted interrupts without a request",
        wrong: "e8 .. .. .. .. 3a 83 .. .. .. .. 72 06 88 83 .. .. .. .. 48 89 df e8",
        right: ".. .. .. .. .. 85 c0 78 0a 0f 1f 40 00 .. .. .. .. .. .. .. .. .. ..",
        moved_calls: &[],
        only_with: None,
    },
    // An external interrupt that comes while the guest has RFLAGS.IF clear and a virtual interrupt pending delivers the
    // virtual one, against "Virtual-Interrupt Delivery". `testb` of the pending virtual interrupt and `jne deliver`
    // become a test for external ones, of the 8259 (0x4) or the local APIC (0x8), and `je deliver`: without those only
    // an unmasked virtual interrupt leads here.
    Correction {
        fault: "virtual interrupts in spite of RFLAGS.IF",
        wrong: "48 89 df f6 83 .. .. .. .. 02 0f 85 .. .. .. .. e8 .. .. .. .. 48 89 df e8",
        right: ".. .. .. .. .. .. .. .. .. 0c .. 84 .. .. .. .. .. .. .. .. .. .. .. .. ..",
        moved_calls: &[],
        only_with: None,
    },
    // An EPT violation while a virtual interrupt is delivered must tell its vector ("IDT-Vectoring Information"), or
    // KVM puts whatever came last into the guest instead. A call to an empty hook for instrumentation, with its
    // arguments, makes room for `mov %r13d, vector_information(%rbx)`; the offset is the one that other events use.
    Correction {
        fault: "exits while a virtual interrupt is delivered",
        wrong: "48 8b 8b .. .. .. .. 0f b7 93 .. .. .. .. 44 89 ee 8b 7b .. e8 .. .. .. .. 45 31 c0 31 c9 31 d2 44 89 ee 48 \
                89 df e8",
        right: "44 89 ab a8 90 00 00 0f 1f 80 00 00 00 00 0f 1f 80 00 00 00 00 0f 1f 40 00 .. .. .. .. .. .. .. .. .. .. .. \
                .. .. ..",
        moved_calls: &[],
        only_with: Some(
            "45 89 ac 24 ac 90 00 00 41 c6 84 24 .. .. .. .. 00 44 09 f3 c1 e5 0b 09 eb 41 89 9c 24 a8 90 00 00",
        ),
    },
    // A fault-like VM exit takes the guest back to where its last instruction began ("VM Exits"). With several CPUs an
    // exception jumps out of the loop that notes this place; an external interrupt that meets the first instruction of
    // the handler then exits with the place of the exception, but with the handler's stack and privilege. The guest's
    // user code goes on as its kernel, and the guest dies. One CPU notes the place before it looks for events: so must
    // each of several. `push RIP; pop prev_rip` finds its room where a call to an empty hook for instrumentation was,
    // and in `mov async_event, %eax; test %eax, %eax`, which `cmpl $0, async_event` does in a byte less.
    Correction {
        fault: "exits behind an exception",
        wrong: "f3 0f 1e fa 55 53 48 89 fb 48 83 ec 08 8b 87 e0 91 00 00 85 c0 74 09 e8 .. .. .. .. 84 c0 75 53 48 89 df \
                e8 .. .. .. .. 8b 7b 30 48 8b 68 10 48 89 ee e8 .. .. .. ..",
        right: "f3 0f 1e fa 55 53 48 89 fb 48 83 ec 08 ff b7 e0 00 00 00 8f 87 18 01 00 00 83 bf e0 91 00 00 00 74 09 e8 \
                .. .. .. .. 84 c0 75 48 48 89 df e8 .. .. .. .. 48 8b 68 10",
        moved_calls: &[(24, 35), (36, 47)],
        only_with: Some("48 8b b3 18 01 00 00 80 bb 30 01 00 00 00 48 89 b3 e0 00 00 00"),
    },
];

/// Corrects `program` in place and returns the faults that it had. Another version has none of them, or others: the
/// self-test decides about it.
pub(crate) fn correct(program: &Path) -> Result<Vec<&'static str>, Error> {
    let mut bytes = fs::read(program).map_err(Error::file("Could not read", program))?;
    let found =
        correct_bytes(&mut bytes).map_err(|problem| Error::Damaged { path: program.to_owned(), problem })?;
    if !found.is_empty() {
        fs::write(program, bytes).map_err(Error::file("Could not write", program))?;
    }
    Ok(found)
}

fn correct_bytes(bytes: &mut [u8]) -> Result<Vec<&'static str>, String> {
    let mut found = Vec::new();
    for Correction { fault, wrong, right, moved_calls, only_with } in &CORRECTIONS {
        if only_with.is_some_and(|pattern| places(bytes, pattern).len() != 1) {
            continue;
        }
        match places(bytes, wrong)[..] {
            [] => {}
            [at] => {
                let before = bytes[at..].to_vec();
                for (byte, right) in bytes[at..].iter_mut().zip(parse(right)) {
                    *byte = right.unwrap_or(*byte);
                }
                for &(from, to) in *moved_calls {
                    bytes[at + to..at + to + 4].copy_from_slice(&moved(&before, from, to));
                }
                found.push(*fault);
            }
            ref places => {
                let count = places.len();
                return Err(format!("the instructions for {fault} stand there {count} times, expected once"));
            }
        }
    }
    Ok(found)
}

/// The displacement at `from`, to the same place when it stands at `to`.
fn moved(bytes: &[u8], from: usize, to: usize) -> [u8; 4] {
    let displacement = [0, 1, 2, 3].map(|byte| bytes[from + byte]);
    let further = i32::try_from(from).unwrap_or(0) - i32::try_from(to).unwrap_or(0);
    i32::from_le_bytes(displacement).wrapping_add(further).to_le_bytes()
}

/// Where `pattern` is found.
fn places(bytes: &[u8], pattern: &str) -> Vec<usize> {
    let pattern = parse(pattern);
    let matches = |window: &[u8]| {
        window.iter().zip(&pattern).all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte))
    };
    let windows = bytes.windows(pattern.len()).enumerate();
    windows.filter(|(_, window)| matches(window)).map(|(at, _)| at).collect()
}

fn parse(pattern: &str) -> Vec<Option<u8>> {
    pattern.split_ascii_whitespace().map(|word| u8::from_str_radix(word, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with every fault once; what may be anything is 0x5a.
    fn program() -> Vec<u8> {
        let mut bytes = vec![0; 7];
        for correction in &CORRECTIONS {
            for pattern in [correction.wrong].into_iter().chain(correction.only_with) {
                bytes.extend(parse(pattern).into_iter().map(|byte| byte.unwrap_or(0x5a)));
                bytes.extend([0; 7]);
            }
        }
        bytes
    }

    #[test]
    fn patterns_are_well_formed() {
        for Correction { fault, wrong, right, moved_calls, only_with } in &CORRECTIONS {
            assert_eq!(parse(wrong).len(), parse(right).len(), "{fault}");
            for word in [*wrong, *right, only_with.unwrap_or("..")].join(" ").split_ascii_whitespace() {
                assert!(
                    word == ".." || u8::from_str_radix(word, 16).is_ok_and(|_| word.len() == 2),
                    "{word}"
                );
            }
            for &(from, to) in *moved_calls {
                assert!(
                    parse(wrong)[from..from + 4].iter().chain(&parse(right)[to..to + 4]).all(Option::is_none)
                );
                assert_eq!(
                    (parse(wrong)[from - 1], parse(right)[to - 1]),
                    (Some(0xe8), Some(0xe8)),
                    "{fault}"
                );
            }
        }
    }

    #[test]
    fn each_fault_is_corrected_once_and_nothing_else_changes() {
        let mut bytes = program();
        let before = bytes.clone();
        assert_eq!(correct_bytes(&mut bytes), Ok(CORRECTIONS.map(|correction| correction.fault).to_vec()));
        let changed = (0..bytes.len()).filter(|&at| bytes[at] != before[at]).count();
        // Two bytes of the mask, eight of the comparison, two of the test, the call with its arguments, and what comes
        // behind the first 13 bytes of the loop.
        assert!((12 + 20 + 36..=12 + 25 + 42).contains(&changed), "{changed}");
        assert_eq!(correct_bytes(&mut bytes), Ok(vec![]));
    }

    #[test]
    fn the_mask_becomes_64_bytes() {
        let mut bytes = program();
        correct_bytes(&mut bytes).unwrap();
        assert_eq!(bytes[7 + 13..7 + 23], [0x48, 0xba, 0x3f, 0, 0, 0, 0, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn moved_calls_reach_the_same_functions() {
        let mut bytes = program();
        let Correction { wrong, moved_calls, .. } = &CORRECTIONS[4];
        let [at] = places(&bytes, wrong)[..] else { panic!("not there once") };
        let target = |bytes: &[u8], displacement: usize| {
            let word = [0, 1, 2, 3].map(|byte| bytes[at + displacement + byte]);
            i64::from(i32::from_le_bytes(word)) + displacement as i64 + 4
        };
        let before = bytes.clone();
        correct_bytes(&mut bytes).unwrap();
        for &(from, to) in *moved_calls {
            assert_eq!(target(&before, from), target(&bytes, to));
        }
    }

    #[test]
    fn offsets_of_another_build_are_not_used() {
        let mut bytes = program();
        let length = bytes.len();
        // The last pattern is the one that the offsets were taken from, its last four bytes the offset.
        bytes[length - 7 - 4] = 0xb0;
        assert_eq!(correct_bytes(&mut bytes).map(|found| found.len()), Ok(CORRECTIONS.len() - 1));
    }

    #[test]
    fn another_build_is_left_alone_and_an_ambiguous_one_refused() {
        assert_eq!(correct_bytes(&mut [0; 64]), Ok(vec![]));
        let twice = [program(), program()].concat();
        let problem = correct_bytes(&mut twice.clone()).unwrap_err();
        assert!(problem.contains("2 times, expected once"), "{problem}");
    }
}
