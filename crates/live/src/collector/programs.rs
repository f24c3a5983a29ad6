//! The eBPF programs: which there are, what they are told about the running kernel, and bringing them into it.

use std::path::Path;

use aya::programs::{Program, ProgramError, RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfError, EbpfLoader};
use exits::Isa;

use super::layout::Layout;
use crate::{Error, EventFormat, Tracefs};

/// What the programs do with an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Count it in the kernel.
    Count,
    /// Give it to user space by a ring buffer (Linux 5.8).
    RecordRing,
    /// Give it to user space by perf's buffers.
    RecordPerf,
}

/// How the kernel's tracepoints are reached.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "mechanism")]
pub enum Mechanism {
    /// Raw tracepoints, with the reason read from KVM's structures by the modules' type information.
    RawTracepoints,
    /// Tracepoints with their records, by the format files.
    Tracepoints {
        /// Why not raw ones.
        why: String,
    },
}

/// An event, the program that takes it (behind `raw_` or `tracepoint_`), and the fields that a record has of it: the
/// program's variable, the field and its size in bytes.
struct Event {
    name: &'static str,
    program: &'static str,
    fields: &'static [(&'static str, &'static str, usize)],
}

const EXIT_AND_ENTRY: [Event; 2] = [
    Event { name: "kvm_entry", program: "entry", fields: &[("entry_vcpu_at", "vcpu_id", 4)] },
    Event { name: "kvm_exit", program: "exit", fields: &[("exit_reason_at", "exit_reason", 4)] },
];

const ACCESSES: [Event; 6] = [
    Event { name: "kvm_pio", program: "pio", fields: &[("pio_rw_at", "rw", 4), ("pio_port_at", "port", 4)] },
    Event {
        name: "kvm_mmio",
        program: "mmio",
        fields: &[("mmio_type_at", "type", 4), ("mmio_gpa_at", "gpa", 8)],
    },
    Event {
        name: "kvm_msr",
        program: "msr",
        fields: &[("msr_write_at", "write", 4), ("msr_ecx_at", "ecx", 4)],
    },
    Event {
        name: "kvm_apic",
        program: "apic",
        fields: &[("apic_rw_at", "rw", 4), ("apic_reg_at", "reg", 4)],
    },
    Event { name: "kvm_avic_incomplete_ipi", program: "incomplete_ipi", fields: &[("ipi_id_at", "id", 4)] },
    Event {
        name: "kvm_avic_unaccelerated_access",
        program: "unaccelerated",
        fields: &[("unaccelerated_offset_at", "offset", 4), ("unaccelerated_rw_at", "rw", 1)],
    },
];

/// What to bring into the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) purpose: Purpose,
    pub(super) isa: Isa,
    pub(super) accesses: bool,
    pub(super) filtered: bool,
    pub(super) cells: u32,
    pub(super) ring_bytes: u32,
    /// Not raw tracepoints even where they can be used, for this reason.
    pub(super) no_raw: Option<&'a str>,
}

