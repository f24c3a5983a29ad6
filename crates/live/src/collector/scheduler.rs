//! The scheduler's tracepoints, from which the BPF programs know when a thread is off the CPU.

use std::path::Path;

use aya::Ebpf;
use aya::programs::trace_point::TracePointLink;
use aya::programs::{ProgramError, TracePoint};
use exits::{Isa, with_causes};

use super::refusal::rejected;
use crate::tracefs::offset;
use crate::{Error, Tracefs};

/// The programs, and the event of `sched` for each.
const PROGRAMS: [(&str, &str); 2] = [("woken", "sched_wakeup"), ("switched", "sched_switch")];

/// The values of the programs' variables. The reason why some are not known goes into `missing`.
pub(super) fn globals(root: &Path, isa: Isa, missing: &mut Vec<String>) -> Vec<(&'static str, u32)> {
    let mut globals = Vec::from(halts(isa));
    match offsets(root) {
        Ok(offsets) => globals.extend(offsets),
        Err(error) => missing.push(format!("Time without a processor is not known: {error}")),
    }
    globals
}

/// The variables for the exits in which a guest halts.
pub(super) const fn halts(isa: Isa) -> [(&'static str, u32); 2] {
    // HLT, and AMD's idle HLT: Intel SDM volume 3, appendix C, and AMD64 APM volume 2, appendix C.
    let (halt, idle_halt) = match isa {
        Isa::Vmx => (12, 12),
        Isa::Svm => (0x78, 0xa6),
    };
    [("halt_reason", halt), ("idle_halt_reason", idle_halt)]
}

fn offsets(root: &Path) -> Result<[(&'static str, u32); 3], Error> {
    let tracefs = Tracefs::find(root)?;
    let switch = tracefs.format("sched", "sched_switch")?;
    let wakeup = tracefs.format("sched", "sched_wakeup")?;
    Ok([
        ("switch_state_at", offset(&switch, "sched", "prev_state", 8)?),
        ("switch_next_at", offset(&switch, "sched", "next_pid", 4)?),
        ("wakeup_thread_at", offset(&wakeup, "sched", "pid", 4)?),
    ])
}

/// Attaches the programs. `switched`, with which times off the CPU begin, is the last, so that none lacks its wakeup.
pub(super) fn attach(ebpf: &mut Ebpf, root: &Path) -> Result<Vec<TracePointLink>, Error> {
    offsets(root)?;
    let mut links = Vec::new();
    for (name, event) in PROGRAMS {
        let refused = |error: ProgramError| rejected(name, &error);
        let Some(program) = ebpf.program_mut(name) else { continue };
        let program: &mut TracePoint = program.try_into().map_err(refused)?;
        program.load().map_err(refused)?;
        let link = program.attach("sched", event).and_then(|link| program.take_link(link));
        links.push(link.map_err(|error| Error::Attach { event, cause: with_causes(&error) })?);
    }
    Ok(links)
}
