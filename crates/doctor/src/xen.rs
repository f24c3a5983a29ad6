//! The hardware's interrupt virtualization that Xen uses.

use exits::Isa;

/// The interrupt virtualization that Xen can use on a processor with this instruction set; `None` if there is
/// none.
pub(crate) const fn technology(isa: Option<Isa>) -> Option<&'static str> {
    match isa {
        Some(Isa::Vmx) => Some("APICv"),
        Some(Isa::Svm) => None,
        None => Some("APICv (Intel)"),
    }
}
