//! Reader of trace-cmd's `trace.dat`, versions 6 and 7.
//!
//! Sources: trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5); `lib/trace-cmd/trace-input.c` and `trace-output.c` of
//! trace-cmd 3.4. The pages in it are those of the kernel's ring buffer, see `page`.
//!
//! The file does not contain processes, so the VM of a vCPU is unknown; threads distinguish VMs.

mod batch;
mod clock;
mod compression;
mod descriptions;
mod feed;
mod file;
mod flaws;
mod header;
mod layout;
mod options;
mod page;
mod recovery;
mod section;
mod statistics;
mod version6;
mod version7;

use batch::Batch;
use clock::Clock;
use feed::Feed;
use file::{Flaw, Recorded};
use flaws::Flaws;
use header::Header;
use layout::{Buffer, Layout};

use crate::assembly::Assembly;
use crate::decoder::Decoder;
use crate::input::Input;
use crate::owners::Owners;
use crate::run::Run;
use crate::tracing_data::MAGIC;
use crate::{Damage, Error, Format, Options, Origin, Reading, Sink, pipeline};

/// The kernel's name of the only architecture whose `kvm_exit` has exit reasons of VMX and SVM.
const X86_64: &str = "x86_64";
/// The event that must be present.
const KVM_EXIT: &str = "kvm:kvm_exit";
/// The most events that a message names.
const FEW: usize = 5;

