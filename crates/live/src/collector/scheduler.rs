//! The programs' knowledge of the scheduler's tracepoints, by which they know when a thread had no processor.

use std::path::Path;

use aya::Ebpf;
use aya::programs::trace_point::TracePointLink;
use aya::programs::{ProgramError, TracePoint};
use exits::Isa;

use super::refusal::{chain, rejected};
use crate::tracefs::offset;
use crate::{Error, Tracefs};

/// The programs and the events of `sched` that they take.
const PROGRAMS: [(&str, &str); 2] = [("woken", "sched_wakeup"), ("switched", "sched_switch")];

/// Values of the programs' variables. Those that cannot be read go to `missing`.
pub(super) fn globals(root: &Path, isa: Isa, missing: &mut Vec<String>) -> Vec<(&'static str, u32)> {
    // HLT and MWAIT: Intel SDM volume 3, appendix C, and AMD APM volume 2, appendix C.
    let (halt, mwait) = match isa {
        Isa::Vmx => (12, 36),
        Isa::Svm => (0x78, 0x8b),
    };
    let mut globals = vec![("halt_reason", halt), ("mwait_reason", mwait)];
    match offsets(root) {
        Ok(offsets) => globals.extend(offsets),
        Err(error) => missing.push(format!("Time without a processor is not known: {error}")),
    }
    globals
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

/// Attaches the programs: the one that ends an absence is the last, so that none has a beginning only.
pub(super) fn attach(ebpf: &mut Ebpf, root: &Path) -> Result<Vec<TracePointLink>, Error> {
    offsets(root)?;
    let mut links = Vec::new();
    for (name, event) in PROGRAMS {
        let refused = |error: ProgramError| rejected(name, &error);
        let Some(program) = ebpf.program_mut(name) else { continue };
        let program: &mut TracePoint = program.try_into().map_err(refused)?;
        program.load().map_err(refused)?;
        let link = program.attach("sched", event).and_then(|link| program.take_link(link));
        links.push(link.map_err(|error| Error::Attach { event, cause: chain(&error) })?);
    }
    Ok(links)
}