/// Programs that run.
pub(super) struct Attached {
    pub(super) ebpf: Ebpf,
    pub(super) mechanism: Mechanism,
    /// Events that the kernel does not have, each with the cause.
    pub(super) missing: Vec<String>,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

// Loading wants the object where its words begin.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);
static COUNT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/count.o")));
static RECORD_RING: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/record_ring.o")));
static RECORD_PERF: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/record_perf.o")));

/// Loads the programs, but attaches none yet.
pub(super) fn load(root: &Path, tracefs: &Tracefs, wanted: &Wanted<'_>) -> Result<Attached, Error> {
    let layout = match wanted.no_raw {
        Some(why) => Err(why.to_owned()),
        None => Layout::find(root, wanted.isa),
    };
    let mut missing = Vec::new();
    let mut formats = Vec::new();
    for event in events(wanted) {
        match tracefs.format("kvm", event.name) {
            Ok(format) => formats.push((event, format)),
            Err(error) if is_optional(event) => missing.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let mut globals: Vec<(&'static str, u32)> =
        vec![("filtered", u32::from(wanted.filtered)), ("svm", u32::from(wanted.isa == Isa::Svm))];
    let mechanism = match layout {
        Ok(layout) => {
            globals.extend([
                ("vcpu_argument", layout.vcpu_argument),
                ("vcpu_id_at", layout.vcpu_id),
                ("reason_at", layout.reason),
                ("vmcb_at", layout.vmcb),
            ]);
            Mechanism::RawTracepoints
        }
        Err(why) => {
            for (event, format) in &formats {
                for &(global, field, size) in event.fields {
                    globals.push((global, offset(format, event.name, field, size)?));
                }
            }
            Mechanism::Tracepoints { why }
        }
    };
    let mut loader = EbpfLoader::new();
    for (name, value) in &globals {
        loader.override_global(name, value, true);
    }
    let object = match wanted.purpose {
        Purpose::Count => {
            loader.map_max_entries("cells", wanted.cells);
            &COUNT.0
        }
        Purpose::RecordRing => {
            loader.map_max_entries("records", wanted.ring_bytes);
            &RECORD_RING.0
        }
        Purpose::RecordPerf => &RECORD_PERF.0,
    };
    let mut ebpf = loader.load(object).map_err(|error| not_loaded(&error))?;
    for (event, _) in &formats {
        load_program(&mut ebpf, event, &mechanism)?;
    }
    Ok(Attached { ebpf, mechanism, missing })
}

impl Attached {
    /// Lets the programs run: entries first and exits last, so that no exit misses its entry or its access.
    pub(super) fn attach(&mut self, wanted: &Wanted<'_>) -> Result<(), Error> {
        for event in ordered(wanted) {
            let program = self.ebpf.program_mut(&program_name(event, &self.mechanism));
            let outcome = match program {
                Some(Program::RawTracePoint(program)) => program.attach(event.name).map(drop),
                Some(Program::TracePoint(program)) => program.attach("kvm", event.name).map(drop),
                _ => continue,
            };
            match outcome {
                Err(ProgramError::NotLoaded) => {}
                Err(error) if is_optional(event) => {
                    self.missing.push(format!("kvm:{} could not be attached: {error}", event.name));
                }
                Err(error) => return Err(Error::Attach { event: event.name, cause: chain(&error) }),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

fn events(wanted: &Wanted<'_>) -> impl Iterator<Item = &'static Event> {
    EXIT_AND_ENTRY.iter().chain(ACCESSES.iter().filter(|_| wanted.accesses))
}

fn ordered(wanted: &Wanted<'_>) -> impl Iterator<Item = &'static Event> {
    let [entry, exit] = &EXIT_AND_ENTRY;
    let accesses = ACCESSES.iter().filter(|_| wanted.accesses);
    std::iter::once(entry).chain(accesses).chain(std::iter::once(exit))
}

fn is_optional(event: &Event) -> bool {
    EXIT_AND_ENTRY.iter().all(|needed| needed.name != event.name)
}

fn program_name(event: &Event, mechanism: &Mechanism) -> String {
    match mechanism {
        Mechanism::RawTracepoints => format!("raw_{}", event.program),
        Mechanism::Tracepoints { .. } => format!("tracepoint_{}", event.program),
    }
}

fn load_program(ebpf: &mut Ebpf, event: &Event, mechanism: &Mechanism) -> Result<(), Error> {
    let name = program_name(event, mechanism);
    let rejected = |error: ProgramError| rejected(&name, &error);
    let Some(program) = ebpf.program_mut(&name) else { return Ok(()) };
    match mechanism {
        Mechanism::RawTracepoints => {
            let program: &mut RawTracePoint = program.try_into().map_err(rejected)?;
            program.load().map_err(rejected)
        }
        Mechanism::Tracepoints { .. } => {
            let program: &mut TracePoint = program.try_into().map_err(rejected)?;
            program.load().map_err(rejected)
        }
    }
}

fn offset(format: &EventFormat, event: &str, field: &'static str, size: usize) -> Result<u32, Error> {
    let unusable = || Error::Field { event: format!("kvm:{event}"), field };
    let found = format.field(field).filter(|found| found.size == size && !found.array && !found.located);
    u32::try_from(found.ok_or_else(unusable)?.offset).map_err(|_| unusable())
}

pub(crate) fn not_loaded(error: &EbpfError) -> Error {
    Error::Load { cause: chain(error), next: what_next(error) }
}

/// The reason in one line; the verifier's log goes to a file.
pub(crate) fn rejected(program: &str, error: &ProgramError) -> Error {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return Error::Load { cause: format!("{program}: {}", chain(error)), next: what_next(error) };
    };
    let log = verifier_log.to_string();
    if log.trim().is_empty() {
        let cause = format!("the kernel refused program {program}: {io_error}");
        return Error::Load { cause, next: what_next(error) };
    }
    let reason = reason_of_rejection(&log).to_owned();
    let path = std::env::temp_dir().join(format!("exitless-verifier-{}.log", std::process::id()));
    let saved = std::fs::write(&path, &log).map(|()| path);
    Error::Rejected { program: program.to_owned(), reason, log: saved.ok() }
}

/// The verifier's last words, before its statistics.
fn reason_of_rejection(log: &str) -> &str {
    let statistics = ["processed ", "verification time ", "stack depth "];
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.rfind(|line| !statistics.iter().any(|start| line.starts_with(start))).unwrap_or(log)
}

fn what_next(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return match io.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    "run as root (CAP_BPF and CAP_PERFMON are needed; under lockdown=confidentiality no eBPF \
                     program may read the kernel)"
                }
                Some(libc::ENOMEM) => "raise the limit of locked memory (`ulimit -l unlimited`)",
                Some(libc::ENOSYS) => "this kernel was built without eBPF (CONFIG_BPF_SYSCALL)",
                _ => "see the kernel's log",
            };
        }
        source = error.source();
    }
    "see the kernel's log"
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_says_why_before_its_statistics() {
        let log = "0: R1=ctx() R10=fp0\n1: (79) r1 = *(u64 *)(r1 +8)\nR1 invalid mem access 'scalar'\n\
                   verification time 37 usec\nstack depth 0\nprocessed 2 insns (limit 1000000)\n";
        assert_eq!(reason_of_rejection(log), "R1 invalid mem access 'scalar'");
        assert_eq!(reason_of_rejection(""), "");
    }

    #[test]
    fn every_field_has_a_variable_in_the_programs() {
        let source = include_str!("programs/exits.bpf.c");
        for event in EXIT_AND_ENTRY.iter().chain(&ACCESSES) {
            for (global, ..) in event.fields {
                assert!(source.contains(global), "{global}");
            }
        }
    }

    #[test]
    fn fields_are_found_in_the_formats_of_a_real_kernel() {
        let formats = include_str!("../../../tracepoints/tests/fixtures/all-of-kvm.formats");
        for event in EXIT_AND_ENTRY.iter().chain(&ACCESSES) {
            let start = formats.find(&format!("name: {}\n", event.name)).expect(event.name);
            let text = &formats[start..];
            let end = text[5..].find("name: ").map_or(text.len(), |at| at + 5);
            let format = EventFormat::parse(&text[..end]).expect(event.name);
            for &(global, field, size) in event.fields {
                assert!(offset(&format, event.name, field, size).is_ok(), "{global}");
            }
        }
    }
}
