//! Reads all records of a recording into a profile.

use exits::{Losses, Vcpu, counted};
use rustc_hash::FxHashMap;

use super::batch::{Batch, Member, Note};
use super::chunk::{self, Chunk};
use super::features::Features;
use super::schema::Schema;
use crate::assembly::{Assembly, PID_MAX_LIMIT};
use crate::run::Run;
use crate::{Error, Format, Options, Origin, Reading, Sink, pipeline};

pub(super) use super::directory::Parts;

/// The kernel's name of the only architecture with exits of VMX and SVM.
const X86_64: &str = "x86_64";
/// The most events that a message names if the wanted one is missing.
const SOME: usize = 5;

/// Reads all records.
pub(super) fn read(
    mut parts: Parts,
    format: Format,
    name: String,
    options: Options,
    sink: &mut impl Sink,
) -> Result<Reading, Error> {
    let mut assembly = Assembly::new(options, sink);
    // After a round, all buffers were read once; the files of a directory have no common rounds.
    let mut tally = Tally { rounds: parts.is_one(), ..Tally::default() };
    let decode = |chunk: &mut Chunk, batch: &mut Batch| chunk::decode(chunk, batch);
    pipeline::run(&mut parts, options.threads, decode, |batch: &mut Batch| {
        take(batch, &mut assembly, &mut tally);
    });
    let records = parts.main();
    let Features { host, kernel, version, architecture, processor, command } = records.features.clone();
    if let Some(architecture) = architecture.filter(|architecture| architecture != X86_64) {
        return Err(Error::Architecture { name, architecture });
    }
    let schema = &records.schema;
    tally.hand_over(schema, &mut assembly);
    let mut warnings = records.warnings.clone();
    warnings.extend(records.misunderstood.told());
    let mut profile = assembly.finish(&mut warnings);
    let damage = parts.damage();
    if !schema.decoder.has_exits() && damage.is_none() {
        let missing = "kvm:kvm_exit";
        return Err(Error::NoExits { name, missing, found: records.misunderstood.beside(found(schema)) });
    }
    if !profile.is_empty() && !profile.events.contains_key("kvm:kvm_entry") {
        profile.losses.exits_without_entry = 0;
        profile.losses.exits_at_the_end = 0;
        warnings.push("It has no kvm:kvm_entry events, so no exit has a handling time".into());
    }
    let sampled = schema.sampled();
    if !sampled.is_empty() {
        // Without the losses of pairs, because there are no pairs.
        let Losses { lost_events, lost_exits, out_of_order, undecoded, .. } = profile.losses;
        profile.losses = Losses { lost_events, lost_exits, out_of_order, undecoded, ..Losses::default() };
        warnings.push(format!(
            "Only samples of {} are recorded (-F or -c of perf record), so counts are too low and no exit has a \
             handling time; record without -F and -c",
            sampled.join(", ")
        ));
    }
    if schema.lacks_time() {
        warnings.push("Its samples have no times; record with perf's default sample format".into());
    }
    let bytes = parts.bytes();
    let origin = Origin { version, host, kernel, processor, command, bytes, ..Origin::new(format) };
    Ok(Reading { profile, origin, damage, warnings })
}

fn found(schema: &Schema) -> String {
    let names: Vec<_> = schema.decoder.names().take(SOME).collect();
    let more = schema.decoder.names().count().saturating_sub(SOME);
    match (names.is_empty(), more) {
        (true, _) => "it has no tracepoints at all".into(),
        (false, 0) => format!("it has {}", names.join(", ")),
        (false, more) => format!("it has {} and {}", names.join(", "), counted(more as u64, "other")),
    }
}

/// An event that is told even if it never occurred: predictions ask for it if it was not recorded.
const RARE: &str = "kvm:kvm_ack_irq";

/// The totals over all batches.
#[derive(Default)]
struct Tally {
    rounds: bool,
    counts: Vec<u64>,
    /// The losses as reported in the buffers, and by the kernel's counts: the same losses are reported twice since
    /// Linux 6.1.
    lost_in_buffers: u64,
    lost_samples: u64,
    lost_exits: u64,
    /// The time from which each process has the known name.
    named_ns: FxHashMap<u32, u64>,
}

impl Tally {
    fn hand_over<S: Sink>(&self, schema: &Schema, assembly: &mut Assembly<'_, S>) {
        let any = self.counts.iter().any(|&count| count > 0);
        for (name, &count) in schema.decoder.names().zip(&self.counts) {
            if count > 0 || any && name == RARE {
                assembly.count_event(name, count);
            }
        }
        assembly.lost_events(self.lost_in_buffers.max(self.lost_samples), self.lost_exits);
    }
}

fn take<S: Sink>(batch: &mut Batch, assembly: &mut Assembly<'_, S>, tally: &mut Tally) {
    if batch.is_sampled {
        assembly.leaves_events_out();
    }
    batch.observed.iter().for_each(|&times| assembly.observed(times));
    let notes = std::mem::take(&mut batch.notes);
    let runs = batch.runs();
    let mut at = 0;
    for (before, note) in &notes {
        hand_over(&mut runs[at..*before], assembly);
        at = *before;
        match note {
            Note::Round if tally.rounds => assembly.round(),
            Note::Round => {}
            Note::Lost { cpu, count, after_ns } => {
                after_ns.iter().for_each(|&after_ns| assembly.last_of_cpu(*cpu, after_ns));
                assembly.lost(*cpu, 0);
                tally.lost_in_buffers = tally.lost_in_buffers.saturating_add(*count);
            }
            Note::LostSamples { exits, count } => {
                tally.lost_samples = tally.lost_samples.saturating_add(*count);
                tally.lost_exits = tally.lost_exits.saturating_add(if *exits { *count } else { 0 });
            }
            // Ignored by the assembly as well.
            Note::Name { process, .. } if *process >= PID_MAX_LIMIT => {}
            Note::Name { process, name, time_ns } => {
                // The files of a directory have names in no common order.
                let known_ns = tally.named_ns.entry(*process).or_insert(0);
                if time_ns >= known_ns {
                    *known_ns = *time_ns;
                    assembly.name(*process, name);
                }
            }
        }
    }
    hand_over(&mut runs[at..], assembly);
    batch.notes = notes;
    batch.last_of_cpu.iter().for_each(|(cpu, last_ns)| assembly.last_of_cpu(cpu, last_ns));
    assembly.undecoded(batch.undecoded);
    if tally.counts.len() < batch.counts.len() {
        tally.counts.resize(batch.counts.len(), 0);
    }
    tally.counts.iter_mut().zip(&batch.counts).for_each(|(sum, count)| *sum += count);
}

fn hand_over<S: Sink>(runs: &mut [Run<Member>], assembly: &mut Assembly<'_, S>) {
    for run in runs {
        let thread = run.thread.thread();
        if let Some(process) = run.thread.process() {
            assembly.introduce(thread, Vcpu { vm: Some(process), number: None, thread: Some(thread) });
        }
        assembly.append(thread, &mut run.events, run.ordered, run.newest_ns);
    }
}
