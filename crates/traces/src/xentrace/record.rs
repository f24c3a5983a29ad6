//! A record of Xen's trace buffers: `struct t_rec` of `xen/include/public/trace.h`.

use super::event::{CPU_CHANGE, GENERAL};
use crate::bytes::{u32_at, u64_at};

/// The longest record: header, ticks and `TRACE_EXTRA_MAX` words.
pub(super) const LONGEST: usize = 4 + 8 + 7 * 4;
/// The size of a window's header: a record header and the `struct cpu_change_record` of xentrace, which has the CPU
/// and the length in bytes.
pub(super) const WINDOW: usize = 12;
/// `CPU_CHANGE_HEADER` of xentrace: two words, no ticks.
pub(super) const WINDOW_HEADER: u32 = CPU_CHANGE | 2 << 28;
/// More CPUs than Xen can be built for.
const MOST_CPUS: u32 = 1 << 14;

/// The first word of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header(pub(super) u32);

impl Header {
    pub(super) const fn event(self) -> u32 {
        self.0 & 0x0fff_ffff
    }

    const fn has_ticks(self) -> bool {
        self.0 >> 31 != 0
    }

    /// The size of the record in bytes, including the header.
    pub(super) const fn size(self) -> usize {
        let words = (self.0 >> 28 & 7) as usize;
        4 + if self.has_ticks() { 8 } else { 0 } + 4 * words
    }

    /// Tests whether Xen can have written it: an event has exactly one class and at least one subclass, because
    /// otherwise no mask would select it; and there are few general events.
    pub(super) const fn plausible(self) -> bool {
        let event = self.event();
        let one_class = (event >> 16).is_power_of_two();
        let subclass = event >> 12 & 0xf != 0;
        let general = event >> 16 == GENERAL >> 4;
        one_class && subclass && (!general || (event >> 12 == GENERAL && event & 0xfff < 64))
    }
}

/// A record in the bytes of a recording.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) event: u32,
    /// Ticks of the CPU's TSC, if the record has them.
    pub(super) ticks: Option<u64>,
    words: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a complete record; `None` if bytes are missing.
    #[inline(always)]
    pub(super) fn parse(header: Header, bytes: &'a [u8]) -> Option<Self> {
        let before_words = if header.has_ticks() { 12 } else { 4 };
        let words = bytes.get(before_words..header.size())?;
        let ticks = if header.has_ticks() { u64_at(bytes, 4) } else { None };
        Some(Self { event: header.event(), ticks, words })
    }

    /// The word with this index.
    pub(super) fn word(&self, number: usize) -> Option<u32> {
        u32_at(self.words, 4 * number)
    }

    /// Two words as a 64-bit number, the lower one first.
    pub(super) fn pair(&self, number: usize) -> Option<u64> {
        u64_at(self.words, 4 * number)
    }

    /// The number of words.
    pub(super) const fn len(&self) -> usize {
        self.words.len() / 4
    }
}

/// The header of a window, which applies to all its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) cpu: u16,
    /// The length of its records in bytes.
    pub(super) length: u32,
}

impl Window {
    /// Parses the header of a window.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (cpu, length) = (u32_at(bytes, 4)?, u32_at(bytes, 8)?);
        let sound = u32_at(bytes, 0)? == WINDOW_HEADER && cpu < MOST_CPUS && length % 4 == 0;
        sound.then_some(Self { cpu: cpu as u16, length })
    }
}

/// The result of checking a sequence of windows and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sequence {
    /// Valid up to the end of the bytes, or for the requested number of records.
    Sound {
        records: usize,
    },
    Broken,
}

/// Checks up to `most` records from the start of a window. Empty windows count as records: xentrace writes none, and a
/// corrupt recording may consist of them, each of which is a place to check from.
pub(super) fn sequence(bytes: &[u8], most: usize) -> Sequence {
    let Some(window) = Window::parse(bytes) else { return Sequence::Broken };
    let mut at = WINDOW;
    let mut end = WINDOW + window.length as usize;
    let (mut records, mut empty) = (0, 0);
    while records + empty < most {
        if at == end {
            match Window::parse(&bytes[at.min(bytes.len())..]) {
                Some(window) => {
                    at += WINDOW;
                    end = at + window.length as usize;
                    empty += usize::from(window.length == 0);
                    continue;
                }
                None if bytes.len() < at + WINDOW => break,
                None => return Sequence::Broken,
            }
        }
        let Some(header) = u32_at(bytes, at).map(Header) else { break };
        if !header.plausible() || header.event() == CPU_CHANGE || at + header.size() > end {
            return Sequence::Broken;
        }
        at += header.size();
        records += 1;
    }
    Sequence::Sound { records }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn records_of_all_forms() {
        let bytes = words(&[0xb008_1103, 7, 1, 0x60, 0x8000_0001, 0xffff_ffff]);
        let header = Header(0xb008_1103);
        assert!(header.plausible());
        let record = Record::parse(header, &bytes).unwrap();
        assert_eq!((record.event, record.ticks), (0x0008_1103, Some(0x1_0000_0007)));
        assert_eq!((record.len(), record.word(0), record.word(3)), (3, Some(0x60), None));
        assert_eq!(record.pair(1), Some(0xffff_ffff_8000_0001));
        assert!(Record::parse(header, &bytes[..23]).is_none());
        let record = Record::parse(Header(0x0008_1001), &bytes).unwrap();
        assert_eq!((record.ticks, record.len()), (None, 0));
        assert_eq!(Header(u32::MAX).size(), LONGEST);
    }

    #[test]
    fn what_no_mask_selects_is_not_plausible() {
        for header in [0, 0x0000_f001, 0x0003_f001, 0x0008_0001, 0x0001_1001, 0x0001_f040, u32::MAX] {
            assert!(!Header(header).plausible(), "{header:#x}");
        }
    }

    #[test]
    fn windows_follow_each_other() {
        let sound = words(&[WINDOW_HEADER, 0, 4, 0x0008_1001, WINDOW_HEADER, 1, 8, 0x0008_1001, 0x0008_1001]);
        for cut in (WINDOW..=sound.len()).step_by(4) {
            assert!(matches!(sequence(&sound[..cut], 9), Sequence::Sound { .. }), "{cut}");
        }
        assert_eq!(sequence(&sound, 9), Sequence::Sound { records: 3 });
        assert_eq!(sequence(&sound, 2), Sequence::Sound { records: 2 });
        let empty = [&words(&[WINDOW_HEADER, 0, 0]).repeat(9)[..], &[0xee; WINDOW]].concat();
        assert_eq!(sequence(&empty, 9), Sequence::Broken);
        assert_eq!(sequence(&empty, 8), Sequence::Sound { records: 0 });
        for (at, broken) in [(0, 0), (1, MOST_CPUS), (2, 5), (2, 0), (3, 0), (3, WINDOW_HEADER), (4, 0)] {
            let mut bytes = sound.clone();
            bytes[4 * at..4 * at + 4].copy_from_slice(&u32::to_le_bytes(broken));
            assert_eq!(sequence(&bytes, 9), Sequence::Broken, "{at}");
        }
    }
}
