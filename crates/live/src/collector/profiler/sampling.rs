//! Samples all CPUs with a perf event.

use aya::programs::perf_event::{
    HardwareEvent, PerfEvent, PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::{Program, ProgramError};
use exits::with_causes;
use hotspots::Event;

use super::super::Collector;
use super::super::refusal::rejected;
use super::Sampling;
use crate::Error;
use crate::trace::cpus::{OfCpus, Online};

const NAME: &str = "tick";

/// Samples on all online CPUs until this is dropped.
pub(super) struct Sampled {
    event: Event,
    frequency_hz: u64,
    links: OfCpus<PerfEventLink>,
}

impl Sampled {
    pub(super) fn event(&self) -> Event {
        self.event
    }

    /// Samples CPUs that came online, also again.
    pub(super) fn follow(&mut self, collector: &mut Collector, online: &Online) {
        let Some(Program::PerfEvent(program)) = collector.attached.ebpf.program_mut(NAME) else { return };
        let Self { event, frequency_hz, links } = self;
        let over = links.follow(online, |cpu| {
            let sampled = sample_cpu(program, *event, *frequency_hz, cpu);
            sampled.inspect_err(|(_, error)| tracing::debug!(cpu, %error, "it is not sampled")).ok()
        });
        drop(over);
    }
}

/// Starts sampling on all online CPUs.
pub(super) fn sample(
    collector: &mut Collector,
    sampling: &Sampling,
    online: &Online,
    notes: &mut Vec<String>,
) -> Result<Sampled, Error> {
    let frequency_hz = sampling.frequency_hz;
    let refused = |error: ProgramError| rejected(NAME, &error);
    let program = match collector.attached.ebpf.program_mut(NAME) {
        Some(Program::PerfEvent(program)) => program,
        _ => {
            return Err(Error::Load { cause: format!("there is no program {NAME}"), next: "build it again" });
        }
    };
    program.load().map_err(refused)?;
    let wanted = match sampling.event {
        Some(event) => vec![event],
        None => vec![Event::Cycles, Event::CpuClock],
    };
    let mut first = None;
    for event in wanted {
        let links = OfCpus::open(online, |cpu| sample_cpu(program, event, frequency_hz, cpu).map(Some));
        match links {
            Ok(links) => {
                notes.extend(first.map(|error: Error| {
                    format!(
                        "Sampled by the CPUs' clock, for there is no counter of cycles ({error}): what runs with \
                         interrupts off is found where they are let in again"
                    )
                }));
                return Ok(Sampled { event, frequency_hz, links });
            }
            Err((cpu, source)) => first = first.or_else(|| Some(on_cpu(event, cpu, source))),
        }
    }
    Err(first.unwrap_or(Error::NothingToTrace("no event was asked for".to_owned())))
}

fn sample_cpu(
    program: &mut PerfEvent,
    event: Event,
    frequency_hz: u64,
    cpu: u32,
) -> Result<PerfEventLink, (u32, ProgramError)> {
    let config = match event {
        Event::Cycles => PerfEventConfig::Hardware(HardwareEvent::CpuCycles),
        Event::CpuClock | Event::Exits => PerfEventConfig::Software(SoftwareEvent::CpuClock),
    };
    let scope = PerfEventScope::AllProcessesOneCpu { cpu };
    let link = program.attach(config, scope, SamplePolicy::Frequency(frequency_hz), false);
    link.and_then(|link| program.take_link(link)).map_err(|error| (cpu, error))
}

fn on_cpu(event: Event, cpu: u32, error: ProgramError) -> Error {
    let event = match event {
        Event::Cycles => "cycles",
        Event::CpuClock | Event::Exits => "cpu-clock",
    };
    let source = match error {
        ProgramError::SyscallError(error) => error.io_error,
        other => std::io::Error::other(with_causes(&other)),
    };
    let next = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_PERFMON and CAP_BPF",
        Some(libc::EINVAL) => {
            "ask for fewer samples with --frequency: kernel.perf_event_max_sample_rate is the most"
        }
        Some(libc::EBUSY) => "another program has the counter; try --event cpu-clock",
        _ => "this machine has no such counter; try --event cpu-clock",
    };
    Error::OnCpu { action: "sample", event: event.to_owned(), cpu, next: next.to_owned(), source }
}
