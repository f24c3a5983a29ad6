//! The table of settings by program.
//!
//! It is based on the sources of qemu-server 9.2.6, vdsm of June 2026, and Nova, KubeVirt, ovirt-engine,
//! Incus, LXD, cloud-hypervisor, crosvm and firecracker of August 2026. LXD has the rows of Incus.

use host::vms::Manager;

/// A setting of a VM, independent of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// Local APICs in the kernel, the other interrupt controllers in the VMM.
    SplitIrqchip,
    /// A PIT that drops lost ticks.
    DiscardPitTicks,
    /// No HPET.
    NoHpet,
    /// The CPU model.
    CpuModel,
    /// A feature of the CPU.
    CpuFeature,
    /// KVM's signature, or a feature that KVM adds to those of the CPU. libvirt has no CPU feature of that name.
    KvmFeature,
    /// SVM or VMX.
    Nested,
    /// An enlightenment of Hyper-V.
    HyperV,
    /// An IOMMU in the guest that remaps interrupts.
    InterruptRemapping,
    /// A virtio network interface.
    VirtioNetwork,
    /// A virtio disk.
    VirtioDisk,
    /// The queues of a network interface.
    NetworkQueues,
    /// The queues of a disk.
    DiskQueues,
    /// An I/O thread for a disk.
    IoThread,
    /// The I/O method of a disk.
    Aio,
    /// The number of vCPUs.
    FewerVcpus,
}

/// The form of a setting in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// A change, with placeholders in braces.
    Change(&'static str),
    /// Arguments of QEMU that the program passes on.
    Arguments(&'static [&'static str]),
    /// The program has no setting: the reason, or an alternative.
    Nothing(&'static str),
}

/// The form of one setting in one program.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The setting.
    pub setting: Setting,
    /// Only for the feature or enlightenment of this name, disks on this bus, or this machine; empty for all others.
    pub only: &'static str,
    /// The program.
    pub manager: Manager,
    /// The form of the setting.
    pub words: Words,
    /// The source.
    pub source: &'static str,
}

const fn row(setting: Setting, manager: Manager, words: Words, source: &'static str) -> Row {
    Row { setting, only: "", manager, words, source }
}

const fn only(
    setting: Setting,
    only: &'static str,
    manager: Manager,
    words: Words,
    source: &'static str,
) -> Row {
    Row { setting, only, manager, words, source }
}

use Manager::{CloudHypervisor, Crosvm, Firecracker, Incus, KubeVirt, Nova, Ovirt, Proxmox};
use Setting::{
    Aio, CpuFeature, CpuModel, DiscardPitTicks, DiskQueues, FewerVcpus, HyperV, InterruptRemapping, IoThread,
    KvmFeature, Nested, NetworkQueues, NoHpet, SplitIrqchip, VirtioDisk, VirtioNetwork,
};
use Words::{Arguments, Change, Nothing};

const QM: &str = "qm.conf(5), args; qm(1)";
const QM_NET: &str = "qm.conf(5), net[n]";
const QM_DISK: &str = "qm.conf(5), scsi[n] and scsihw";
const PVE_MODELS: &str = "cpu-models.conf(5); qm.conf(5), cpu";
const PVE_FLAG: Words = Change(
    "/etc/pve/virtual-guest/cpu-models.conf: a model with `flags {sign}{feature}`, then qm set {vmid} --cpu \
     custom-NAME,... (with the rest of its value)",
);
const NOVA_FLAGS: &str = "Nova configuration, [libvirt] cpu_model_extra_flags and cpu_mode";
const NOVA_IOMMU: &str =
    "Nova flavors, hw:viommu_model; nova/virt/libvirt/driver.py, _guest_add_iommu_device";
