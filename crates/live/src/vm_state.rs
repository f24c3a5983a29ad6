//! KVM's state of a VM's interrupt virtualization, read from the running kernel: also that of idle VMs, about which
//! tracepoints say nothing.
//!
//! An eBPF program iterates over the open files of all processes, and follows pointers from the vCPUs among them,
//! with offsets from the kernel's type information.

mod paths;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use aya::programs::{Iter, ProgramError};
use aya::{Btf, Pod};
use conclusions::activation::{Controls, Irqchip, VcpuState, VmState};
use exits::{Isa, with_causes};

use self::paths::{Layout, What};
use crate::collector::programs::Aligned;
use crate::collector::refusal::{not_loaded, rejected};
use crate::collector::waiting;
use crate::{Error, lockdown};

static STATE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/state.o")));
/// `PATHS` of the BPF program.
const PATHS: usize = 20;
/// The size of the BPF program's map of vCPUs.
const MOST_VCPUS: usize = 16384;
/// The largest number of open files on a host, in millions, above that of any host.
const MOST_MILLIONS: u32 = 1_000;
/// `X2APIC_ENABLE` in `arch/x86/include/asm/msr-index.h`.
const X2APIC_MODE: u64 = 1 << 10;
/// `KVM_X86_TDX_VM`, whose vCPUs are not a `struct vcpu_vmx`.
const TDX: u64 = 5;

/// A descriptor of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VcpuPlace {
    /// The process that has it open.
    pub process: u32,
    /// The descriptor's number.
    pub descriptor: u32,
    /// KVM's number of the vCPU.
    pub number: u32,
}

impl VcpuPlace {
    /// The key in the BPF program's map.
    const fn key(&self) -> Place {
        Place { process: self.process, descriptor: self.descriptor }
    }

    /// The vCPUs of a VM whose descriptors are known.
    pub fn of(vm: &host::vms::Vm) -> impl Iterator<Item = Self> {
        vm.vcpus.iter().filter_map(|vcpu| {
            Some(Self {
                process: u32::try_from(vm.pid).ok()?,
                descriptor: u32::try_from(vcpu.fd?).ok()?,
                number: vcpu.number,
            })
        })
    }
}

/// The key of a VM; a process can have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmKey {
    /// The process.
    pub process: u32,
    /// Distinguishes the VMs of a process; constant as long as the VM exists.
    which: u64,
}

/// Reads the state of VMs, any number of times.
#[derive(Debug)]
pub struct StateReader {
    ebpf: aya::Ebpf,
    vcpus: HashMap<MapData, Place, Values>,
    places: Vec<VcpuPlace>,
    layout: Layout,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Place {
    process: u32,
    descriptor: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Values {
    object: u64,
    read: u64,
    value: [u64; PATHS],
}

// SAFETY: plain numbers without padding, laid out as the program's structure; every bit pattern is a value.
unsafe impl Pod for Place {}
// SAFETY: as above.
unsafe impl Pod for Values {}
const _: () = assert!(size_of::<Place>() == 2 * 4 && size_of::<Values>() == 8 * (2 + PATHS));

const NOT_READ: Values = Values { object: 0, read: 0, value: [0; PATHS] };

impl Values {
    fn get(&self, what: What) -> Option<u64> {
        let at = what as usize;
        (self.read & 1 << at != 0).then(|| self.value[at])
    }

    fn word(&self, what: What) -> Option<u32> {
        self.get(what).map(|value| value as u32)
    }
}

impl StateReader {
    /// Loads the program into the kernel of the host below `root` (`/`), for the given vCPUs. `isa` is that of the
    /// vendor module; without it, the vendor's fields are not read.
    ///
    /// # Errors
    /// [`Error::Load`] if the kernel has no type information, does not support such programs (Linux 5.8 is needed),
    /// or we are not in the initial PID namespace; [`Error::LockedDown`], [`Error::Rejected`], [`Error::KernelMap`].
    pub fn load(root: &Path, isa: Option<Isa>, vcpus: &[VcpuPlace]) -> Result<Self, Error> {
        lockdown::check(root)?;
        waiting::need_first_pid_namespace(root)?;
        let layout = Layout::find(root, isa).map_err(|cause| Error::Load {
            cause,
            next: "a kernel with CONFIG_DEBUG_INFO_BTF and CONFIG_DEBUG_INFO_BTF_MODULES is needed",
        })?;
        let mut loader = crate::loader::without_types();
        loader.override_global("task_process_at", &layout.task_process, true);
        loader.override_global("file_private_at", &layout.file_private, true);
        let mut ebpf = loader.load(&STATE.0).map_err(|error| not_loaded(&error))?;
        let mut paths: Array<_, paths::Path> = map(&mut ebpf, "paths")?;
        for (at, path) in layout.paths.iter().enumerate() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            paths.set(at, path.unwrap_or_default(), 0).map_err(map_error)?;
        }
        let vcpus_map = map(&mut ebpf, "vcpus")?;
        let program = ebpf.program_mut("state").ok_or_else(|| Error::Load {
            cause: "program state is missing".to_owned(),
            next: "build exitless again",
        })?;
        let iterator: &mut Iter = program.try_into().map_err(|error| rejected("state", &error))?;
        let types = Btf::from_sys_fs().map_err(|error| Error::Load {
            cause: with_causes(&error),
            next: "a kernel with CONFIG_DEBUG_INFO_BTF is needed",
        })?;
        iterator.load("task_file", &types).map_err(|error| rejected("state", &error))?;
        Ok(Self { ebpf, vcpus: vcpus_map, places: vcpus.to_vec(), layout })
    }

    /// The names of the fields that are missing in this kernel's type information.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.layout.missing
    }

