//! A host, with conclusions from its facts that many rules need.

use super::kernels::ROWS;
use super::release::{Release, Tree};
use super::vm_side::VmSide;
use crate::lint::HostSide;
use exits::{Isa, KernelVersion};
use host::Inspection;
use host::inspection::{Argument, IommuRegisters, Role, RunningVm};
use host::switch;

/// A host, and for rules over VMs also the VM.
pub(super) struct Subject<'a> {
    pub(super) host: &'a Inspection,
    pub(super) release: Option<Release>,
    pub(super) isa: Option<Isa>,
    pub(super) vm: Option<Of<'a>>,
}

/// The VM that a rule judges.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) running: &'a RunningVm,
    pub(super) side: Option<&'a VmSide>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(host: &'a Inspection) -> Self {
        let isa = host.processor.first.get().and_then(host::Cpu::isa);
        Self { host, release: Release::of(&host.kernel), isa, vm: None }
    }

    pub(super) fn with_vm(&self, vm: Of<'a>) -> Self {
        Self { host: self.host, release: self.release.clone(), isa: self.isa, vm: Some(vm) }
    }

    /// Tests whether the host runs Xen: rules over KVM do not apply then, and `/proc` shows the processors and the
    /// processes of the control domain, not those of the host.
    pub(super) fn is_xen(&self) -> bool {
        self.host.xen.is_some()
    }

    /// Tests whether it is a guest, whose firmware has no setup that decides about IOMMUs.
    pub(super) fn is_guest(&self) -> bool {
        matches!(self.host.processor.hypervisor.get(), Some(Some(_)))
    }

    /// The one that lacks a feature of the CPU: a guest's CPU has what the hypervisor below offers.
    pub(super) fn owner_of_features(&self) -> &'static str {
        if self.is_guest() { "the CPU that the underlying hypervisor offers" } else { "this CPU" }
    }

    /// The advice for a missing feature of the CPU: `kvm` for a guest of KVM, `bare` on bare metal.
    pub(super) fn feature_advice(&self, kvm: &str, bare: &str) -> String {
        self.host.processor.below().map_or_else(|| bare.to_owned(), |below| below.advice(kvm))
    }

    /// Tests whether it is, or could be, a KVM host with CPUs of this vendor.
    pub(super) fn is_kvm_on(&self, isa: Isa) -> bool {
        !self.is_xen() && self.isa == Some(isa)
    }

    /// The vendor's module.
    pub(super) fn module(&self) -> &'static str {
        if self.isa == Some(Isa::Svm) { "kvm_amd" } else { "kvm_intel" }
    }

    /// The parameter that switches interrupt virtualization.
    pub(super) fn switch(&self) -> &'static str {
        if self.isa == Some(Isa::Svm) { "avic" } else { "enable_apicv" }
    }

    /// The vendor's name of interrupt virtualization.
    pub(super) fn technology(&self) -> &'static str {
        match self.isa {
            Some(Isa::Svm) => "AVIC",
            Some(Isa::Vmx) => "APICv",
            None => "interrupt virtualization",
        }
    }

    /// A module's parameter as in sysfs; `None` if the module, the parameter or its value is missing.
    pub(super) fn parameter(&self, module: &str, name: &str) -> Option<&'a str> {
        self.host.kernel.parameters.get(module)?.get(name)?.as_deref()
    }

    /// The value of a boolean parameter.
    pub(super) fn is_on(&self, module: &str, name: &str) -> Option<bool> {
        switch(self.parameter(module, name)?)
    }

    /// Tests whether KVM uses interrupt virtualization; `None` when that is unknown.
    pub(super) fn is_enabled(&self) -> Option<bool> {
        self.is_on(self.module(), self.switch())
    }

    /// The command that switches interrupt virtualization: `enable` or `disable`. A module that is built in or in use cannot
    /// be reloaded.
    pub(super) fn switching(&self, command: &str) -> String {
        let stays = self.host.kernel.has_built_in(self.module()) || !self.running().is_empty();
        let reload = if stays { "" } else { " --reload" };
        format!("exitless {command} --persist{reload} --apply")
    }

    /// The advice to load a module with a parameter such as `avic=1`.
    pub(super) fn loading(&self, module: &str, parameter: &str) -> String {
        if self.host.kernel.has_built_in(module) {
            format!("add {module}.{parameter} to the kernel's arguments and reboot")
        } else {
            format!("write `options {module} {parameter}` to modprobe.d, and reload {module} when no VM runs")
        }
    }

    /// Tests whether the kernel is known to be older than KVM's inhibits (5.6). A vendor's number does not show that.
    pub(super) fn is_before_inhibits(&self) -> bool {
        self.release.as_ref().is_some_and(|release| {
            let (major, minor) = release.version;
            release.tree == Tree::Stable && KernelVersion::new(major, minor) < HostSide::INHIBITS
        })
    }

    /// Tests whether the kernel has the feature or the fix of a row of the kernel table; `None` if that is unknown.
    pub(super) fn kernel_has(&self, rule: &str) -> Option<bool> {
        let row = ROWS.iter().find(|row| row.rule == rule)?;
        row.judge_running(self.release.as_ref()?, &self.host.kernel).has.known()
    }

    /// Tests whether the CPU has interrupt virtualization; `None` when that is unknown.
    pub(super) fn cpu_has(&self) -> Option<bool> {
        let processor = &self.host.processor;
        match self.isa? {
            Isa::Svm => processor.svm.get().map(|svm| svm.avic),
            Isa::Vmx => processor.vmx.get().and_then(host::inspection::VmxFeatures::apicv),
        }
    }

    /// Tests whether all IOMMUs can post; `None` if there are none, or if one is unknown.
    pub(super) fn iommus_post(&self) -> Option<bool> {
        let units = &self.host.iommus.units;
        let posts = units.iter().filter_map(|unit| match &unit.registers {
            IommuRegisters::Amd(fact) => Some(fact.get().map(host::inspection::AmdFeatures::posts)),
            IommuRegisters::Intel(fact) => Some(fact.get().map(|found| found.posts)),
            IommuRegisters::Other => None,
        });
        host::posting::joined(posts, false)
    }

    /// The kernel argument in force that keeps the IOMMUs from posting.
    pub(super) fn against_posting(&self) -> Option<&'a Argument> {
        self.host.kernel.arguments.get()?.against_posting(self.isa?)
    }

    pub(super) fn running(&self) -> &'a [RunningVm] {
        self.host.running.vms.get().map_or(&[], Vec::as_slice)
    }

    /// The last value of a kernel argument.
    pub(super) fn argument(&self, name: &str) -> Option<Option<&'a str>> {
        self.host.kernel.arguments.get()?.last(name)
    }

    pub(super) fn has_word(&self, argument: &str, word: &str) -> bool {
        self.host.kernel.arguments.get().is_some_and(|arguments| arguments.has_word(argument, word))
    }
}

/// The number of vCPUs of a VM, by its threads.
pub(super) fn vcpus(vm: &RunningVm) -> usize {
    let threads = vm.threads.iter().filter(|thread| matches!(thread.role, Role::Vcpu(_))).count();
    threads.max(vm.vm.vcpus.len())
}
