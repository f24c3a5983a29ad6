//! Converts settings to a definition.

use super::settings::Setting;
use super::{devices, pins};
use crate::{Accelerator, Definition, Place, Set};
use exits::XenGuestType;
use std::str::FromStr;

/// Sets the definition's fields from the settings.
pub(super) fn fill(vm: &mut Definition, settings: &[Setting]) {
    vm.machine.accelerator = Some(Set::new(Accelerator::Xen, Place::default()));
    // Read the type first: the meaning of devices depends on it.
    for wanted in ["builder", "type"] {
        if let Some(setting) = settings.iter().find(|setting| setting.name == wanted) {
            vm.machine.kind = Some(Set::new(setting.value.text(), setting.place.clone()));
        }
    }
    if vm.machine.kind.as_ref().is_some_and(|kind| XenGuestType::parse(&kind.value).is_none()) {
        vm.doubts.push("The guest's type is none of pv, pvh and hvm; `xl` refuses the file.".to_owned());
    }
    for setting in settings {
        if !known(vm, setting) && !devices::add(vm, setting) {
            vm.other.push(Set::new((setting.name.clone(), setting.value.text()), setting.place.clone()));
        }
    }
    pins::fill(vm);
}

fn known(vm: &mut Definition, setting: &Setting) -> bool {
    match setting.name.as_str() {
        "type" | "builder" => {}
        "name" => vm.name = Some(Set::new(setting.value.text(), setting.place.clone())),
        "memory" => vm.memory_mib = number(vm, setting),
        "vcpus" => vm.vcpus.count = number(vm, setting),
        "maxvcpus" => vm.vcpus.maximum = number(vm, setting),
        "hpet" => vm.timers.hpet = number::<u64>(vm, setting).map(|set| Set::new(set.value != 0, set.place)),
        _ => return false,
    }
    true
}

/// Numbers in the syntax of `strtoul`: decimal, `0x`, or octal with a leading zero (`xlu_cfg_get_long`).
fn number<N: FromStr>(vm: &mut Definition, setting: &Setting) -> Option<Set<N>> {
    let text = setting.value.text();
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text, 8).ok(),
        None => text.parse().ok(),
    };
    let value = value.and_then(|value| value.to_string().parse().ok());
    if value.is_none() {
        vm.doubts.push(format!("Line {}: {} wants a number.", setting.place.line, setting.name));
    }
    Some(Set::new(value?, setting.place.clone()))
}

impl Definition {
    /// The type of the guest; PV by default on x86 (xl.cfg(5), `type`).
    #[must_use]
    pub fn xen_type(&self) -> XenGuestType {
        let kind = self.machine.kind.as_ref();
        kind.and_then(|kind| XenGuestType::parse(&kind.value)).unwrap_or(XenGuestType::Pv)
    }
}