const NOVA_HYPERV: &str = "nova/virt/libvirt/driver.py, _set_features";
const NOVA_TIMERS: &str = "nova/virt/libvirt/driver.py, _set_kvm_timers";
const NOVA_DISK: &str = "Glance useful image properties, hw_disk_bus and hw_scsi_model";
const KV: &str = "KubeVirt api/core/v1/schema.go";
const KV_HYPERV: &str = "KubeVirt api/core/v1/schema.go, FeatureHyperv";
const VDSM_ARGUMENTS: &str = "vdsm_hooks/qemucmdline/README";
const VDSM_FLAGS: &str = "vdsm_hooks/cpuflags/before_vm_start.py";
const OVIRT: &str = "oVirt Virtual Machine Management Guide, settings of New and Edit Virtual Machine";
const OVIRT_XML: &str = "ovirt-engine, LibvirtVmXmlBuilder.java";
const INCUS: &str = "Incus and LXD, driver_qemu.go: raw.qemu comes last on the command line";
const INCUS_FLAG: Words = Change(
    "{client} config edit {vm}: in raw.qemu, -cpu VALUE,{sign}{feature}; VALUE from the VM's command line, as the last \
     -cpu counts",
);
const INCUS_CPU: &str = "Incus and LXD, driver_qemu.go, raw.qemu; QEMU system/vl.c, qemu_init, -cpu";
const INCUS_DRIVES: &str = "Incus and LXD, driver_qemu.go, addDriveConfig";
const CH: &str = "cloud-hypervisor docs/cpu.md";
const CH_KVM: &str = "cloud-hypervisor hypervisor/src/kvm/mod.rs, enable_split_irq";
const CROSVM: &str = "crosvm src/crosvm/cmdline.rs";
const FC_TEMPLATE: &str = "firecracker docs/cpu_templates/cpu-templates.md and schema.json";
const FC_VM: &str = "firecracker src/vmm/src/arch/x86_64/vm.rs, setup_irqchip";

