//! Loads and attaches the eBPF programs, and configures them for the running kernel.

use std::path::Path;

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError};
use aya::programs::raw_trace_point::RawTracePointLink;
use aya::programs::trace_point::TracePointLink;
use aya::programs::{Program, ProgramError, RawTracePoint, TracePoint};
use exits::{Isa, LongOptions, with_causes};

use super::layout::Layout;
use super::refusal::{not_loaded, rejected};
use super::{map_error, scheduler, waiting};
use crate::tracefs::offset;
use crate::{Error, EventFormat, Tracefs, lockdown, monotonic_ns};

/// The number of elements of `direct_cells`.
pub(super) const DIRECT_CELLS: u32 = 1 << 15;

/// The number of CPUs that are online.
pub(super) fn processors() -> usize {
    aya::util::online_cpus().map_or(1, |cpus| cpus.len())
}

/// The size of `cells`: 1,024 for each CPU that is online, as much as eight busy vCPUs need. A vCPU with ten exit
/// reasons, whose times lie in six octaves, has 120 cells.
pub(super) fn hashed_cells(processors: usize) -> u32 {
    u32::try_from(processors).unwrap_or(u32::MAX).saturating_mul(1_024).clamp(65_536, 524_288)
}

/// The size of `other_cells`, in which each possible CPU has its own keys: 128 for each.
fn other_cells(processors: usize) -> u32 {
    u32::try_from(processors).unwrap_or(u32::MAX).saturating_mul(128).clamp(2_048, 131_072)
}

/// The variant of the programs, by what they do with an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Counts exits in the kernel.
    Count,
    /// Sends exits to user space in a ring buffer (Linux 5.8).
    RecordRing,
    /// Sends exits to user space in perf's buffers.
    RecordPerf,
    /// Counts exits in the kernel, and samples what CPUs do meanwhile.
    HotSpots,
}

/// The mechanism by which programs are attached to the kernel's tracepoints.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "mechanism")]
pub enum Mechanism {
    /// Raw tracepoints; the reason is read from KVM's structures, whose layout is in the modules' type information.
    RawTracepoints,
    /// Tracepoints with the records that format files describe.
    Tracepoints {
        /// The reason why raw tracepoints are not used.
        why: String,
    },
}

/// An event, the program for it (without `raw_` or `tracepoint_`), and the fields of its record that the program
/// reads: the program's variable, the field's name and its size in bytes.
struct Event {
    name: &'static str,
    program: &'static str,
    fields: &'static [(&'static str, &'static str, usize)],
}

const EXIT_AND_ENTRY: [Event; 2] = [
    Event { name: "kvm_entry", program: "entry", fields: &[("entry_vcpu_at", "vcpu_id", 4)] },
    Event { name: "kvm_exit", program: "exit", fields: &[("exit_reason_at", "exit_reason", 4)] },
];

/// System calls instead of exits: a pair of tracepoints that every machine has, to measure the overhead of the
/// programs.
const SYSTEM_CALL: [Event; 2] = [
    Event { name: "sys_exit", program: "entry", fields: &[("entry_vcpu_at", "id", 8)] },
    Event { name: "sys_enter", program: "exit", fields: &[("exit_reason_at", "id", 8)] },
];

const ACCESSES: [Event; 9] = [
    Event { name: "kvm_pio", program: "pio", fields: &[("pio_rw_at", "rw", 4), ("pio_port_at", "port", 4)] },
    Event {
        name: "kvm_mmio",
        program: "mmio",
        fields: &[("mmio_type_at", "type", 4), ("mmio_gpa_at", "gpa", 8)],
    },
    // A write that KVM ends by its address: on Intel, and on AMD since Linux 7.0, a notification by ioeventfd.
    Event { name: "kvm_fast_mmio", program: "fast_mmio", fields: &[("fast_mmio_gpa_at", "gpa", 8)] },
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
    Event { name: "kvm_nested_vmexit", program: "nested_exit", fields: &[] },
    Event { name: "kvm_nested_vmexit_inject", program: "nested_to_l1", fields: &[] },
];

/// The pair of tracepoints that the programs attach to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pair {
    /// Exits of VMs and entries into them.
    Exits,
    /// System calls of processes: the number stands for the reason.
    SystemCalls,
}

impl Pair {
    /// The subsystem of the tracepoints.
    const fn system(self) -> &'static str {
        match self {
            Self::Exits => "kvm",
            Self::SystemCalls => "raw_syscalls",
        }
    }

    /// The events that end and begin an exit, in this order.
    const fn events(self) -> &'static [Event; 2] {
        match self {
            Self::Exits => &EXIT_AND_ENTRY,
            Self::SystemCalls => &SYSTEM_CALL,
        }
    }
}

