//! The hypervisor under a host that is itself a guest, and the step that its administrator has to take.

/// The signature of KVM.
pub(crate) const KVM: &str = "KVMKVMKVM";

/// The hypervisor under a host that is itself a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// KVM, or a hypervisor whose signature is not known.
    Kvm,
    /// Another one: Hyper-V, VMware, Xen.
    Other,
}

impl Below {
    /// The advice if no setting of the hypervisor helps.
    pub const ELSEWHERE: &str = "run guests on the host below, or on a bare-metal instance";

    /// The hypervisor with this signature of CPUID; an empty one is unknown.
    #[must_use]
    pub fn of(signature: &str) -> Self {
        if signature.is_empty() || signature == KVM { Self::Kvm } else { Self::Other }
    }

    /// The advice to have it offer a feature, which is done with `kvm` if it is KVM. exitless does not know the settings of
    /// others.
    #[must_use]
    pub fn advice(self, kvm: &str) -> String {
        match self {
            Self::Kvm => format!("on the host below (KVM): {kvm}"),
            Self::Other => Self::ELSEWHERE.to_owned(),
        }
    }
}
