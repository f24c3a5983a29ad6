//! The requested parameters of a vendor module.

use super::plan::{Arm, Refusal};
use crate::examination::{Release, Tree};
use crate::lint::HostSide;
use exits::KernelVersion;
use host::kvm;
use host::{Inspection, Parameters, switch};

/// The first kernel in which AVIC is `auto`: on if the CPU has x2AVIC, from Zen 4 (arch/x86/kvm/svm/avic.c of
/// 6.18).
const AVIC_BY_ITSELF: (u16, u16) = (6, 18);
/// The first kernel that inhibits AVIC only while a nested guest runs; earlier ones with inhibits do so in every VM that is
/// offered SVM (commit f44509f849fe).
const NESTED_WHILE_IT_RUNS: KernelVersion = KernelVersion::new(5, 19);

/// A boolean parameter of the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) name: &'static str,
    /// The requested value.
    pub(super) on: bool,
    /// The default, if it is known.
    pub(super) default: Option<bool>,
    /// The value in the running kernel.
    pub(super) now: Option<String>,
    /// True if the parameter is passed but need not be in effect: the module clears it if an IOMMU does not support it.
    optional: bool,
}

impl Switch {
    /// The value as text.
    pub(super) fn value(&self) -> &'static str {
        if self.on { "1" } else { "0" }
    }

    pub(super) fn is_so(&self) -> bool {
        self.now.as_deref().and_then(switch) == Some(self.on)
    }
}

/// The module and its parameters, the main one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) arm: Arm,
    pub(super) technology: String,
    pub(super) module: &'static str,
    pub(super) loaded: bool,
    pub(super) built_in: bool,
    switches: Vec<Switch>,
}

impl Target {
    /// The parameters for this host's vendor. `Err` if neither the CPU nor a module shows the vendor.
    pub(super) fn of(inspection: &Inspection, arm: Arm) -> Result<Self, Refusal> {
        let flags = inspection.processor.flags.get();
        let has = |flag: &str| flags.is_some_and(|flags| flags.contains(flag));
        let module = if has("svm") {
            kvm::AMD
        } else if has("vmx") {
            kvm::INTEL
        } else if let Some(module) = inspection.kvm.vendor_module {
            module
        } else if let Some(absence) = inspection.processor.flags.absence() {
            return Err(Refusal {
                name: "cpu".to_owned(),
                why: format!("the CPU's flags are not known: {}", absence.why),
                next: "give the directory that holds the host's proc".to_owned(),
            });
        } else {
            let guest = inspection.processor.hypervisor.get().is_some_and(Option::is_some);
            return Err(Refusal {
                name: "cpu".to_owned(),
                why: "the CPU shows neither vmx nor svm".to_owned(),
                next: match arm {
                    Arm::Off => "there is nothing to disable",
                    Arm::On if guest => {
                        "this machine is itself a guest: let its host offer nested virtualization"
                    }
                    Arm::On => "enable virtualization in the firmware",
                }
                .to_owned(),
            });
        };
        let parameters = inspection.kernel.parameters.get(module);
        let on = arm == Arm::On;
        let switch =
            |name, on, default| Switch { name, on, default, now: now(parameters, name), optional: false };
        // Do not pass a parameter that the loaded module does not have.
        let shown = |name: &str| parameters.is_none_or(|all| all.contains_key(name));
        let [ipis, posting] = kvm::KEPT_BY_KVM;
        let (technology, mut switches) = if module == kvm::AMD {
            let default = is_off_by_default(inspection).then_some(false);
            let mut switches = vec![switch("avic", on, default)];
            if on {
                // Without nested paging the module disables AVIC (arch/x86/kvm/svm/avic.c, `avic_hardware_setup`).
                switches.push(switch("npt", true, Some(true)));
            }
            if let Some(&erratum) = inspection.processor.erratum_1235.get()
                && on
                && shown(ipis)
            {
                // The kernel itself leaves IPIs out on AMD's CPUs with the erratum, and on Hygon's from 7.1.
                let vendor = inspection.processor.first.get().and_then(|cpu| cpu.vendor.as_deref());
                let reads_on = now(parameters, ipis).as_deref().and_then(host::switch) == Some(true);
                let is_known = !erratum || (vendor == Some("AuthenticAMD") && !reads_on);
                switches.push(switch(ipis, !erratum, is_known.then_some(!erratum)));
            }
            (if has("x2avic") { "x2AVIC" } else { "AVIC" }, switches)
        } else {
            let mut switches = vec![switch("enable_apicv", on, Some(true))];
            let has_ipis = inspection.processor.vmx.get().and_then(|vmx| vmx.ipi_virtualization);
            if on && has_ipis == Some(true) && shown(ipis) {
                switches.push(switch(ipis, true, Some(true)));
            }
            ("APICv", switches)
        };
        if on && shown(posting) {
            switches.push(Switch { optional: true, ..switch(posting, true, Some(true)) });
        }
        let built_in = inspection.kernel.has_built_in(module);
        let (technology, loaded) = (technology.to_owned(), parameters.is_some());
        Ok(Self { arm, technology, module, loaded, built_in, switches })
    }

