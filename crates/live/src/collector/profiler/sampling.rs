//! Samples all CPUs with a perf event.

use aya::programs::perf_event::{
    HardwareEvent, PerfEvent, PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::{Program, ProgramError};
use exits::with_causes;
use hotspots::Event;

use super::super::Collector;
use super::super::programs::{Link, online};
use super::super::refusal::rejected;
use super::Sampling;
use crate::Error;

/// Starts sampling on all online CPUs; returns the event and the number of CPUs.
pub(super) fn sample(
    collector: &mut Collector,
    sampling: &Sampling,
    notes: &mut Vec<String>,
) -> Result<(Event, u32), Error> {
    const NAME: &str = "tick";
    let online = online()?;
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
        match sample_by(program, event, sampling.frequency_hz, &online) {
            Ok(links) => {
                notes.extend(first.map(|error: Error| {
                    format!(
                        "Sampled by the CPUs' clock, for there is no counter of cycles ({error}): what runs with \
                         interrupts off is found where they are let in again"
                    )
                }));
                collector.attached.links.extend(links.into_iter().map(Link::Perf));
                return Ok((event, u32::try_from(online.len()).unwrap_or(u32::MAX)));
            }
            Err((cpu, source)) => first = first.or_else(|| Some(on_cpu(event, cpu, source))),
        }
    }
    Err(first.unwrap_or(Error::NothingToTrace("no event was asked for".to_owned())))
}

fn sample_by(
    program: &mut PerfEvent,
    event: Event,
    frequency_hz: u64,
    cpus: &[u32],
) -> Result<Vec<PerfEventLink>, (u32, ProgramError)> {
    let config = match event {
        Event::Cycles => PerfEventConfig::Hardware(HardwareEvent::CpuCycles),
        Event::CpuClock | Event::Exits => PerfEventConfig::Software(SoftwareEvent::CpuClock),
    };
    let attach = |&cpu: &u32| {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        let link = program.attach(config, scope, SamplePolicy::Frequency(frequency_hz), false);
        link.and_then(|link| program.take_link(link)).map_err(|error| (cpu, error))
    };
    cpus.iter().map(attach).collect()
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
