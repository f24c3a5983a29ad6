//! Creation of the VM and its vCPUs.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use kvm_bindings::{
    KVM_API_VERSION, KVM_CAP_BINARY_STATS_FD, KVM_CAP_IOEVENTFD_ANY_LENGTH, KVM_CAP_SPLIT_IRQCHIP,
    KVM_MAX_CPUID_ENTRIES, KVM_MP_STATE_RUNNABLE, kvm_enable_cap, kvm_mp_state, kvm_regs, kvm_segment,
    kvm_sregs, kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, IoEventAddress, Kvm, NoDatamatch, VcpuFd, VmFd};
use vmm_sys_util::eventfd::EventFd;

use crate::cpuid;
use crate::error::Error;
use crate::layout;
use crate::memory::{self, Memory};
use crate::payload::{self, Part};
use crate::run::{ApicMode, Irqchip};
use crate::threads;

/// Three pages for VMX's emulation of real mode and one for its identity map, outside the addresses that the
/// guest uses. SVM does not need them (api.rst, "KVM_SET_TSS_ADDR").
const TSS: usize = 0xfffb_d000;
const IDENTITY_MAP: u64 = 0xfffb_c000;
/// The number of I/O APIC pins for which a split irqchip reserves routes.
const IOAPIC_PINS: u64 = 24;

/// IA32_APIC_BASE: x2APIC mode.
const APIC_BASE_X2APIC: u64 = 1 << 10;
/// IA32_APIC_BASE: the APIC is enabled.
const APIC_BASE_ENABLED: u64 = 1 << 11;
/// Protection, monitor coprocessor, extension type, numeric error, paging.
const CR0: u64 = 0x8000_0033;
/// Physical address extension.
const CR4: u64 = 1 << 5;
/// Long mode enabled and active.
const EFER: u64 = 0x500;
/// The bit of RFLAGS that is always one; IF is zero.
const RFLAGS: u64 = 1 << 1;

/// Opens the device and checks the version of its interface.
pub(crate) fn open(path: &Path) -> Result<Kvm, Error> {
    // kvm-ioctls takes a C string; no file has a path with a NUL byte.
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::open(path, io::ErrorKind::NotFound.into()))?;
    let kvm = Kvm::new_with_path(name).map_err(|error| Error::open(path, error.into()))?;
    match kvm.get_api_version() {
        version if u32::try_from(version) == Ok(KVM_API_VERSION) => Ok(kvm),
        // The file is not a KVM device: it rejects the ioctl.
        -1 => Err(Error::open(path, io::Error::from_raw_os_error(libc::ENOTTY))),
        found => Err(Error::KvmVersion { path: path.to_owned(), found }),
    }
}

/// A VM with its memory and interrupt controllers, and no PIT.
pub(crate) fn vm(kvm: &Kvm, memory: &Memory, irqchip: Irqchip) -> Result<VmFd, Error> {
    let vm = kvm.create_vm().map_err(Error::ioctl("make a VM (KVM_CREATE_VM)"))?;
    vm.set_identity_map_address(IDENTITY_MAP)
        .map_err(Error::ioctl("place the identity map (KVM_SET_IDENTITY_MAP_ADDR)"))?;
    vm.set_tss_address(TSS).map_err(Error::ioctl("place the TSS (KVM_SET_TSS_ADDR)"))?;
    match irqchip {
        Irqchip::Kernel => {
            vm.create_irq_chip().map_err(Error::ioctl("make interrupt controllers (KVM_CREATE_IRQCHIP)"))?;
        }
        Irqchip::Split => {
            let split = kvm_enable_cap {
                cap: KVM_CAP_SPLIT_IRQCHIP,
                args: [IOAPIC_PINS, 0, 0, 0],
                ..Default::default()
            };
            vm.enable_cap(&split)
                .map_err(Error::ioctl("make local APICs with a split irqchip (KVM_CAP_SPLIT_IRQCHIP)"))?;
        }
    }
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: layout::MEMORY_SIZE as u64,
        userspace_addr: memory.host_address()?,
    };
    // SAFETY: the region is exactly the mapping of `memory`, which the micro VM keeps until its vCPUs' threads
    // have ended, and which is only accessed by volatile copies.
    unsafe { vm.set_user_memory_region(region) }
        .map_err(Error::ioctl("take the guest's memory (KVM_SET_USER_MEMORY_REGION)"))?;
    Ok(vm)
}

/// vCPU `index`, ready for its first command.
pub(crate) fn vcpu(kvm: &Kvm, vm: &VmFd, index: u16, apic: ApicMode) -> Result<VcpuFd, Error> {
    let parked = parked(kvm, vm, index, apic)?;
    // Otherwise all vCPUs but vCPU 0 wait for a startup IPI.
    let runnable = kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE };
    parked
        .set_mp_state(runnable)
        .map_err(Error::ioctl(format!("make vCPU {index} runnable (KVM_SET_MP_STATE)")))?;
    let registers = kvm_regs {
        rip: payload::address_of(Part::Entry, apic),
        rsp: layout::block_of(index) + layout::BLOCK_SIZE,
        r15: layout::block_of(index),
        rflags: RFLAGS,
        ..Default::default()
    };
    parked
        .set_regs(&registers)
        .map_err(Error::ioctl(format!("set the registers of vCPU {index} (KVM_SET_REGS)")))?;
    Ok(parked)
}

