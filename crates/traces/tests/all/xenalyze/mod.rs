//! The output of `xenalyze` for a recording, and its parts that belong to no vCPU.

use std::collections::BTreeMap;

use exits::{ExitReason, Vcpu};

/// A line of a summary; times are in cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) count: u64,
    pub(crate) mean: u64,
    pub(crate) quantiles: [u64; 3],
}

/// The lines for all vCPUs.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) exits: BTreeMap<(Vcpu, ExitReason), Line>,
    /// By port and direction, in xenalyze's notation.
    pub(crate) ports: BTreeMap<String, Line>,
}

const NAMES: [(&str, u32); 10] = [
    ("VMEXIT_CR0_READ", 0),
    ("VMEXIT_EXCEPTION_NM", 0x47),
    ("VMEXIT_INTR", 0x60),
    ("VMEXIT_VINTR", 0x64),
    ("VMEXIT_RDTSC", 0x6e),
    ("VMEXIT_CPUID", 0x72),
    ("VMEXIT_HLT", 0x78),
    ("VMEXIT_IOIO", 0x7b),
    ("VMEXIT_MSR", 0x7c),
    ("VMEXIT_VMMCALL", 0x81),
];

/// `VMEXIT_HLT 162 0.53s 26.92% 6925182 cyc {892206|6280840|14967994}`, with any spacing.
fn line(text: &str) -> Option<(&str, Line)> {
    let (head, quantiles) = text.trim().split_once(" cyc {")?;
    let mut words = head.split_whitespace();
    let name = words.next()?;
    let words: Vec<_> = words.collect();
    let quantiles: Vec<u64> =
        quantiles.trim_end_matches('}').split('|').map(|number| number.trim().parse().unwrap()).collect();
    let (count, mean) = (words.first()?.parse().ok()?, words.last()?.parse().ok()?);
    Some((name, Line { count, mean, quantiles: quantiles.try_into().unwrap() }))
}

impl Summary {
    pub(crate) fn parse(text: &str) -> Self {
        let mut summary = Self::default();
        let mut vcpu = Vcpu::default();
        for text in text.lines() {
            if let Some(domain) = text.strip_prefix("|-- Domain ") {
                vcpu.vm = domain.split(' ').next().and_then(|number| number.parse().ok());
            } else if let Some(number) = text.strip_prefix("-- v") {
                vcpu.number = number.split(' ').next().and_then(|number| number.parse().ok());
            } else if let Some((name, line)) = line(text) {
                if let Some((_, code)) = NAMES.iter().find(|entry| entry.0 == name) {
                    summary.exits.insert((vcpu, ExitReason::svm(*code)), line);
                } else if name.contains(":[") {
                    summary.ports.insert(name.to_owned(), line);
                }
            }
        }
        summary
    }
}

/// The events of a CPU before its first scheduler event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    /// The vCPU that ran until that event; `xenalyze` counts its events as those of no domain.
    pub(crate) left: Vcpu,
    /// The exit that was open at that event, and its cycles; `xenalyze` drops it.
    pub(crate) dropped: Option<(ExitReason, u64)>,
}

/// The windows of a recording: the CPU, the start, and the end of the records.
pub(crate) fn windows(bytes: &[u8]) -> Vec<(u32, usize, usize)> {
    let mut windows = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + 12 + word(bytes, at + 8) as usize;
        windows.push((word(bytes, at + 4), at, end));
        at = end;
    }
    windows
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Calls `take` with the CPU, the offset, the event, the ticks and the words of each record.
pub(crate) fn records(bytes: &[u8], mut take: impl FnMut(u32, usize, u32, Option<u64>, &[u32])) {
    for (cpu, begin, end) in windows(bytes) {
        let mut at = begin + 12;
        while at < end {
            let header = word(bytes, at);
            let timed = header >> 31 == 1;
            let ticks = timed.then(|| u64::from(word(bytes, at + 8)) << 32 | u64::from(word(bytes, at + 4)));
            let first = at + if timed { 12 } else { 4 };
            let next = first + 4 * (header >> 28 & 7) as usize;
            let words: Vec<_> = (first..next).step_by(4).map(|at| word(bytes, at)).collect();
            take(cpu, at, header & 0x0fff_ffff, ticks, &words);
            at = next;
        }
    }
}

/// The first events of the CPUs that have some before their first scheduler event.
pub(crate) fn beginnings(bytes: &[u8]) -> BTreeMap<u32, Beginning> {
    let mut open = BTreeMap::<u32, (u32, u64)>::new();
    let mut found = BTreeMap::<u32, Beginning>::new();
    records(bytes, |cpu, _, event, ticks, words| match event {
        0x0008_1003 | 0x0008_1103 if !found.contains_key(&cpu) => {
            open.insert(cpu, (words[0], ticks.unwrap()));
        }
        // The exit is ended by an entry, or because the vCPU is preempted.
        0x0008_1001 | 0x0002_1011 | 0x0002_1021 | 0x0002_1031 | 0x0002_1002 => {
            if event != 0x0008_1001 && !found.contains_key(&cpu) {
                let left = Vcpu { vm: Some(words[0] >> 16), number: Some(words[0] & 0xffff), thread: None };
                found.insert(cpu, Beginning { left, dropped: None });
            }
            if matches!(event, 0x0008_1001 | 0x0002_1011)
                && let (Some((code, since)), Some(beginning)) = (open.remove(&cpu), found.get_mut(&cpu))
            {
                beginning.dropped = Some((ExitReason::svm(code), ticks.unwrap() - since));
            }
        }
        _ => {}
    });
    found
}