    /// The main parameter, which switches interrupt virtualization.
    pub(super) fn switch(&self) -> &Switch {
        &self.switches[0]
    }

    pub(super) fn switches(&self) -> &[Switch] {
        &self.switches
    }

    pub(super) fn is_so(&self) -> bool {
        self.switches.iter().all(|one| one.optional || one.is_so())
    }

    pub(super) fn notes(&self, inspection: &Inspection) -> Vec<String> {
        let mut notes = Vec::new();
        let old = HostSide::INHIBITS..NESTED_WHILE_IT_RUNS;
        let old = HostSide::of(inspection).kernel.is_none_or(|kernel| old.contains(&kernel));
        let nested = now(inspection.kernel.parameters.get(self.module), "nested");
        if self.module == kvm::AMD
            && self.arm == Arm::On
            && old
            && nested.as_deref().and_then(switch) == Some(true)
        {
            notes.push(
                "Linux 5.6 to 5.18 inhibits AVIC in every VM that is offered SVM: take svm from such VMs \
                 (-cpu host,svm=off), or load kvm_amd with nested=0."
                    .to_owned(),
            );
        }
        let tdx = now(inspection.kernel.parameters.get(self.module), "tdx");
        // arch/x86/kvm/vmx/tdx.c, `tdx_bringup`.
        if self.arm == Arm::Off && tdx.as_deref().and_then(switch) == Some(true) {
            notes.push(
                "KVM offers TDX only with APICv: no trust domain can start while APICv is off.".to_owned(),
            );
        }
        if inspection.kernel.lockdown.get().is_some_and(|mode| mode != "none") {
            notes.push(
                "The kernel is locked down: it loads signed modules only, such as the distribution's."
                    .to_owned(),
            );
        }
        notes
    }
}

/// Tests whether AVIC is known to be off if nothing sets it. A vendor's number does not show that, nor does any number
/// where AVIC is on: whoever builds a kernel can port the change.
fn is_off_by_default(inspection: &Inspection) -> bool {
    let is_old = Release::of(&inspection.kernel)
        .is_some_and(|release| release.tree == Tree::Stable && release.version < AVIC_BY_ITSELF);
    let avic = now(inspection.kernel.parameters.get(kvm::AMD), "avic");
    is_old && avic.as_deref().and_then(switch) != Some(true)
}

fn now(parameters: Option<&Parameters>, name: &str) -> Option<String> {
    parameters?.get(name)?.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::fake;

    #[test]
    fn a_cpu_that_is_not_known_is_not_said_to_lack_anything() {
        let refusal = |files: &str| {
            let inspection = Inspection::read(&fake::root(files)).unwrap();
            Target::of(&inspection, Arm::On).unwrap_err().why
        };
        let unknown = refusal("== /proc/sys/kernel/osrelease\n6.12.107\n");
        assert!(unknown.starts_with("the CPU's flags are not known: there is no /proc/cpuinfo"), "{unknown}");
        let without = "== /proc/cpuinfo\nprocessor : 0\nflags : fpu\n";
        assert_eq!(refusal(without), "the CPU shows neither vmx nor svm");
        let inspection = Inspection::read(&fake::root(without)).unwrap();
        let next = |arm| Target::of(&inspection, arm).unwrap_err().next;
        assert_eq!(
            [Arm::On, Arm::Off].map(next),
            ["enable virtualization in the firmware", "there is nothing to disable"]
        );
    }

    #[test]
    fn of_two_modules_that_are_built_in_the_one_for_the_cpu_is_switched() {
        let module = |cpu: &str| {
            let files = "== /sys/module/kvm_intel/parameters/enable_apicv\nY\n\
                         == /sys/module/kvm_amd/parameters/avic\nN\n== /proc/cpuinfo\nprocessor : 0\n";
            let inspection = Inspection::read(&fake::root(&format!("{files}{cpu}\n"))).unwrap();
            Target::of(&inspection, Arm::On).unwrap().module
        };
        assert_eq!(["flags : svm", "flags : vmx"].map(module), [kvm::AMD, kvm::INTEL]);
        // The firmware has switched VMX off, which takes the flag.
        assert_eq!(module("vendor_id : GenuineIntel\nflags : fpu"), kvm::INTEL);
    }

    #[test]
    fn a_vendors_kernel_is_not_called_old_by_its_number() {
        let notes = |release: &str| {
            let files = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\nflags : svm avic\n\
                         == /sys/module/kvm_amd/parameters/nested\n1\n== /proc/sys/kernel/osrelease\n";
            let inspection = Inspection::read(&fake::root(&format!("{files}{release}\n"))).unwrap();
            Target::of(&inspection, Arm::On).unwrap().notes(&inspection).len()
        };
        let releases = ["5.15.180", "5.15.0-204.146.1.el8uek.x86_64", "6.12.107"];
        assert_eq!(releases.map(notes), [1, 0, 0]);
    }
}
