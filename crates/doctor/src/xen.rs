//! The hardware's interrupt virtualization that Xen uses.

use exits::Isa;
use host::switch;

/// The interrupt virtualization that Xen can use on a processor with this instruction set; `None` if there is
/// none.
pub(crate) const fn technology(isa: Option<Isa>) -> Option<&'static str> {
    match isa {
        Some(Isa::Vmx) => Some("APICv"),
        Some(Isa::Svm) => None,
        None => Some("APICv (Intel)"),
    }
}

/// The value that a word of Xen's command line gives APICv, if any; the last such word counts. Xen accepts `no-` before a
/// boolean (`parse_params` and `parse_bool` in xen/common/kernel.c of Xen 4.20).
pub(crate) fn apicv_by(word: &str) -> Option<bool> {
    match word.split_once('=') {
        Some(("apicv", "enable")) => Some(true),
        Some(("apicv", "disable")) => Some(false),
        Some(("apicv", value)) => switch(value),
        None if word == "apicv" => Some(true),
        None if word == "no-apicv" => Some(false),
        _ => None,
    }
}
