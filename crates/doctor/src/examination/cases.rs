//! For each rule, a host on which it fires and one on which it does not.

use crate::examination::VmSide;
use conclusions::activation::{
    Activation, DeviceDelivery, DeviceEvidence, DeviceVerdict, InForce, IpiVirtualization, Mode,
    NoIpiVirtualization, Status,
};
use exits::{InhibitReason, Inhibits};
use host::inspection::{Occupant, Placement, Role, ThreadPlace};
use host::{CpuSet, Fact, Inspection, Root, fake};

/// A fake host with changes.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    host: &'static str,
    /// Entries of the host to remove.
    without: &'static [&'static str],
    /// Entries to add, or to replace those with the same path.
    with: &'static str,
    change: fn(&mut Inspection),
    pub(crate) sides: fn() -> Vec<VmSide>,
}

pub(crate) const fn on(host: &'static str) -> Made {
    Made { host, without: &[], with: "", change: |_| (), sides: Vec::new }
}

pub(crate) const fn with(host: &'static str, with: &'static str) -> Made {
    Made { with, ..on(host) }
}

pub(crate) const fn without(host: &'static str, without: &'static [&'static str]) -> Made {
    Made { without, ..on(host) }
}

pub(crate) const fn changed(host: &'static str, change: fn(&mut Inspection)) -> Made {
    Made { change, ..on(host) }
}

const fn beside(sides: fn() -> Vec<VmSide>) -> Made {
    Made { sides, ..on("zen4") }
}

impl Made {
    /// The files of the host, in the form of [`fake`].
    pub(crate) fn text(&self) -> String {
        let (_, text) = fake::HOSTS.iter().find(|(name, _)| *name == self.host).unwrap();
        let goes = |entry: &str| self.without.iter().any(|path| entry.starts_with(path));
        let kept = text.split("\n== ").enumerate().filter(|(at, entry)| *at == 0 || !goes(entry));
        let kept: Vec<&str> = kept.map(|(_, entry)| entry).collect();
        format!("{}\n{}", kept.join("\n== "), self.with)
    }

    /// The facts about the host with these files.
    pub(crate) fn read(&self, root: &Root) -> Inspection {
        let mut host = Inspection::read(root).unwrap();
        (self.change)(&mut host);
        host
    }

    pub(crate) fn inspect(&self) -> Inspection {
        self.read(&fake::root(&self.text()))
    }
}

/// A rule, a host on which it fires, and one on which it does not.
pub(crate) struct Case(pub(crate) &'static str, pub(crate) Made, pub(crate) Made);

/// A pod with the same permissions and mounts as the exporter's.
pub(crate) const POD: &str = "== /dev/termination-log\n== /proc/2/comm\nkthreadd\n== /proc/self/status\nCapEff:\t000000c400080004\n\
    == /sys/kernel/debug/kvm/\n== /sys/kernel/tracing/events/\n";
pub(crate) const NO_IR: &str = "== /proc/interrupts\n            CPU0       CPU1\n 40:          1          2  PCI-MSI 65536-edge      nvme0q1\n";
const AVIC_OFF: &str = "== /sys/module/kvm_amd/parameters/avic\nN\n";
const AVIC_ON: &str = "== /sys/module/kvm_amd/parameters/avic\nY\n";
const FORCED: &str =
    "== /sys/module/kvm_amd/parameters/avic\nY\n== /sys/module/kvm_amd/parameters/force_avic\nY\n";
const OLD_WITH_AVIC: &str = "== /sys/module/kvm_amd/parameters/avic\nY\n== /proc/sys/kernel/osrelease\n5.15.167\n\
    == /proc/sys/kernel/version\n#1 SMP\n";
const TWO_MICROCODES: &str = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\nmicrocode : 0x1\nflags : svm\n\n\
    processor : 1\nvendor_id : AuthenticAMD\nmicrocode : 0x2\nflags : svm\n";
const AMD_XEN: &str = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\nmicrocode : 0x1\nflags : fpu hypervisor\n\
    == /exitless/commands/xl-dmesg\n(XEN) SVM: Supported advanced features:\n(XEN)  - Nested Page Tables (NPT)\n";
const AMD_XEN_WITH_AVIC: &str = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\nmicrocode : 0x1\nflags : fpu\n\
    == /exitless/commands/xl-dmesg\n(XEN) SVM: Supported advanced features:\n(XEN)  - AVIC\n";

const PV_GUEST: &str =
    "== /exitless/commands/xl-list--l\n[{\"domid\":3,\"config\":{\"c_info\":{\"type\":\"pv\"}}}]\n";
/// The output of iommu_setup in Xen 4.20 (xen/drivers/passthrough/iommu.c).
const NOT_REMAPPED: &str = "== /exitless/commands/xl-dmesg\n(XEN) I/O virtualisation enabled\n\
    (XEN) Interrupt remapping disabled\n";
pub(crate) const APICV_NOT_REMAPPED: &str = "== /exitless/commands/xl-dmesg\n(XEN) I/O virtualisation enabled\n\
    (XEN) Interrupt remapping disabled\n(XEN) VMX: Supported advanced features:\n(XEN)  - APIC Register Virtualization\n\
    (XEN)  - Virtual Interrupt Delivery\n(XEN)  - Posted Interrupt Processing\n";
pub(crate) const NULL_SCHEDULER: &str = "== /exitless/commands/xl-cpupool-list\nName CPUs Sched Active Domain count\n\
    Pool-0               2      null       y          3\n";
const SAME_PROCESSOR: &str = "== /exitless/commands/xl-vcpu-list\n\
    pvh                                  1     0    1   r--      36.0  1 / all\n\
    hvm                                  2     0    1   ---       5.3  1 / all\n";
const ON_DEMAND: &str = "== /exitless/commands/xenpm-get-cpufreq-para\ncpu id               : 0\n\
    scaling_driver       : acpi-cpufreq\ncurrent_governor     : ondemand\n";

pub(crate) const CASES: &[Case] = &[
    Case("cpu-firmware", with("zen4", "== /exitless/msr\n0xc0010114: 0x0000000000000018\n"), on("zen4")),
    Case("cpu-virtualization", on("guest"), on("zen4")),
    Case("cpu-hypervisor", changed("sapphire-rapids", below_kvm), on("sapphire-rapids")),
    Case("cpu-avic", on("container"), on("zen4")),
    Case("cpu-x2avic", on("zen2"), on("zen4")),
    Case(
        "cpu-apicv",
        changed("ivy-bridge", |host| vmx(host).interrupt_delivery = Some(false)),
        on("ivy-bridge"),
    ),
    Case(
        "cpu-x2apic-mode",
        changed("ivy-bridge", |host| vmx(host).x2apic_mode = Some(false)),
        on("ivy-bridge"),
    ),
    Case("cpu-nested-paging", changed("zen4", |host| svm(host).npt = false), on("zen4")),
    Case(
        "cpu-nested-paging",
        changed("sapphire-rapids", |host| vmx(host).ept = Some(false)),
        on("sapphire-rapids"),
    ),
    Case("cpu-microcode", with("zen4", TWO_MICROCODES), on("zen4")),
    Case("kernel-config-kvm", changed("zen4", |host| unset(host, "KVM_AMD")), on("zen4")),
    Case("kernel-config-iommu", changed("zen4", |host| unset(host, "IRQ_REMAP")), on("zen4")),
    Case("kernel-config-x2apic", changed("zen4", |host| unset(host, "X86_X2APIC")), on("zen4")),
    Case("kernel-btf", changed("zen4", |host| unset(host, "DEBUG_INFO_BTF")), on("zen4")),
    Case("kernel-lockdown", on("lockdown"), on("zen4")),
    Case("kvm-module", without("zen4", &["/sys/module/kvm_amd"]), on("zen4")),
    Case("kvm-device", on("container"), on("zen4")),
    Case("kvm-interrupt-virtualization", on("zen2"), on("zen4")),
    Case("kvm-nested-paging", with("zen4", "== /sys/module/kvm_amd/parameters/npt\nN\n"), on("zen4")),
    Case(
        "kvm-ipi-virtualization",
        with("sapphire-rapids", "== /sys/module/kvm_intel/parameters/enable_ipiv\nN\n"),
        on("sapphire-rapids"),
    ),
    Case("kvm-erratum-1235", with("zen2", AVIC_ON), on("zen4")),
    Case("kvm-nested", with("zen2", OLD_WITH_AVIC), on("zen4")),
    Case(
        "kvm-device-posting",
        with("sapphire-rapids", "== /sys/module/kvm_intel/parameters/enable_device_posted_irqs\nN\n"),
        with("sapphire-rapids", "== /sys/module/kvm_intel/parameters/enable_device_posted_irqs\nY\n"),
    ),
    Case(
        "kvm-vnmi",
        with("zen4", "== /sys/module/kvm_amd/parameters/vnmi\nN\n"),
        with("zen4", "== /sys/module/kvm_amd/parameters/vnmi\nY\n"),
    ),
    Case("kvm-vgif", with("zen2", "== /sys/module/kvm_amd/parameters/vgif\n0\n"), on("zen2")),
    Case(
        "kvm-flexpriority",
        with("ivy-bridge", "== /sys/module/kvm_intel/parameters/flexpriority\nN\n"),
        with("ivy-bridge", "== /sys/module/kvm_intel/parameters/flexpriority\nY\n"),
    ),
    Case("kvm-halt-polling", with("zen4", "== /sys/module/kvm/parameters/halt_poll_ns\n0\n"), on("zen4")),
    Case(
        "kvm-halt-polling",
        with("zen4", "== /sys/module/kvm/parameters/halt_poll_ns\n1000001\n"),
        with("zen4", "== /sys/module/kvm/parameters/halt_poll_ns\n1000000\n"),
    ),
    Case("iommu-present", on("guest"), on("zen4")),
    Case("iommu-remapping", with("zen4", NO_IR), on("zen4")),
    Case("iommu-posting", on("ivy-bridge"), on("zen4")),
    Case("iommu-posting-argument", on("lockdown"), on("sapphire-rapids")),
    Case(
        "iommu-snp",
        with("zen4", "== /exitless/dmesg\n4,9,9,-;AMD-Vi: Force to disable Virtual APIC due to SNP\n"),
        on("zen4"),
    ),
    Case(
        "iommu-unsafe-interrupts",
        with("zen4", "== /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts\nY\n"),
        with("zen4", "== /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts\nN\n"),
    ),
    Case("contradiction-forced-avic", with("container", FORCED), on("zen2")),
    Case("contradiction-parameter", with("container", AVIC_ON), on("zen4")),
    Case("contradiction-iommu-apic", on("container"), on("zen4")),
    Case("contradiction-x2avic", changed("zen4", |host| svm(host).avic = false), on("zen4")),
    Case(
        "contradiction-iommu-units",
        with("zen4", "== /sys/class/iommu/ivhd3/amd-iommu/features\n25bf732fa2295a7e\n"),
        on("zen4"),
    ),
    Case("contradiction-configured", with("zen4", AVIC_OFF), on("zen4")),
    Case(
        "contradiction-log",
        with("zen4", "== /exitless/dmesg\n4,9,9,-;WARNING: CPU: 3 PID: 9 at arch/x86/kvm/svm/avic.c:1000\n"),
        on("zen4"),
    ),
    Case(
        "limits-guest-apic-ids",
        changed("zen4", |host| set_vcpus(host, 513)),
        changed("zen4", |host| set_vcpus(host, 512)),
    ),
    Case(
        "limits-guest-apic-ids",
        changed("zen4", |host| without_x2avic(host, 256)),
        changed("zen4", |host| without_x2avic(host, 255)),
    ),
    Case("limits-host-apic-ids", with("zen4", NO_IR), on("zen4")),
    Case(
        "limits-host-apic-ids",
        Made { change: |host| set_largest_apic_id(host, 255), ..with("zen4", NO_IR) },
        Made { change: |host| set_largest_apic_id(host, 254), ..with("zen4", NO_IR) },
    ),
    Case("vms-readable", on("container"), on("zen4")),
    Case("kernel-container", on("container"), with("zen4", POD)),
    Case("place-vcpus", changed("zen4", |host| meets(host, Role::Vcpu(9))), on("zen4")),
    Case("place-vhost", on("zen2"), on("zen4")),
    Case("place-threads", changed("zen4", |host| meets(host, Role::IoThread)), on("zen4")),
    Case("place-interrupts", on("zen2"), on("zen4")),
    Case("xen-control", with("xen-dom0", "== /proc/xen/capabilities\n\n"), on("xen-dom0")),
    Case("xen-hvm", with("xen-dom0", "== /exitless/commands/xl-info\nvirt_caps : pv\n"), on("xen-dom0")),
    Case(
        "xen-apicv-argument",
        with(
            "xen-dom0",
            "== /exitless/commands/xl-info\nvirt_caps : pv hvm\nxen_commandline : placeholder apicv=0\n",
        ),
        on("xen-dom0"),
    ),
    Case(
        "xen-apicv",
        with(
            "xen-dom0",
            "== /exitless/commands/xl-dmesg\n(XEN) VMX: Supported advanced features:\n(XEN)  - APIC TPR shadow\n",
        ),
        on("xen-dom0"),
    ),
    Case("xen-avic", with("xen-dom0", AMD_XEN), with("xen-dom0", AMD_XEN_WITH_AVIC)),
    Case(
        "xen-posted-interrupts",
        on("xen-dom0"),
        with("xen-dom0", "== /exitless/commands/xl-dmesg\n(XEN) Intel VT-d Posted Interrupt enabled.\n"),
    ),
    Case(
        "xen-nested-paging",
        with("xen-dom0", "== /exitless/commands/xl-info\nvirt_caps : pv hvm shadow\n"),
        on("xen-lab"),
    ),
    Case("xen-guest-types", with("xen-dom0", PV_GUEST), on("xen-dom0")),
    Case("xen-iommu", on("xen-lab"), on("xen-dom0")),
    Case("xen-pass-through", with("xen-dom0", NOT_REMAPPED), on("xen-dom0")),
    Case("xen-scheduler", with("xen-lab", NULL_SCHEDULER), on("xen-lab")),
    Case("xen-vcpu-places", with("xen-lab", SAME_PROCESSOR), on("xen-dom0")),
    Case("xen-frequency", with("xen-dom0", ON_DEMAND), on("xen-dom0")),
    Case("vm-interrupt-virtualization", beside(inhibited), beside(active)),
    Case(
        "vm-ipis",
        beside(|| vec![VmSide { ipi_virtualization: no_ipis(), ..active().remove(0) }]),
        beside(active),
    ),
    Case(
        "vm-device-interrupts",
        beside(|| devices(&[DeviceDelivery::ByHost, DeviceDelivery::None])),
        beside(|| devices(&[DeviceDelivery::Posted, DeviceDelivery::None])),
    ),
    Case(
        "vm-vhost-places",
        changed("zen4", |host| worker(host, "0-383")),
        changed("zen4", |host| worker(host, "0")),
    ),
    Case("vm-definition", changed("zen4", |host| first(host).vm.arguments.clear()), on("zen4")),
];

pub(crate) fn vmx(host: &mut Inspection) -> &mut host::inspection::VmxFeatures {
    host.processor.vmx.value.as_mut().unwrap()
}

pub(crate) fn svm(host: &mut Inspection) -> &mut host::inspection::SvmFeatures {
    host.processor.svm.value.as_mut().unwrap()
}

/// Makes the CPU one without erratum 1235.
fn without_erratum(host: &mut Inspection) {
    host.processor.erratum_1235 = Fact::known(false, "/proc/cpuinfo", "cpu family : 25");
}

/// The Zen 2 host with these entries, and a CPU without erratum 1235: AVIC is off, and should be on.
pub(crate) const fn off(with: &'static str) -> Made {
    Made { with, ..changed("zen2", without_erratum) }
}

/// The same host without a VM.
pub(crate) const fn off_and_idle() -> Made {
    Made { without: &["/proc/4000"], ..off("") }
}

pub(crate) fn below_kvm(host: &mut Inspection) {
    host.processor.hypervisor = Fact::known(Some("KVMKVMKVM".to_owned()), "CPUID 40000000h", "KVMKVMKVM");
}

fn unset(host: &mut Inspection, option: &str) {
    assert!(host.kernel.config.value.as_mut().unwrap().options.remove(option).is_some());
}

fn first(host: &mut Inspection) -> &mut host::inspection::RunningVm {
    host.running.vms.value.as_mut().unwrap().first_mut().unwrap()
}

fn thread(tid: i32, role: Role, allowed: &str) -> ThreadPlace {
    ThreadPlace { tid, name: format!("thread {tid}"), role, allowed: CpuSet::parse(allowed), last: Some(0) }
}

pub(crate) fn set_vcpus(host: &mut Inspection, count: i32) {
    let vcpus = (0..count).map(|number| thread(9000 + number, Role::Vcpu(number.unsigned_abs()), "0-383"));
    let threads = &mut first(host).threads;
    threads.retain(|thread| !matches!(thread.role, Role::Vcpu(_)));
    threads.extend(vcpus);
}

/// A host with AVIC alone, and a VM with so many vCPUs.
fn without_x2avic(host: &mut Inspection, vcpus: i32) {
    svm(host).x2avic = false;
    set_vcpus(host, vcpus);
}

fn set_largest_apic_id(host: &mut Inspection, id: u32) {
    host.processor.largest_apic_id = Fact::known(id, "/proc/cpuinfo", format!("apicid: {id}"));
}

fn worker(host: &mut Inspection, allowed: &str) {
    first(host).threads.push(thread(9000, Role::Vhost, allowed));
}

/// Binds another thread to the processor of a vCPU.
fn meets(host: &mut Inspection, role: Role) {
    let occupant = |role| Occupant { pid: 5000, vm: "avic".to_owned(), tid: 9000, role, pinned: true };
    host.placements.push(Placement {
        cpu: 300,
        node: None,
        isolated: false,
        nohz_full: false,
        occupants: vec![occupant(Role::Vcpu(0)), occupant(role)],
        interrupts: Vec::new(),
    });
}

fn no_ipis() -> IpiVirtualization {
    IpiVirtualization::Off(NoIpiVirtualization::Parameter)
}

/// The VM of the Zen 4 host, with x2AVIC active.
pub(crate) fn active() -> Vec<VmSide> {
    let activation = Activation {
        status: Status::Active,
        mode: Some(Mode::X2avic),
        reasons: Vec::new(),
        active_vcpus: 2,
        vcpus: 2,
        doubts: Vec::new(),
    };
    vec![VmSide {
        pid: 5000,
        activation,
        ipi_virtualization: IpiVirtualization::On,
        devices: Vec::new(),
        inhibits: Some(Inhibits(0)),
        missing: Vec::new(),
    }]
}

/// The same VM, inhibited by its PIT.
pub(crate) fn inhibited() -> Vec<VmSide> {
    let reason = InForce {
        number: Some(8),
        reason: Some(InhibitReason::PitReinject),
        samples: 1,
        since_ns: None,
        changes: 0,
    };
    let mut side = active().remove(0);
    side.activation = Activation {
        status: Status::Inhibited,
        mode: Some(Mode::None),
        reasons: vec![reason],
        active_vcpus: 0,
        ..side.activation
    };
    vec![VmSide {
        inhibits: Some(Inhibits(1 << 8)),
        ipi_virtualization: IpiVirtualization::Off(NoIpiVirtualization::Inhibited),
        ..side
    }]
}

fn devices(deliveries: &[DeviceDelivery]) -> Vec<VmSide> {
    let evidence = DeviceEvidence {
        obstacle: None,
        iommu_posts: Some(true),
        host_vectors: 1,
        host_interrupts: 0,
        updated_vectors: 0,
        posted_vectors: 0,
        last_update_posts: None,
        vm_has_posted: None,
        only_device: true,
    };
    let device = |(number, &delivery): (usize, &DeviceDelivery)| DeviceVerdict {
        device: format!("0000:a1:00.{number}"),
        delivery,
        evidence: evidence.clone(),
    };
    let devices = deliveries.iter().enumerate().map(device).collect();
    vec![VmSide { devices, ..active().remove(0) }]
}
