//! The names of lines.

use exits::{Key, Vcpu, What, Whose};

use super::vms::Vms;
use crate::text::printable;

/// The name of a VM, or its process if it has no name.
pub(super) fn vm(vm: Option<u32>, vms: &Vms) -> String {
    let name = vms.get(vm).and_then(|vm| vm.facts.name.as_deref());
    match (name, vm) {
        (Some(name), _) => printable(name),
        (None, Some(process)) => format!("pid {process}"),
        (None, None) => "no VM".to_owned(),
    }
}

/// The name of a vCPU within its VM.
pub(super) fn vcpu(vcpu: Vcpu) -> String {
    match (vcpu.number, vcpu.thread) {
        (Some(number), _) => format!("vCPU {number}"),
        (None, Some(thread)) => format!("thread {thread}"),
        (None, None) => "no vCPU".to_owned(),
    }
}

/// The name of a line, without the part that the heading contains.
pub(super) fn line(key: Key, vms: &Vms) -> String {
    match (key.whose, key.what) {
        (Whose::Vcpu(of), What::Everything) => vcpu(of),
        (whose, What::Everything) => vm(whose.vm(), vms),
        (_, what) => printable(&what.to_string()),
    }
}

/// The full name of a VM or a vCPU: "web (pid 4711), vCPU 1".
pub(super) fn whole(whose: Whose, vms: &Vms) -> String {
    let mut text = vm(whose.vm(), vms);
    if let (Some(process), true) = (whose.vm(), vms.get(whose.vm()).is_some_and(|vm| vm.facts.name.is_some()))
    {
        text += &format!(" (pid {process})");
    }
    if let Whose::Vcpu(of) = whose {
        text += &format!(", {}", vcpu(of));
    }
    text
}