/// All settings of all programs that have settings of their own.
pub const ROWS: &[Row] = &[
    // Proxmox VE
    row(SplitIrqchip, Proxmox, Arguments(&["-machine", "kernel-irqchip=split"]), QM),
    row(DiscardPitTicks, Proxmox, Arguments(&["-global", "kvm-pit.lost_tick_policy=discard"]), QM),
    row(NoHpet, Proxmox, Arguments(&["-machine", "hpet=off"]), QM),
    row(
        CpuModel,
        Proxmox,
        Change("qm set {vmid} --cpu {model},... (with the rest of its value)"),
        "qm.conf(5), cpu",
    ),
    row(CpuFeature, Proxmox, PVE_FLAG, PVE_MODELS),
    only(
        KvmFeature,
        "kvm",
        Proxmox,
        Change("qm set {vmid} --cpu MODEL,hidden={unbit} (with the rest of its value)"),
        "qm.conf(5), cpu",
    ),
    row(KvmFeature, Proxmox, PVE_FLAG, PVE_MODELS),
    row(
        Nested,
        Proxmox,
        Change(
            "qm set {vmid} --cpu MODEL,flags={sign}nested-virt (with the rest of its value; qemu-server 9.0.27)",
        ),
        "qm.conf(5), cpu; qemu-server debian/changelog",
    ),
    row(
        HyperV,
        Proxmox,
        Change(
            "/etc/pve/virtual-guest/cpu-models.conf: a model with `flags {sign}hv-{feature}`, then qm set {vmid} --cpu \
             custom-NAME,... (with the rest of its value)",
        ),
        PVE_MODELS,
    ),
    only(
        InterruptRemapping,
        "i440fx",
        Proxmox,
        Nothing("viommu needs the machine q35, which is another machine for the guest: install it anew"),
        "qm.conf(5), machine",
    ),
    row(
        InterruptRemapping,
        Proxmox,
        Change(
            "qm set {vmid} --machine TYPE,viommu=intel (with its present TYPE and the rest of its value; it splits the \
             irqchip too)",
        ),
        "qm.conf(5), machine; qemu-server src/PVE/QemuServer.pm, config_to_command",
    ),
    row(
        VirtioNetwork,
        Proxmox,
        Change("qm set {vmid} --{slot} virtio=MAC,... (with its present MAC and the rest of its value)"),
        QM_NET,
    ),
    row(
        VirtioDisk,
        Proxmox,
        Change("attach the disk as scsiN, and qm set {vmid} --scsihw virtio-scsi-single"),
        QM_DISK,
    ),
    row(
        NetworkQueues,
        Proxmox,
        Change("qm set {vmid} --{slot} virtio=MAC,...,queues={queues} (with the rest of its value)"),
        QM_NET,
    ),
    only(
        DiskQueues,
        "virtio",
        Proxmox,
        Nothing(
            "virtioN takes no number of queues; the machine types of QEMU 5.2 and later give one to each vCPU",
        ),
        QM_DISK,
    ),
    row(
        DiskQueues,
        Proxmox,
        Change("qm set {vmid} --{slot} VOLUME,...,queues={queues} (with the rest of its value)"),
        QM_DISK,
    ),
    only(
        IoThread,
        "virtio",
        Proxmox,
        Change("qm set {vmid} --{slot} VOLUME,...,iothread=1 (with the rest of its value)"),
        QM_DISK,
    ),
    row(
        IoThread,
        Proxmox,
        Change(
            "qm set {vmid} --scsihw virtio-scsi-single --{slot} VOLUME,...,iothread=1 (with the rest of its value)",
        ),
        QM_DISK,
    ),
    row(
        Aio,
        Proxmox,
        Change("qm set {vmid} --{slot} VOLUME,...,aio={aio} (with the rest of its value)"),
        QM_DISK,
    ),
    row(
        FewerVcpus,
        Proxmox,
        Change("qm set {vmid} --sockets SOCKETS --cores CORES"),
        "qm.conf(5), sockets and cores",
    ),
    // OpenStack Nova
    row(
        SplitIrqchip,
        Nova,
        Change("flavor: hw:viommu_model=intel, or image: hw_viommu_model=intel, with hw_machine_type=q35"),
        NOVA_IOMMU,
    ),
    row(
        DiscardPitTicks,
        Nova,
        Nothing(
            "Nova writes tickpolicy='delay'; split the irqchip by hw:viommu_model=intel instead (not for Windows \
             without hv-stimer, because Nova has the RTC catch up on lost ticks)",
        ),
        NOVA_TIMERS,
    ),
    row(NoHpet, Nova, Change("image: hw_time_hpet=false"), NOVA_TIMERS),
    row(CpuModel, Nova, Change("nova.conf of the compute node: [libvirt] cpu_mode={mode}"), NOVA_FLAGS),
    row(
        CpuFeature,
        Nova,
        Change("nova.conf of the compute node: [libvirt] cpu_model_extra_flags={sign}{feature}"),
        NOVA_FLAGS,
    ),
    only(
        KvmFeature,
        "kvm",
        Nova,
        Change("image: img_hide_hypervisor_id={unbool}, and flavor: hw:hide_hypervisor_id={unbool}"),
        "Glance useful image properties, img_hide_hypervisor_id; Nova flavors, hw:hide_hypervisor_id",
    ),
    row(KvmFeature, Nova, Nothing("no property switches one feature of KVM"), NOVA_HYPERV),
    row(
        Nested,
        Nova,
        Change("nova.conf of the compute node: [libvirt] cpu_model_extra_flags={sign}{feature}"),
        NOVA_FLAGS,
    ),
    row(
        HyperV,
        Nova,
        Nothing("with os_type=windows Nova writes its own list of enlightenments"),
        NOVA_HYPERV,
    ),
    row(
        InterruptRemapping,
        Nova,
        Change("flavor: hw:viommu_model=intel, or image: hw_viommu_model=intel, with hw_machine_type=q35"),
        NOVA_IOMMU,
    ),
    row(
        VirtioNetwork,
        Nova,
        Change("image: hw_vif_model=virtio"),
        "Glance useful image properties, hw_vif_model",
    ),
    row(
        VirtioDisk,
        Nova,
        Change("image: hw_disk_bus=virtio, or hw_disk_bus=scsi with hw_scsi_model=virtio-scsi"),
        NOVA_DISK,
    ),
    row(
        NetworkQueues,
        Nova,
        Change("flavor: hw:vif_multiqueue_enabled=true, or image: hw_vif_multiqueue_enabled=true"),
        "Nova flavors, hw:vif_multiqueue_enabled",
    ),
    row(
        DiskQueues,
        Nova,
        Nothing("no property sets the queues of a disk"),
        "nova/objects/image_meta.py; nova/api/validation/extra_specs/hw.py",
    ),
    row(
        IoThread,
        Nova,
        Nothing("no property sets I/O threads; Nova of 2026 gives each VM one"),
        "nova/virt/libvirt/driver.py, _get_guest_iothread",
    ),
    row(
        Aio,
        Nova,
        Nothing("no property sets the I/O method of a disk"),
        "nova/objects/image_meta.py; nova/api/validation/extra_specs/hw.py",
    ),
    row(
        FewerVcpus,
        Nova,
        Change(
            "flavor: fewer vcpus, or hw:cpu_sockets, hw:cpu_cores and hw:cpu_threads that are powers of two",
        ),
        "Nova flavors, CPU topology",
    ),
    // KubeVirt
    row(
        SplitIrqchip,
        KubeVirt,
        Nothing("no field of a VirtualMachine splits the irqchip; set the PIT's tickPolicy instead"),
        KV,
    ),
    row(
        DiscardPitTicks,
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.clock.timer.pit.tickPolicy: discard"),
        "KubeVirt api/core/v1/schema.go, PITTimer",
    ),
    row(
        NoHpet,
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.clock.timer.hpet.present: false"),
        "KubeVirt api/core/v1/schema.go, HPETTimer",
    ),
    row(
        CpuModel,
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.cpu.model: {mode}"),
        "KubeVirt api/core/v1/schema.go, CPU",
    ),
    row(
        CpuFeature,
        KubeVirt,
        Change(
            "VirtualMachine {vm}: to spec.template.spec.domain.cpu.features add {name: {feature}, policy: {policy}}",
        ),
        "KubeVirt api/core/v1/schema.go, CPUFeature",
    ),
    only(
        KvmFeature,
        "kvm",
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.features.kvm.hidden: {unbool}"),
        "KubeVirt api/core/v1/schema.go, FeatureKVM",
    ),
    only(
        KvmFeature,
        "kvm-pv-eoi",
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.features.apic.endOfInterrupt: {bool}"),
        "KubeVirt api/core/v1/schema.go, FeatureAPIC",
    ),
    row(KvmFeature, KubeVirt, Nothing("no field of a VirtualMachine switches this feature of KVM"), KV),
    row(
        Nested,
        KubeVirt,
        Change(
            "VirtualMachine {vm}: to spec.template.spec.domain.cpu.features add {name: {feature}, policy: {policy}}",
        ),
        "KubeVirt api/core/v1/schema.go, CPUFeature",
    ),
    only(
        HyperV,
        "avic",
        KubeVirt,
        Change(
            "VirtualMachine {vm}: spec.template.spec.domain.features.hypervPassthrough.enabled: true in place of hyperv \
             (the VM can then not be migrated live), or hyperv without synic and vapic",
        ),
        "KubeVirt pkg/virt-launcher/virtwrap/converter/compute/hypervisor_features.go",
    ),
    only(
        HyperV,
        "stimer",
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.features.hyperv.synictimer.enabled: {bool}"),
        "KubeVirt api/core/v1/schema.go, SyNICTimer",
    ),
    only(
        HyperV,
        "stimer-direct",
        KubeVirt,
        Change(
            "VirtualMachine {vm}: spec.template.spec.domain.features.hyperv.synictimer.direct.enabled: {bool}",
        ),
        "KubeVirt api/core/v1/schema.go, SyNICTimer",
    ),
    only(
        HyperV,
        "time",
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.clock.timer.hyperv.present: {bool}"),
        "KubeVirt api/core/v1/schema.go, HypervTimer",
    ),
    row(
        HyperV,
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.features.hyperv.{feature}.enabled: {bool}"),
        KV_HYPERV,
    ),
    row(InterruptRemapping, KubeVirt, Nothing("no field of a VirtualMachine adds an IOMMU"), KV),
    row(
        VirtioNetwork,
        KubeVirt,
        Change("VirtualMachine {vm}: model: virtio in spec.template.spec.domain.devices.interfaces"),
        "KubeVirt api/core/v1/schema.go, Interface",
    ),
    row(
        VirtioDisk,
        KubeVirt,
        Change("VirtualMachine {vm}: disk.bus: virtio in spec.template.spec.domain.devices.disks"),
        "KubeVirt api/core/v1/schema.go, DiskTarget",
    ),
    row(
        NetworkQueues,
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.devices.networkInterfaceMultiqueue: true"),
        "KubeVirt api/core/v1/schema.go, Devices",
    ),
    row(
        DiskQueues,
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.devices.blockMultiQueue: true"),
        "KubeVirt api/core/v1/schema.go, Devices",
    ),
    row(
        IoThread,
        KubeVirt,
        Change("VirtualMachine {vm}: spec.template.spec.domain.ioThreadsPolicy: auto"),
        "KubeVirt api/core/v1/schema.go, IOThreadsPolicy",
    ),
    row(
        Aio,
        KubeVirt,
        Change("VirtualMachine {vm}: io: {aio} in spec.template.spec.domain.devices.disks"),
        "KubeVirt api/core/v1/schema.go, Disk",
    ),
    row(
        FewerVcpus,
        KubeVirt,
        Change(
            "VirtualMachine {vm}: spec.template.spec.domain.cpu.sockets, cores and threads, in powers of two",
        ),
        "KubeVirt api/core/v1/schema.go, CPU",
    ),
    // oVirt
    row(SplitIrqchip, Ovirt, Arguments(&["-machine", "kernel-irqchip=split"]), VDSM_ARGUMENTS),
    row(DiscardPitTicks, Ovirt, Arguments(&["-global", "kvm-pit.lost_tick_policy=discard"]), VDSM_ARGUMENTS),
    row(NoHpet, Ovirt, Arguments(&["-machine", "hpet=off"]), VDSM_ARGUMENTS),
    row(CpuModel, Ovirt, Change("Edit, Host: Pass-Through Host CPU"), OVIRT),
    row(
        CpuFeature,
        Ovirt,
        Change("custom property cpuflags = {sign}{feature} (vdsm-hook-cpuflags)"),
        VDSM_FLAGS,
    ),
    row(
        KvmFeature,
        Ovirt,
        Nothing("the engine has no setting for it, and vdsm-hook-cpuflags knows only features of the CPU"),
        VDSM_FLAGS,
    ),
    row(Nested, Ovirt, Change("custom property cpuflags = {sign}{feature} (vdsm-hook-cpuflags)"), VDSM_FLAGS),
    row(HyperV, Ovirt, Nothing("the engine writes its own list of enlightenments for Windows"), OVIRT_XML),
    row(InterruptRemapping, Ovirt, Nothing("the engine's settings have no IOMMU for the guest"), OVIRT_XML),
    row(VirtioNetwork, Ovirt, Change("Network Interfaces, Edit: Type VirtIO"), OVIRT),
    row(VirtioDisk, Ovirt, Change("Disks, Edit: Interface VirtIO or VirtIO-SCSI"), OVIRT),
    row(NetworkQueues, Ovirt, Change("Edit, Resource Allocation: Multi Queues Enabled"), OVIRT),
    row(DiskQueues, Ovirt, Change("Edit, Resource Allocation: Multi Queues Enabled"), OVIRT),
    row(IoThread, Ovirt, Change("Edit, Resource Allocation: IO Threads Enabled"), OVIRT),
    row(Aio, Ovirt, Nothing("the engine chooses the I/O method by the kind of storage"), OVIRT_XML),
    row(FewerVcpus, Ovirt, Change("Edit, System: Total Virtual CPUs, in powers of two"), OVIRT),
    // Incus, LXD
    row(SplitIrqchip, Incus, Arguments(&["-machine", "kernel-irqchip=split"]), INCUS),
    row(DiscardPitTicks, Incus, Arguments(&["-global", "kvm-pit.lost_tick_policy=discard"]), INCUS),
    row(NoHpet, Incus, Arguments(&["-machine", "hpet=off"]), INCUS),
    row(
        CpuModel,
        Incus,
        Change("{client} config edit {vm}: in raw.qemu, -cpu {model},... instead of the -cpu before it"),
        INCUS_CPU,
    ),
    row(CpuFeature, Incus, INCUS_FLAG, INCUS_CPU),
    row(KvmFeature, Incus, INCUS_FLAG, INCUS_CPU),
    row(Nested, Incus, INCUS_FLAG, INCUS_CPU),
    row(
        HyperV,
        Incus,
        Change(
            "{client} config edit {vm}: in raw.qemu, -cpu VALUE,{sign}hv-{feature}; VALUE from the VM's command line, as \
             the last -cpu counts",
        ),
        INCUS_CPU,
    ),
    row(
        InterruptRemapping,
        Incus,
        Nothing("only Incus has an IOMMU that remaps, for Windows guests: security.iommu=true"),
        "Incus, driver_qemu_templates.go, qemuIOMMU",
    ),
    row(
        VirtioNetwork,
        Incus,
        Nothing("interfaces are virtio, unless io.bus or raw.qemu says otherwise"),
        "Incus and LXD, driver_qemu.go, addNetDevConfig",
    ),
    row(
        VirtioDisk,
        Incus,
        Change("{client} config device set {vm} DISK io.bus=virtio-scsi"),
        "Incus doc/config_options.txt and LXD doc/metadata.txt, io.bus",
    ),
    row(
        NetworkQueues,
        Incus,
        Nothing("an interface has as many queues as the VM has vCPUs when it starts, and at least two"),
        "Incus and LXD, driver_qemu.go, addNetDevConfig",
    ),
    row(DiskQueues, Incus, Nothing("no option sets the queues of a disk"), INCUS_DRIVES),
    row(IoThread, Incus, Nothing("no option gives a disk an I/O thread"), INCUS_DRIVES),
    row(Aio, Incus, Nothing("the I/O method is chosen by the kind of storage"), INCUS_DRIVES),
    row(
        FewerVcpus,
        Incus,
        Change("{client} config set {vm} limits.cpu=NUMBER"),
        "Incus doc/reference/instance_options.md, CPU limits for virtual machines",
    ),
    // cloud-hypervisor
    row(SplitIrqchip, CloudHypervisor, Nothing("its irqchip is always split"), CH_KVM),
    row(DiscardPitTicks, CloudHypervisor, Nothing("its irqchip is always split, and it has no PIT"), CH_KVM),
    row(
        CpuFeature,
        CloudHypervisor,
        Nothing("--cpus features= takes no such feature: the guest gets what KVM has"),
        CH,
    ),
    row(
        Nested,
        CloudHypervisor,
        Change(
            "--cpus ...,nested=off (cloud-hypervisor 52 or newer; with an older one SVM stays on: kvm_amd.nested=0 on \
             the host)",
        ),
        "cloud-hypervisor docs/cpu.md; arch: x86_64: Correctly disable nested virtualization on AMD (#7783, v52.0)",
    ),
    row(
        HyperV,
        CloudHypervisor,
        Nothing("kvm_hyperv=on gives the SynIC and all the rest; --cpus ...,kvm_hyperv=off takes them away"),
        CH,
    ),
    row(FewerVcpus, CloudHypervisor, Change("--cpus boot=NUMBER, or topology= of powers of two"), CH),
    // crosvm
    row(SplitIrqchip, Crosvm, Change("--irqchip split"), CROSVM),
    row(
        DiscardPitTicks,
        Crosvm,
        Nothing("the in-kernel PIT's policy is KVM's; --irqchip split takes the PIT out of the kernel"),
        "crosvm devices/src/irqchip/kvm/x86_64.rs",
    ),
    row(CpuFeature, Crosvm, Nothing("no option changes that feature"), CROSVM),
    row(
        Nested,
        Crosvm,
        Change("--nested=off (only a recent crosvm has it; with an older one kvm_amd.nested=0 on the host)"),
        CROSVM,
    ),
    row(HyperV, Crosvm, Nothing("it offers no SynIC"), CROSVM),
    row(FewerVcpus, Crosvm, Change("--cpus num-cores=NUMBER"), CROSVM),
    // firecracker
    row(SplitIrqchip, Firecracker, Nothing("it creates all interrupt controllers in the kernel"), FC_VM),
    row(
        DiscardPitTicks,
        Firecracker,
        Nothing("it creates the PIT in the kernel, with KVM's policy to reinject"),
        FC_VM,
    ),
    only(
        CpuFeature,
        "x2apic",
        Firecracker,
        Change(
            "PUT /cpu-config: {\"cpuid_modifiers\":[{\"leaf\":\"0x1\",\"subleaf\":\"0x0\",\"flags\":0,\"modifiers\":\
             [{\"register\":\"ecx\",\"bitmap\":\"0bxxxxxxxxxx{bit}xxxxxxxxxxxxxxxxxxxxx\"}]}]}",
        ),
        FC_TEMPLATE,
    ),
    row(
        CpuFeature,
        Firecracker,
        Change("PUT /cpu-config: a CPU template that changes {feature}"),
        FC_TEMPLATE,
    ),
    only(
        Nested,
        "svm",
        Firecracker,
        Change(
            "PUT /cpu-config: {\"cpuid_modifiers\":[{\"leaf\":\"0x80000001\",\"subleaf\":\"0x0\",\"flags\":0,\
             \"modifiers\":[{\"register\":\"ecx\",\"bitmap\":\"0bxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{bit}xx\"}]}]}",
        ),
        FC_TEMPLATE,
    ),
    row(Nested, Firecracker, Change("PUT /cpu-config: a CPU template that changes {feature}"), FC_TEMPLATE),
    row(HyperV, Firecracker, Nothing("it offers no SynIC"), FC_VM),
    row(
        FewerVcpus,
        Firecracker,
        Change("PUT /machine-config: vcpu_count"),
        "firecracker src/firecracker/swagger/firecracker.yaml",
    ),
];