    /// The current state of the VMs of the vCPUs. vCPUs that no longer exist are left out, and so are VMs without
    /// any.
    ///
    /// # Errors
    /// [`Error::Attach`] or [`Error::Read`] if the program cannot be run, [`Error::KernelMap`].
    pub fn read(&mut self) -> Result<BTreeMap<VmKey, VmState>, Error> {
        let mut vms: BTreeMap<VmKey, VmState> = BTreeMap::new();
        let places = std::mem::take(&mut self.places);
        let read = batches(&places).try_for_each(|batch| {
            let read = self.read_batch(batch, &mut vms);
            // Make room in the map for the next batch.
            if batch.len() < places.len() {
                batch.iter().for_each(|place| drop(self.vcpus.remove(&place.key())));
            }
            read
        });
        self.places = places;
        read?;
        vms.values_mut().for_each(|vm| vm.vcpus.sort_unstable_by_key(|vcpu| vcpu.number));
        Ok(vms)
    }

    /// Reads one of [`batches`].
    fn read_batch(&mut self, places: &[VcpuPlace], vms: &mut BTreeMap<VmKey, VmState>) -> Result<(), Error> {
        for place in places {
            self.vcpus.insert(place.key(), NOT_READ, 0).map_err(map_error)?;
        }
        self.run()?;
        for place in places {
            let values = self.vcpus.get(&place.key(), 0).map_err(map_error)?;
            // The descriptor may have been closed and its number reused.
            if values.word(What::VcpuId) != Some(place.number) {
                continue;
            }
            let Some(which) = values.get(What::Kvm) else { continue };
            let key = VmKey { process: place.process, which };
            let vm = vms.entry(key).or_insert_with(|| vm(&values));
            vm.vcpus.push(self.vcpu(place.number, &values));
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        let attach =
            |error: &dyn std::error::Error| Error::Attach { event: "task_file", cause: with_causes(error) };
        let program = self.ebpf.program_mut("state").ok_or(ProgramError::NotLoaded);
        let program = program.map_err(|error| attach(&error))?;
        let iterator: &mut Iter = program.try_into().map_err(|error: ProgramError| attach(&error))?;
        let link =
            iterator.attach().and_then(|link| iterator.take_link(link)).map_err(|error| attach(&error))?;
        let file = link.into_file().map_err(|error| attach(&error))?;
        // The program has no output; reading the iterator runs it.
        run_to_end(file).map_err(|source| Error::Read {
            path: "iter/task_file".into(),
            expected: "the open files of all processes",
            source,
        })
    }

    fn vcpu(&self, number: u32, values: &Values) -> VcpuState {
        let tdx = values.get(What::VmType) == Some(TDX);
        let vmx = || {
            Some(Controls::Vmx {
                pin: values.word(What::Pin)?,
                secondary: values.word(What::Secondary)?,
                tertiary: values.get(What::Tertiary),
            })
        };
        let controls = values.word(What::IntCtl).map(|int_ctl| Controls::Svm { int_ctl }).or_else(vmx);
        let posted_to = values.get(What::PostedFirst).map(|first| {
            // An empty list points to itself; one that was never initialized is null.
            first != 0 && first != values.object + u64::from(self.layout.posted_list)
        });
        let in_kernel_apic = values.get(What::Apic).map(|apic| apic != 0);
        let active = values.get(What::Active).map(|active| active != 0);
        VcpuState {
            number,
            // Without an in-kernel APIC there is no flag, but it cannot be active.
            active: active.or((in_kernel_apic == Some(false)).then_some(false)),
            in_kernel_apic,
            x2apic: values.get(What::ApicBase).map(|base| base & X2APIC_MODE != 0),
            controls: controls.filter(|_| !tdx),
            posted_to,
        }
    }
}

/// Reads an iterator to its end. After a million files without output, reading fails with EAGAIN, and the next call goes
/// on there (kernel/bpf/bpf_iter.c, `bpf_seq_read`, `MAX_ITER_OBJECTS`).
fn run_to_end(mut iterator: impl Read) -> io::Result<()> {
    let mut millions = 0;
    loop {
        match iterator.read(&mut [0; 64]) {
            Ok(0) => return Ok(()),
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && millions < MOST_MILLIONS => millions += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Batches that fit into the BPF program's map.
fn batches(places: &[VcpuPlace]) -> std::slice::Chunks<'_, VcpuPlace> {
    places.chunks(MOST_VCPUS)
}

fn vm(values: &Values) -> VmState {
    let pit = values.get(What::Pit).is_some_and(|pit| pit != 0);
    VmState {
        inhibits: values.get(What::Inhibits).map(exits::Inhibits),
        irqchip: values.word(What::Irqchip).and_then(|mode| match mode {
            0 => Some(Irqchip::None),
            1 => Some(Irqchip::Kernel),
            2 => Some(Irqchip::Split),
            _ => None,
        }),
        pit_reinjects: values.word(What::PitReinject).filter(|_| pit).map(|reinject| reinject != 0),
        vcpus: Vec::new(),
    }
}

fn map<T: TryFrom<Map, Error = MapError>>(ebpf: &mut aya::Ebpf, name: &'static str) -> Result<T, Error> {
    let map = ebpf.take_map(name);
    map.ok_or(MapError::InvalidName { name: name.to_owned() }).and_then(T::try_from).map_err(map_error)
}

fn map_error(error: MapError) -> Error {
    Error::KernelMap { cause: error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers reads with these results, and with EAGAIN from then on.
    struct Answers(std::vec::IntoIter<io::Result<usize>>);

    impl Read for Answers {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.0.next().unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
        }
    }

    #[test]
    fn a_kernel_that_is_locked_down_shows_no_state() {
        let root = lockdown::tests::host("none integrity [confidentiality]\n");
        let error = StateReader::load(root.path(), None, &[]).unwrap_err();
        assert!(matches!(error, Error::LockedDown), "{error}");
    }

    #[test]
    fn an_iterator_over_more_than_a_million_files_is_read_to_its_end() {
        let read = |answers: Vec<io::Result<usize>>| run_to_end(Answers(answers.into_iter()));
        let again = || Err(ErrorKind::WouldBlock.into());
        read(vec![again(), Err(ErrorKind::Interrupted.into()), again(), Ok(64), Ok(0)]).unwrap();
        assert_eq!(read(vec![again()]).unwrap_err().kind(), ErrorKind::WouldBlock, "it has no end");
        let failed = read(vec![again(), Err(ErrorKind::PermissionDenied.into()), Ok(0)]);
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn vcpus_beyond_the_room_of_the_program_are_read_too() {
        let source = include_str!("collector/programs/state.bpf.c");
        assert!(source.contains(&format!("NUMBER(max_entries, {MOST_VCPUS})")));
        let places: Vec<_> =
            (0..16_385).map(|number| VcpuPlace { process: 7, descriptor: 10 + number, number }).collect();
        let read: Vec<_> = batches(&places).collect();
        assert!(read.iter().all(|batch| batch.len() <= MOST_VCPUS));
        assert_eq!(read.concat(), places);
    }
}