/// A vCPU that cannot run: it is in the state after INIT, and no startup IPI ever comes. Its APIC is in the
/// same mode as the others' (kvm_amd removes the xAPIC page as soon as one vCPU is in x2APIC mode) and
/// software-disabled, so no destination includes it.
pub(crate) fn parked(kvm: &Kvm, vm: &VmFd, index: u16, apic: ApicMode) -> Result<VcpuFd, Error> {
    let fd =
        vm.create_vcpu(index.into()).map_err(Error::ioctl(format!("make vCPU {index} (KVM_CREATE_VCPU)")))?;
    let supported = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .map_err(Error::ioctl("tell the CPUID it supports (KVM_GET_SUPPORTED_CPUID)"))?;
    let tsc_deadline = kvm.check_extension(Cap::TscDeadlineTimer);
    fd.set_cpuid2(&cpuid::for_vcpu(&supported, index, apic, tsc_deadline))
        .map_err(Error::ioctl(format!("set the CPUID of vCPU {index} (KVM_SET_CPUID2)")))?;
    let reset =
        fd.get_sregs().map_err(Error::ioctl(format!("tell the segments of vCPU {index} (KVM_GET_SREGS)")))?;
    fd.set_sregs(&long_mode(reset, apic))
        .map_err(Error::ioctl(format!("put vCPU {index} into long mode (KVM_SET_SREGS)")))?;
    Ok(fd)
}

/// Changes the reset state to 64-bit mode with our page and descriptor tables.
fn long_mode(mut sregs: kvm_sregs, apic: ApicMode) -> kvm_sregs {
    let code = kvm_segment {
        selector: memory::CODE_SELECTOR,
        limit: u32::MAX,
        // Execute, read, accessed.
        type_: 0b1011,
        present: 1,
        s: 1,
        l: 1,
        g: 1,
        ..Default::default()
    };
    let data = kvm_segment {
        selector: memory::DATA_SELECTOR,
        // Read, write, accessed.
        type_: 0b0011,
        l: 0,
        db: 1,
        ..code
    };
    sregs.cs = code;
    sregs.ds = data;
    sregs.es = data;
    sregs.fs = data;
    sregs.gs = data;
    sregs.ss = data;
    sregs.gdt.base = layout::GDT;
    sregs.gdt.limit = memory::GDT_LIMIT;
    sregs.idt.base = layout::IDT;
    sregs.idt.limit = memory::IDT_LIMIT;
    sregs.cr0 = CR0;
    sregs.cr3 = layout::PML4;
    sregs.cr4 = CR4;
    sregs.efer = EFER;
    sregs.apic_base |= APIC_BASE_ENABLED;
    if apic == ApicMode::X2apic {
        sregs.apic_base |= APIC_BASE_X2APIC;
    }
    sregs
}

/// The two ioeventfds that are timed, or the reason why there are none. They have no length, so KVM completes
/// the MMIO write by its address alone, without decoding the instruction (KVM_FAST_MMIO_BUS).
pub(crate) fn eventfds(vm: &VmFd) -> Result<[EventFd; 2], String> {
    if vm.check_extension_raw(KVM_CAP_IOEVENTFD_ANY_LENGTH.into()) <= 0 {
        return Err("this KVM has no ioeventfd without a length (KVM_CAP_IOEVENTFD_ANY_LENGTH)".to_owned());
    }
    let register = |address| -> Result<EventFd, String> {
        let event = EventFd::new(libc::EFD_NONBLOCK)
            .map_err(|error| format!("the host refused an eventfd: {error}"))?;
        vm.register_ioevent(&event, &address, NoDatamatch).map_err(|error| {
            format!("KVM refused an ioeventfd (KVM_IOEVENTFD): {}", io::Error::from(error))
        })?;
        Ok(event)
    };
    Ok([
        register(IoEventAddress::Pio(layout::PORT_EVENTFD.into()))?,
        register(IoEventAddress::Mmio(layout::MMIO_EVENTFD))?,
    ])
}

/// The reason why this KVM has no binary statistics, if so.
pub(crate) fn no_statistics(kvm: &Kvm) -> Option<String> {
    (kvm.check_extension_raw(KVM_CAP_BINARY_STATS_FD.into()) <= 0)
        .then(|| "this KVM has no binary statistics (KVM_CAP_BINARY_STATS_FD, Linux 5.14)".to_owned())
}

/// The debugfs file that counts the exits of all vCPUs of a VM; `None` if it cannot be read.
pub(crate) fn exits_file(root: &Path, vm: &VmFd) -> Option<PathBuf> {
    // kvm_create_vm_debugfs() names the folder after the thread that created the VM, which is this one, and the VM's
    // descriptor.
    let folder = format!("sys/kernel/debug/kvm/{}-{}", threads::id(), vm.as_raw_fd());
    let file = root.join(folder).join("exits");
    std::fs::File::open(&file).is_ok().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_kvm_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(open(file.path()), Err(Error::OpenKvm { .. })));
        assert!(matches!(open(Path::new("/nowhere/kvm")), Err(Error::NoKvm { .. })));
        assert!(matches!(open(Path::new("/dev/k\0vm")), Err(Error::NoKvm { .. })));
    }

    #[test]
    fn long_mode_has_64_bit_code_and_the_wanted_apic() {
        let reset = kvm_sregs { apic_base: layout::APIC_BASE | 0x100, ..Default::default() };
        let xapic = long_mode(reset, ApicMode::Xapic);
        assert_eq!((xapic.cs.l, xapic.cs.db, xapic.ss.db), (1, 0, 1));
        assert_eq!(xapic.apic_base, 0xfee0_0900);
        assert_eq!(long_mode(reset, ApicMode::X2apic).apic_base, 0xfee0_0d00);
        assert_eq!(xapic.cr3, layout::PML4);
    }
}
