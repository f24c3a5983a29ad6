//! Infers the kinds of events in a recording without descriptions.
//!
//! perf writes the descriptions at the end of the file, so they are missing if the recorder was killed or the file
//! was cut. What remains are event IDs and the behaviour of events: exits and entries alternate, and accesses follow
//! the exits that cause them. The fields that are read have had the same offsets since Linux 2.6.37. So the
//! descriptions of 6.12 are used, but only for events whose samples agree with them.

use exits::{ExitReason, Isa};
use rustc_hash::FxHashMap;
use tracepoints::EventFormat;

use super::chunk::{self, Chunk};
use super::feed::Records;
use crate::bytes::{u16_at, u32_at};
use crate::pipeline::Feed;

/// Concatenated `format` files of KVM's events that are read.
const FORMATS: &str = include_str!("formats/linux-6.12");
/// The number of samples to inspect.
const MOST_SAMPLES: usize = 20_000;
/// The bytes of each that are looked at: all fields that are read lie in them.
const MOST_BYTES: usize = 32;
/// The percentage of an event's occurrences that must be as expected: different clocks and losses spoil some.
const MOSTLY: usize = 90;

/// The observed behaviour of an event.
#[derive(Debug, Default)]
struct Conduct {
    count: usize,
    /// The number of occurrences whose fields could be those of an exit, of a port access and so on.
    exit: usize,
    port: usize,
    mmio: usize,
    msr: usize,
    /// The number of occurrences right before an exit of the same thread.
    before_exit: usize,
    /// The number of occurrences in an exit with this cause.
    in_port: usize,
    in_mmio: usize,
    in_msr: usize,
}

/// The last event and exit of a thread.
#[derive(Debug, Default, Clone, Copy)]
struct Last {
    event: u16,
    exit: Option<ExitReason>,
}

/// Finds KVM's events in `records`. Returns their descriptions with the IDs in this recording, and the number of
/// inspected samples. Returns no descriptions if the samples are not conclusive.
pub(super) fn formats(records: &mut Records) -> (Vec<(String, EventFormat)>, usize) {
    let samples = samples(records);
    let mut all: FxHashMap<u16, Conduct> = FxHashMap::default();
    for (_, raw) in &samples {
        let conduct = all.entry(id(raw)).or_default();
        conduct.count += 1;
        conduct.exit += usize::from(exit(raw).is_some());
        conduct.port += usize::from(port(raw));
        conduct.mmio += usize::from(mmio(raw));
        conduct.msr += usize::from(msr(raw));
    }
    // Exits of a nested guest look the same, but there are fewer of them than of the exits they cause.
    let exits = all.iter().filter(|(_, conduct)| conduct.exit == conduct.count).max_by_key(|(_, c)| c.count);
    let Some((&exits, _)) = exits else { return (Vec::new(), samples.len()) };
    follow(&samples, exits, &mut all);
    let best = |fit: &dyn Fn(&Conduct) -> usize, plausible: &dyn Fn(&Conduct) -> bool| {
        let mostly = |conduct: &Conduct| fit(conduct) * 100 >= conduct.count * MOSTLY;
        let candidates =
            all.iter().filter(|(id, conduct)| **id != exits && plausible(conduct) && mostly(conduct));
        candidates.max_by_key(|(_, conduct)| fit(conduct)).map(|(&id, _)| id)
    };
    let found = [
        ("kvm_exit", Some(exits)),
        ("kvm_entry", best(&|c| c.before_exit, &|_| true)),
        ("kvm_pio", best(&|c| c.in_port, &|c| c.port == c.count)),
        ("kvm_mmio", best(&|c| c.in_mmio, &|c| c.mmio == c.count)),
        ("kvm_msr", best(&|c| c.in_msr, &|c| c.msr == c.count)),
    ];
    let formats = FORMATS.split("\n\nname: ").filter_map(|text| {
        let mut format = EventFormat::parse(&format!("name: {}", text.trim_start_matches("name: "))).ok()?;
        format.id = found.iter().find(|(name, _)| *name == format.name)?.1?;
        Some(("kvm".to_owned(), format))
    });
    (formats.collect(), samples.len())
}

/// The threads and the beginnings of the raw data of the first samples.
fn samples(records: &mut Records) -> Vec<(u32, Vec<u8>)> {
    let (mut chunk, mut samples) = (Chunk::default(), Vec::new());
    while samples.len() < MOST_SAMPLES && records.next(&mut chunk) {
        chunk::samples(&chunk, |thread, raw| {
            samples.push((thread, raw[..raw.len().min(MOST_BYTES)].to_vec()))
        });
    }
    samples
}

/// Counts what each event does during the exits of its thread.
fn follow(samples: &[(u32, Vec<u8>)], exits: u16, all: &mut FxHashMap<u16, Conduct>) {
    let mut threads: FxHashMap<u32, Last> = FxHashMap::default();
    for (thread, raw) in samples {
        let last = threads.entry(*thread).or_default();
        let event = id(raw);
        if event == exits {
            if let Some(before) = all.get_mut(&last.event) {
                before.before_exit += 1;
            }
            last.exit = exit(raw);
        } else if let (Some(reason), Some(conduct)) = (last.exit, all.get_mut(&event)) {
            let is = |vmx: &[u32], svm: u32| match reason.isa {
                Isa::Vmx => vmx.contains(&reason.basic().code),
                Isa::Svm => reason.code == svm,
            };
            conduct.in_port += usize::from(is(&[30], 0x7b));
            conduct.in_mmio += usize::from(is(&[48, 49], 0x400));
            conduct.in_msr += usize::from(is(&[31, 32], 0x7c));
        }
        last.event = event;
    }
}

fn id(raw: &[u8]) -> u16 {
    u16_at(raw, 0).unwrap_or(0)
}

fn exit(raw: &[u8]) -> Option<ExitReason> {
    let reason = ExitReason { isa: Isa::from_kvm(u32_at(raw, 24)?)?, code: u32_at(raw, 8)? };
    reason.name().map(|_| reason)
}

fn port(raw: &[u8]) -> bool {
    let field = |at| u32_at(raw, at);
    field(8).is_some_and(|write| write < 2)
        && field(12).is_some_and(|port| port < 0x1_0000)
        && field(16).is_some_and(|size| matches!(size, 1 | 2 | 4))
        && field(20).is_some()
}

fn mmio(raw: &[u8]) -> bool {
    let field = |at| u32_at(raw, at);
    raw.len() >= 32 && field(8).is_some_and(|kind| kind < 3) && field(12).is_some_and(|length| length <= 64)
}

fn msr(raw: &[u8]) -> bool {
    raw.len() >= 25 && u32_at(raw, 8).is_some_and(|write| write < 2) && raw[24] < 2
}
