//! What Xen uses of the hardware's interrupt virtualization.

use exits::Isa;

/// The interrupt virtualization that Xen can use on such a processor; `None` if it uses none.
pub(crate) const fn technology(isa: Option<Isa>) -> Option<&'static str> {
    match isa {
        Some(Isa::Vmx) => Some("APICv"),
        Some(Isa::Svm) => None,
        None => Some("APICv (Intel)"),
    }
}