/// The programs to load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) purpose: Purpose,
    pub(super) pair: Pair,
    pub(super) isa: Isa,
    pub(super) accesses: bool,
    /// The number of processes to watch; `None` watches all.
    pub(super) watched: Option<usize>,
    /// The exits to record, if not all.
    pub(super) long: Option<LongOptions>,
    /// The limit of vCPUs and cells, for tests.
    pub(super) room: Option<u32>,
    /// The reason why raw tracepoints must not be used.
    pub(super) no_raw: Option<&'a str>,
}

/// Loaded programs.
pub(super) struct Attached {
    pub(super) ebpf: Ebpf,
    /// `running` of the BPF programs, their only variable in `.bss`.
    running: Array<MapData, u32>,
    /// A program is attached as long as its link exists.
    pub(super) links: Vec<Link>,
    pub(super) mechanism: Mechanism,
    /// Events that the kernel does not have, and the reason if VMs have no names.
    pub(super) missing: Vec<String>,
}

/// The link that keeps a program attached.
#[expect(dead_code, reason = "dropping it is what it is for")]
pub(super) enum Link {
    Raw(RawTracePointLink),
    Tracepoint(TracePointLink),
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

// The ELF parser needs an object that is aligned to 8 bytes.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);
static COUNT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/count.o")));
static HOT_SPOTS: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/hot_spots.o")));
static RECORD_RING: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/record_ring.o")));
static RECORD_PERF: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/record_perf.o")));

/// Loads the programs without attaching them.
pub(super) fn load(root: &Path, wanted: &Wanted<'_>) -> Result<Attached, Error> {
    lockdown::check(root)?;
    let mut missing = Vec::new();
    match waiting::need_first_pid_namespace(root) {
        // The PIDs in the filter are not those that the kernel uses.
        Err(error) if wanted.watched.is_some() => return Err(error),
        Err(_) => missing.push(format!("VMs have no names: {}", waiting::OTHER_NUMBERS)),
        Ok(()) => {}
    }
    let layout = match wanted.no_raw {
        Some(why) => Err(why.to_owned()),
        None if wanted.pair == Pair::SystemCalls => Ok(Layout::SYSTEM_CALL),
        None => Layout::find(root, wanted.isa),
    };
    let mut globals: Vec<(&'static str, u32)> =
        vec![("filtered", u32::from(wanted.watched.is_some())), ("svm", u32::from(wanted.isa == Isa::Svm))];
    let mechanism = match layout {
        Ok(layout) => {
            globals.extend([
                ("vcpu_argument", layout.vcpu_argument),
                ("vcpu_id_at", layout.vcpu_id),
                ("reason_at", layout.reason),
                ("vmcb_at", layout.vmcb),
            ]);
            if wanted.purpose == Purpose::HotSpots {
                globals.push(("from_guest_at", layout.from_guest));
            }
            Mechanism::RawTracepoints
        }
        Err(why) => {
            // Only tracepoints need tracefs: their fields' offsets are in the format files.
            let tracefs = Tracefs::find(root)?;
            for event in events(wanted) {
                match tracefs.format(wanted.pair.system(), event.name) {
                    Ok(format) => globals.extend(offsets(&format, event)?),
                    Err(error) if is_optional(event) => missing.push(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            Mechanism::Tracepoints { why }
        }
    };
    let records = matches!(wanted.purpose, Purpose::RecordRing | Purpose::RecordPerf);
    let hashed_cells = hashed_cells(processors());
    if records {
        globals.push(("without_sleep", u32::from(wanted.long.is_some_and(|long| !long.sleep))));
        globals.extend(scheduler::halts(wanted.isa));
    } else {
        // Half of all cells.
        let most = (DIRECT_CELLS + hashed_cells) / 2;
        globals.push(("most_access_cells", wanted.room.unwrap_or(most)));
    }
    if wanted.purpose == Purpose::HotSpots {
        globals.extend(scheduler::globals(root, wanted.isa, &mut missing));
    }
    let longer_than_ns = wanted.long.map_or(0, |long| long.bound_ns.max(1));
    let mut loader = crate::loader::without_types();
    for (name, value) in &globals {
        loader.override_global(name, value, true);
    }
    if records {
        loader.override_global("longer_than_ns", &longer_than_ns, true);
    }
    if let Some(watched) = wanted.watched {
        let most = u32::try_from(watched).unwrap_or(u32::MAX).max(1);
        loader.map_max_entries("watched", most);
    }
    if let Some(room) = wanted.room {
        loader.map_max_entries("places_taken", room).map_max_entries("vcpus", room);
    }
    let object = match wanted.purpose {
        Purpose::Count | Purpose::HotSpots => {
            if let Some(room) = wanted.room {
                loader.map_max_entries("direct_cells_taken", room);
            }
            loader.map_max_entries("cells", wanted.room.unwrap_or(hashed_cells));
            loader.map_max_entries("other_cells", other_cells(aya::util::nr_cpus().unwrap_or(1)));
            if wanted.purpose == Purpose::Count { &COUNT.0 } else { &HOT_SPOTS.0 }
        }
        Purpose::RecordRing => &RECORD_RING.0,
        Purpose::RecordPerf => &RECORD_PERF.0,
    };
    let mut ebpf = loader.load(object).map_err(|error| not_loaded(&error))?;
    for event in events(wanted) {
        load_program(&mut ebpf, event, &mechanism)?;
    }
    let running = take_map(&mut ebpf, ".bss")?;
    Ok(Attached { ebpf, running, links: Vec::new(), mechanism, missing })
}

impl Attached {
    /// Attaches the programs, which do nothing until [`Self::begin`].
    pub(super) fn attach(&mut self, wanted: &Wanted<'_>) -> Result<(), Error> {
        for event in events(wanted) {
            let program = self.ebpf.program_mut(&program_name(event, &self.mechanism));
            let outcome = match program {
                Some(Program::RawTracePoint(program)) => {
                    program.attach(event.name).and_then(|link| program.take_link(link)).map(Link::Raw)
                }
                Some(Program::TracePoint(program)) => program
                    .attach(wanted.pair.system(), event.name)
                    .and_then(|link| program.take_link(link))
                    .map(Link::Tracepoint),
                _ => continue,
            };
            match outcome {
                Err(ProgramError::NotLoaded) => {}
                Err(error) if is_optional(event) => {
                    self.missing.push(format!("kvm:{} could not be attached: {error}", event.name));
                }
                Err(error) => return Err(Error::Attach { event: event.name, cause: with_causes(&error) }),
                Ok(link) => self.links.push(link),
            }
        }
        Ok(())
    }

    /// Makes all programs follow events from now on. Returns the time, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) fn begin(&mut self) -> Result<u64, Error> {
        let now_ns = monotonic_ns();
        self.running.set(0, 1, 0).map_err(map_error)?;
        Ok(now_ns)
    }

    /// Makes all programs ignore events from now on, and waits until none is still running. Returns the time of the
    /// end, as [`Self::begin`] does. The programs are detached when this is dropped, which takes longer.
    pub(super) fn end(&mut self) -> Result<u64, Error> {
        self.running.set(0, 0, 0).map_err(map_error)?;
        let now_ns = monotonic_ns();
        waiting::wait_for_programs();
        Ok(now_ns)
    }
}

/// Takes one of the programs' maps.
pub(super) fn take_map<T: TryFrom<Map, Error = MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<T, Error> {
    let map = ebpf.take_map(name);
    map.ok_or(MapError::InvalidName { name: name.to_owned() }).and_then(T::try_from).map_err(map_error)
}

/// The events in the order in which their programs are attached.
fn events(wanted: &Wanted<'_>) -> impl Iterator<Item = &'static Event> {
    let [entry, exit] = wanted.pair.events();
    let accesses = ACCESSES.iter().filter(|_| wanted.accesses);
    std::iter::once(entry).chain(accesses).chain(std::iter::once(exit))
}

fn is_optional(event: &Event) -> bool {
    ACCESSES.iter().any(|access| access.name == event.name)
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

fn offsets(format: &EventFormat, event: &Event) -> Result<Vec<(&'static str, u32)>, Error> {
    let each = event.fields.iter();
    each.map(|&(global, field, size)| Ok((global, offset(format, "kvm", field, size)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_variable_in_the_programs() {
        let source = include_str!("programs/exits.bpf.c");
        for event in EXIT_AND_ENTRY.iter().chain(&ACCESSES) {
            for (global, ..) in event.fields {
                assert!(source.contains(global), "{global}");
            }
        }
    }

    /// The programs that count exits and accesses; `None`, with the reason printed, if they cannot be loaded.
    fn counting_all() -> Option<Attached> {
        let wanted = Wanted {
            purpose: Purpose::Count,
            pair: Pair::SystemCalls,
            isa: Isa::Vmx,
            accesses: true,
            watched: None,
            long: None,
            room: None,
            no_raw: None,
        };
        load(Path::new("/"), &wanted).map_err(|error| eprintln!("not tested: {error}")).ok()
    }

    /// Its limit is a million instructions, and loading takes the longer the more it has to follow.
    #[test]
    fn the_verifier_has_little_to_follow() {
        let Some(attached) = counting_all() else { return };
        let infos = attached.ebpf.programs().filter_map(|(name, program)| Some((name, program.info().ok()?)));
        let followed: Vec<_> =
            infos.filter_map(|(name, info)| Some((name, info.verified_instruction_count()?))).collect();
        if followed.is_empty() {
            return eprintln!("not tested: this kernel does not tell (Linux 5.16)");
        }
        assert_eq!(followed.len(), 2 + ACCESSES.len(), "{followed:?}");
        assert!(followed.iter().all(|&(_, count)| count < 20_000), "{followed:?}");
    }

    #[test]
    fn large_hosts_need_little_more_memory() {
        assert_eq!([1, 16, 64, 512, 8_192].map(other_cells), [2_048, 2_048, 8_192, 65_536, 131_072]);
        // 120 cells for each of 4,000 vCPUs on 512 CPUs.
        assert_eq!([1, 64, 512, 8_192].map(hashed_cells), [65_536, 65_536, 524_288, 524_288]);
        let Some(attached) = counting_all() else { return };
        let mut bytes = 0;
        for file in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
            let Ok(info) = std::fs::read_to_string(file.path()) else { continue };
            let number = |name: &str| {
                let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
                line.trim().parse::<u64>().ok()
            };
            let (Some(kind), Some(entries), Some(size)) =
                (number("map_type"), number("max_entries"), number("value_size"))
            else {
                continue;
            };
            // Per-CPU maps.
            if matches!(kind, 5 | 6) {
                assert!(entries * size <= 64, "{info}");
            }
            bytes += number("memlock").unwrap_or(0);
        }
        drop(attached);
        let most = mebibytes(aya::util::nr_cpus().unwrap(), processors());
        assert!((40..=most).contains(&(bytes >> 20)), "{} MiB", bytes >> 20);
    }

    /// The most memory that the maps take with these numbers of CPUs, in MiB (docs/stat.md).
    fn mebibytes(possible: usize, online: usize) -> u64 {
        let more = other_cells(possible) - 2_048 + hashed_cells(online) - 65_536;
        54 + u64::from(more) / 128 / 28
    }

    #[test]
    fn units_have_room_for_the_maps_of_large_hosts() {
        let exporter = include_str!("../../../../packaging/systemd/exitless-exporter.service");
        let agent = include_str!("../../../../packaging/fleet/exitless-fleet-agent.service");
        for unit in [exporter, agent] {
            let limit = unit.lines().find_map(|line| line.strip_prefix("MemoryMax=")).unwrap();
            let gibibytes: u64 = limit.strip_suffix('G').expect(limit).parse().unwrap();
            // The rest is for profiles of thousands of vCPUs, descriptions of their VMs, and BTF.
            assert!((gibibytes << 10) - 1_024 >= mebibytes(512, 512), "{limit}");
        }
    }

    #[test]
    fn programs_that_would_read_zeros_are_not_loaded() {
        let root = lockdown::tests::host("none integrity [confidentiality]\n");
        for no_raw in [None, Some("to test")] {
            let wanted = Wanted {
                purpose: Purpose::Count,
                pair: Pair::SystemCalls,
                isa: Isa::Vmx,
                accesses: false,
                watched: None,
                long: None,
                room: None,
                no_raw,
            };
            let error = load(root.path(), &wanted).unwrap_err();
            assert!(matches!(error, Error::LockedDown), "{error}");
        }
    }

    #[test]
    fn processes_of_a_container_are_not_taken_for_those_of_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[1]", root.path().join("proc/self/ns/pid")).unwrap();
        let wanted = |watched| Wanted {
            purpose: Purpose::Count,
            pair: Pair::SystemCalls,
            isa: Isa::Vmx,
            accesses: false,
            watched,
            long: None,
            room: None,
            no_raw: None,
        };
        let error = load(root.path(), &wanted(Some(1))).unwrap_err();
        assert!(matches!(error, Error::Load { .. }) && error.to_string().contains("numbers"), "{error}");
        match load(root.path(), &wanted(None)) {
            Ok(attached) => assert!(attached.missing[0].contains("no names"), "{:?}", attached.missing),
            Err(error) => eprintln!("not tested: {error}"),
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
