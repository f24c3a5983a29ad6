//! Bochs 3.0 demands a page-aligned posted-interrupt descriptor where the SDM (volume 3, 25.6.8 and 27.2.1.1) demands
//! one of 64 bytes. Every VM entry of a Linux that uses posted interrupts fails on it (upstream issue 556, mended in
//! 3.1). The check is corrected in the laboratory's own copy of Debian's program, and only where its instructions are
//! found exactly once.

use std::fs;
use std::path::Path;

use crate::error::Error;

/// Reads VMCS field 0x2016 (posted-interrupt descriptor address) and loads the mask of bits that must be zero.
const READ_FIELD: [u8; 9] = [0xbe, 0x16, 0x20, 0x00, 0x00, 0x48, 0x89, 0xdf, 0xe8];
/// Length of the call's displacement, which differs from build to build.
const DISPLACEMENT: usize = 4;
/// `movabs $0xffffff0000000fff, %rdx`.
const LOAD_MASK: [u8; 10] = [0x48, 0xba, 0xff, 0x0f, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff];
/// Where the low two bytes of the mask stand.
const MASK_AT: usize = READ_FIELD.len() + DISPLACEMENT + 2;
/// 64-byte alignment.
const CORRECT_MASK: [u8; 2] = [0x3f, 0x00];

/// What the correction found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Correction {
    /// The check stood there once and was corrected.
    Made,
    /// It is not there: another version. The self-test decides about it.
    NotNeeded,
}

pub(crate) fn correct(program: &Path) -> Result<Correction, Error> {
    let mut bytes = fs::read(program).map_err(Error::file("Could not read", program))?;
    match correct_bytes(&mut bytes) {
        Ok(Correction::Made) => {
            fs::write(program, bytes).map_err(Error::file("Could not write", program))?;
            Ok(Correction::Made)
        }
        Ok(Correction::NotNeeded) => Ok(Correction::NotNeeded),
        Err(count) => Err(Error::Damaged {
            path: program.to_owned(),
            problem: format!(
                "the posted-interrupt descriptor check stands there {count} times, expected once"
            ),
        }),
    }
}

fn correct_bytes(bytes: &mut [u8]) -> Result<Correction, usize> {
    let length = READ_FIELD.len() + DISPLACEMENT + LOAD_MASK.len();
    let places: Vec<usize> = bytes
        .windows(length)
        .enumerate()
        .filter(|(_, window)| window.starts_with(&READ_FIELD) && window.ends_with(&LOAD_MASK))
        .map(|(at, _)| at)
        .collect();
    match places[..] {
        [] => Ok(Correction::NotNeeded),
        [at] => {
            bytes[at + MASK_AT..at + MASK_AT + 2].copy_from_slice(&CORRECT_MASK);
            Ok(Correction::Made)
        }
        _ => Err(places.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check() -> Vec<u8> {
        [&READ_FIELD[..], &[0x1e, 0xf0, 0xff, 0xff], &LOAD_MASK].concat()
    }

    #[test]
    fn the_mask_becomes_64_bytes_and_nothing_else_changes() {
        let mut bytes = [vec![0; 7], check(), vec![0; 7]].concat();
        let before = bytes.clone();
        assert_eq!(correct_bytes(&mut bytes), Ok(Correction::Made));
        let changed: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != before[at]).collect();
        assert_eq!(changed, [7 + 15, 7 + 16]);
        assert_eq!(bytes[7 + 15..7 + 17], CORRECT_MASK);
    }

    #[test]
    fn another_build_is_left_alone_and_an_ambiguous_one_refused() {
        assert_eq!(correct_bytes(&mut [0; 64]), Ok(Correction::NotNeeded));
        assert_eq!(correct_bytes(&mut [check(), check()].concat()), Err(2));
    }
}
