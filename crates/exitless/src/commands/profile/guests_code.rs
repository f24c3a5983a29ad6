//! The guest's code at exits, from recordings of exits. The closest substitute for samples on Xen hosts;
//! every recording of KVM has it too.

use exits::counted;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

use anyhow::Context as _;
use exits::ExitReason;
use hotspots::{Activity, Away, Event, Head, KernelSymbols, Measured, Recording, Space, Stack};
use traces::{ExitRecord, Options, Recordings, Sink, Source};

use super::Hot;
use crate::commands::recordings::{Destination, add};
use crate::console::Waiting;

/// The most places in a profile; exits at further places are counted only.
const MOST_PLACES: usize = 1 << 20;

/// Exits by place.
#[derive(Debug, Default)]
struct Places {
    left: HashMap<(Option<u32>, ExitReason, u64), u64>,
    measured: BTreeMap<(Option<u32>, ExitReason), Measured>,
    without_place: u64,
}

impl Sink for Places {
    fn exit(&mut self, exit: &ExitRecord) {
        let reason = exit.reason.basic();
        let handling_ns = exit.handling_ns.unwrap_or(0);
        let measured = self.measured.entry((exit.vcpu.vm, reason)).or_default();
        measured.add(Measured { exits: 1, handling_ns, away: Away::default() });
        let key = (exit.vcpu.vm, reason, exit.guest_rip);
        if exit.guest_rip == 0 || (self.left.len() >= MOST_PLACES && !self.left.contains_key(&key)) {
            self.without_place += 1;
        } else {
            *self.left.entry(key).or_default() += 1;
        }
    }
}

impl Destination for Places {}

/// Reads a recording of exits: `file`, or the stream that was opened as that.
pub(super) fn read(
    file: &Path,
    stream: Option<Box<dyn Read + Send>>,
    symbols: Option<&Path>,
) -> anyhow::Result<Hot> {
    let known = match symbols {
        Some(path) => {
            let bytes = std::fs::read(path)
                .with_context(|| format!("Could not read the guest's symbols in {}", path.display()))?;
            Some(KernelSymbols::parse(&String::from_utf8_lossy(&bytes)))
        }
        None => None,
    };
    let mut recordings = Recordings::new(Options::default());
    let mut places = Places::default();
    let name = Source::from(file).to_string();
    match stream {
        Some(stream) => {
            let waiting = Waiting::new(format!("Reading {name}"));
            let reading = traces::read_stream(&name, stream, &recordings.options, &mut places)?;
            drop(waiting);
            recordings.add(name.clone(), reading);
        }
        None => add(&mut recordings, file, &mut places)?,
    }
    let mut notes: Vec<String> = report::recordings::doubts(&recordings);
    match (&known, symbols) {
        (Some(known), Some(path)) if known.is_empty() => notes.push(format!(
            "{} has no code symbols, or hides their addresses, so functions have no names",
            path.display()
        )),
        (None, _) => notes.push(
            "Without --guest-symbols places have addresses alone; a guest with KASLR has its own /proc/kallsyms, which \
             root of the guest can read"
                .to_owned(),
        ),
        _ => {}
    }
    if places.without_place > 0 {
        let exits = counted(places.without_place, "exit");
        notes.push(format!("{exits} without a place in the guest's code"));
    }
    notes.push(
        "Only by exits: guest code that causes no exit is not seen, nor any code of the host".to_owned(),
    );
    let head = Head {
        kernel: recordings.files.first().and_then(|file| file.origin.kernel.clone()),
        event: Event::Exits,
        frequency_hz: 0,
        cpus: 0,
        duration_ns: recordings.observed_ns(),
        away: false,
        notes,
    };
    let mut recording = Recording::new(head);
    recording.names = recordings.profile.names.clone();
    recording.measured = places.measured;
    recording.losses.lost_exits = recordings.profile.losses.lost_exits;
    let mut left: Vec<_> = places.left.into_iter().collect();
    left.sort_unstable();
    let known = known.unwrap_or_default();
    for ((vm, reason, address), samples) in left {
        let number = recording.number(known.frame(address, Space::Guest, "guest"));
        recording.stacks.push(Stack {
            vm,
            thread: None,
            activity: Activity::Exit(reason),
            frames: vec![number],
            samples,
            away: Away::default(),
            cut: false,
        });
    }
    let is_damaged = recordings.is_damaged();
    Ok(Hot { name, recording, is_damaged })
}