/// Tests whether the first bytes are a `trace.dat`.
pub(crate) fn begins(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// Reads a recording.
pub(crate) fn read(input: Input, options: Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let (name, failure) = (input.name.clone(), input.failure());
    let (file, length) = input.into_file()?;
    let recorded = Recorded { name, file, length };
    let header = Header::read(&recorded)?;
    let mut layout = if header.has_sections() {
        version7::read(&recorded, &header)?
    } else {
        version6::read(&recorded, &header)?
    };
    let Machine { host, kernel, architecture } = Machine::parse(layout.facts.uname.as_deref().unwrap_or(""));
    check(&recorded, &layout, architecture)?;
    let mut flaws = Flaws::new(length);
    let of_options = std::mem::take(&mut layout.facts.flaws);
    std::mem::take(&mut layout.flaws).into_iter().chain(of_options).for_each(|flaw| flaws.add(flaw));
    if let Some(error) = failure.take() {
        flaws.add(Flaw::new(format!("what it was packed with ends early ({error})"), length));
    }
    let mut warnings = std::mem::take(&mut layout.warnings);
    if layout.facts.further_buffers > 0 {
        warnings.push(format!(
            "{} beyond the first {} left out",
            exits::counted(layout.facts.further_buffers as u64, "buffer"),
            options::MOST_BUFFERS
        ));
    }
    let buffers = of_one_clock(&layout, &mut warnings);
    let mut assembly = Assembly::new(options, sink);
    let mut tally = Tally::new(&buffers, flaws);
    let decoder = &layout.descriptions.decoder;
    let mut feed = Feed::new(&recorded, header.compression, &buffers);
    let decode = |chunk: &mut feed::Chunk, batch: &mut Batch| batch::decode(chunk, decoder, batch);
    pipeline::run(&mut feed, options.threads, decode, |batch: &mut Batch| tally.take(batch, &mut assembly));
    let exits = tally.hand_over(decoder, &layout, &buffers, &mut assembly);
    for ((buffer, _), count) in buffers.iter().zip(&tally.left_out).filter(|(_, count)| **count > 0) {
        let title = buffer.title();
        warnings.push(format!(
            "{} of {title} left out: another buffer has those of the same threads",
            exits::counted(*count, "event")
        ));
    }
    let damage = tally.flaws.damage(&mut warnings);
    if exits == 0 {
        return Err(no_exits(recorded, &tally.counts, decoder, damage));
    }
    let version = layout.facts.version.take().unwrap_or_else(|| header.version.to_string());
    let mut origin = Origin::new(Format::TraceDat);
    (origin.version, origin.host, origin.kernel, origin.bytes) = (Some(version), host, kernel, length);
    let profile = assembly.finish(&mut warnings);
    Ok(Reading { profile, origin, damage, warnings })
}

/// The output of `uname` on the recording machine.
struct Machine {
    host: Option<String>,
    kernel: Option<String>,
    architecture: Option<String>,
}

impl Machine {
    /// Parses system, host, release and architecture.
    fn parse(uname: &str) -> Self {
        let mut words = uname.split_whitespace().skip(1).map(str::to_owned);
        // "(none)" is a host without a name.
        let host = words.next().filter(|host| host != "(none)");
        Self { host, kernel: words.next(), architecture: words.next() }
    }
}

/// Checks that the recording can have exits of x86.
fn check(recorded: &Recorded, layout: &Layout, architecture: Option<String>) -> Result<(), Error> {
    let name = || recorded.name.clone();
    let descriptions = &layout.descriptions;
    if let Some(architecture) = architecture.filter(|architecture| architecture != X86_64) {
        return Err(Error::Architecture { name: name(), architecture });
    }
    if descriptions.pages.is_some_and(|pages| !pages.wide) {
        return Err(Error::Unsupported {
            name: name(),
            what: "a recording of a kernel of 32 bits".to_owned(),
            next: "record on a host with a 64-bit kernel",
        });
    }
    if descriptions.decoder.has_exits() {
        return Ok(());
    }
    if descriptions.has_kvm_exit {
        let architecture = "another architecture (its `kvm_exit` has no field `isa`)".to_owned();
        return Err(Error::Architecture { name: name(), architecture });
    }
    let systems = &descriptions.systems;
    let found = match systems.len() {
        0 => "it describes no events".to_owned(),
        _ => format!("it describes those of {}", systems.join(", ")),
    };
    let found = descriptions.misunderstood.beside(found);
    Err(Error::NoExits { name: name(), missing: KVM_EXIT, found })
}

/// The buffers with comparable times: those with the clock of most of the data.
fn of_one_clock(layout: &Layout, warnings: &mut Vec<String>) -> Vec<(Buffer, Clock)> {
    let bytes = |clock: &str| -> u64 {
        let buffers = layout.buffers.iter().filter(|buffer| buffer.clock == clock);
        buffers
            .flat_map(|buffer| &buffer.processors)
            .map(|processor| processor.length)
            .fold(0, u64::saturating_add)
    };
    let Some(chosen) = layout.buffers.iter().rev().max_by_key(|buffer| bytes(&buffer.clock)) else {
        return Vec::new();
    };
    let (kept, left): (Vec<_>, Vec<_>) =
        layout.buffers.iter().partition(|buffer| buffer.clock == chosen.clock);
    for buffer in left.iter().filter(|buffer| !buffer.processors.is_empty()) {
        warnings.push(format!(
            "{} was left out: its clock is `{}`, and that of the others is `{}`",
            buffer.title(),
            buffer.clock,
            chosen.clock
        ));
    }
    let clock = Clock::new(&chosen.clock, &layout.facts);
    warnings.extend(clock.doubt(&chosen.clock));
    if layout.facts.of_guest {
        warnings.push(
            "it was recorded in a guest; times are the guest's own, not moved to the host's".to_owned(),
        );
    }
    warnings.extend(layout.descriptions.misunderstood.told());
    kept.into_iter().map(|buffer| (buffer.clone(), clock)).collect()
}

/// The totals over all batches.
struct Tally {
    counts: Vec<u64>,
    /// Losses by the buffer's index.
    losses: Vec<u64>,
    flaws: Flaws,
    owners: Owners,
    /// Events that another buffer has too, by the buffer's index.
    left_out: Vec<u64>,
}

impl Tally {
    fn new(buffers: &[(Buffer, Clock)], flaws: Flaws) -> Self {
        Self {
            counts: Vec::new(),
            losses: vec![0; buffers.len()],
            flaws,
            owners: Owners::default(),
            left_out: vec![0; buffers.len()],
        }
    }

    fn take<S: Sink>(&mut self, batch: &mut Batch, assembly: &mut Assembly<'_, S>) {
        batch.observed.iter().for_each(|&times| assembly.observed(times));
        let losses = std::mem::take(&mut batch.losses);
        let (cpu, buffer) = (batch.cpu, batch.buffer);
        let runs = batch.runs();
        let mut at = 0;
        for &(behind, count) in &losses {
            self.pass_on(&mut runs[at..behind], cpu, buffer, assembly);
            at = behind;
            assembly.lost(cpu, 0);
            self.losses[buffer] = self.losses[buffer].saturating_add(count);
        }
        self.pass_on(&mut runs[at..], cpu, buffer, assembly);
        batch.losses = losses;
        assembly.undecoded(batch.undecoded);
        batch.flaws.drain(..).for_each(|flaw| self.flaws.add(flaw));
        if self.counts.len() < batch.counts.len() {
            self.counts.resize(batch.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&batch.counts).for_each(|(sum, count)| *sum += count);
        // Another event with exactly this time may follow. Until every CPU was read once, the oldest event is
        // unknown.
        if batch.reached_ns > 0 {
            assembly.flush(batch.reached_ns - 1);
        }
    }

    fn pass_on<S: Sink>(
        &mut self,
        runs: &mut [Run<u32>],
        cpu: u16,
        buffer: usize,
        assembly: &mut Assembly<'_, S>,
    ) {
        for run in runs {
            if self.left_out.len() > 1 {
                let before = run.events.len();
                run.events.retain(|event| self.owners.takes(buffer, event.thread, event.kind));
                self.left_out[buffer] += (before - run.events.len()) as u64;
            }
            if let Some(last) = run.events.last() {
                assembly.last_of_cpu(cpu, last.time_ns);
                assembly.append(run.thread, &mut run.events, run.ordered, run.newest_ns);
            }
        }
    }

    /// Passes on the sums; returns the number of exits.
    fn hand_over<S: Sink>(
        &self,
        decoder: &Decoder,
        layout: &Layout,
        buffers: &[(Buffer, Clock)],
        assembly: &mut Assembly<'_, S>,
    ) -> u64 {
        let mut exits = 0;
        for (name, &count) in decoder.names().zip(&self.counts).filter(|(_, count)| **count > 0) {
            assembly.count_event(name, count);
            exits += if name == KVM_EXIT { count } else { 0 };
        }
        // The kernel counts all losses; pages report only those before them, some without a number.
        let counted = statistics::lost(&layout.facts.statistics);
        for ((buffer, _), &in_pages) in buffers.iter().zip(&self.losses) {
            let counted = counted.get(buffer.name.as_str()).copied().unwrap_or(0);
            assembly.lost_events(in_pages.max(counted), 0);
        }
        exits
    }
}

fn no_exits(recorded: Recorded, counts: &[u64], decoder: &Decoder, damage: Option<Damage>) -> Error {
    let mut counted: Vec<_> = decoder.names().zip(counts).filter(|(_, count)| **count > 0).collect();
    counted.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    if let Some(damage) = damage {
        return Flaw::new(format!("{}, and there are no exits before", damage.what), damage.offset)
            .error(&recorded);
    }
    let listed: Vec<_> = counted.iter().take(FEW).map(|(name, count)| format!("{count} {name}")).collect();
    let found = match counted.len() {
        0 => "no events at all".to_owned(),
        1..=FEW => listed.join(", "),
        more => format!("{} and {}", listed.join(", "), exits::counted((more - FEW) as u64, "other")),
    };
    Error::NoExits { name: recorded.name, missing: KVM_EXIT, found }
}
