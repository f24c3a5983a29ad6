//! Methods to make KVM inhibit APICv or AVIC for one QEMU guest.

use exits::{InhibitReason, Isa};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The method that inhibits interrupt virtualization for QEMU guests while the module has it on. Each is a
/// property of the guest's machine, so the guests are started again with it.
///
/// Sources: `arch/x86/kvm/i8254.c` (`kvm_pit_set_reinject`), `arch/x86/kvm/x86.c` (`kvm_apicv_init`),
/// `arch/x86/kvm/hyperv.c` (`synic_update_vector`), `VMX_REQUIRED_APICV_INHIBITS` in `arch/x86/kvm/vmx/main.c` and
/// `AVIC_REQUIRED_APICV_INHIBITS` in `arch/x86/kvm/svm/svm.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Inhibit {
    /// No inhibition: interrupt controllers in the kernel, and a PIT that drops the ticks that the guest
    /// missed.
    None,
    /// The PIT in the kernel injects missed ticks later: inhibit reason PIT_REINJ. AMD only; KVM's default.
    PitReinject,
    /// All interrupt controllers in QEMU: inhibit reason ABSENT. QEMU emulates the whole local APIC too, so
    /// this does not measure APICv or AVIC alone.
    UserspaceIrqchip,
    /// Hyper-V's synthetic interrupt controller, offered with AutoEOI: inhibit reason HYPERV as soon as the
    /// guest uses it. Windows uses it; Linux only with its driver hv_vmbus.
    HypervAutoEoi,
}

impl Inhibit {
    /// The inhibit reason that KVM must report while guests run; `None` if it must report none.
    #[must_use]
    pub const fn reason(self) -> Option<InhibitReason> {
        match self {
            Self::None => None,
            Self::PitReinject => Some(InhibitReason::PitReinject),
            Self::UserspaceIrqchip => Some(InhibitReason::Absent),
            Self::HypervAutoEoi => Some(InhibitReason::HyperV),
        }
    }

    /// Tests whether KVM has the reason on processors of this instruction set.
    #[must_use]
    pub const fn works_on(self, isa: Isa) -> bool {
        !matches!((self, isa), (Self::PitReinject, Isa::Vmx))
    }

    /// The settings of the plan's table `[guests]` that make QEMU do it. Both arms of a comparison get all of
    /// these settings, so that they differ in nothing else.
    #[must_use]
    pub(crate) fn guest_settings(self) -> toml::Table {
        let settings: &[(&str, &str)] = match self {
            Self::None => &[("irqchip", "on"), ("pit", "discard")],
            // QEMU's PIT "delays" lost ticks unless told otherwise (hw/i386/kvm/i8254.c), which makes KVM reinject them.
            Self::PitReinject => &[("irqchip", "on"), ("pit", "on")],
            Self::UserspaceIrqchip => &[("irqchip", "off")],
            // hv-avic, which advises guests against AutoEOI, is off unless it is named.
            Self::HypervAutoEoi => {
                &[("irqchip", "on"), ("pit", "discard"), ("cpu", "host,hv-vpindex=on,hv-synic=on")]
            }
        };
        settings.iter().map(|&(name, value)| (name.to_owned(), toml::Value::from(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_names_its_reason_and_where_the_controllers_are() {
        for way in [Inhibit::None, Inhibit::PitReinject, Inhibit::UserspaceIrqchip, Inhibit::HypervAutoEoi] {
            assert_eq!(way.reason().is_none(), way == Inhibit::None);
            let settings = way.guest_settings();
            let in_kernel = settings["irqchip"].as_str() == Some("on");
            assert_eq!(in_kernel, way.reason() != Some(InhibitReason::Absent));
            assert_eq!(
                settings.contains_key("pit"),
                in_kernel,
                "who has no PIT in the kernel says nothing of it"
            );
        }
        assert!(!Inhibit::PitReinject.works_on(Isa::Vmx) && Inhibit::PitReinject.works_on(Isa::Svm));
    }
}
