//! The processors of vCPUs: `cpus` (xl.cfg(5)).

use super::settings::Value;
use crate::{Definition, Set};

/// The limit of vCPUs; no guest of `xl` reaches it.
const MOST_VCPUS: u32 = 4096;

/// The longest list of processors, in bytes.
const LONGEST_LIST: usize = 4096;

/// Pins from `cpus` as a text, which applies to all vCPUs. The setting also stays in `other`.
pub(super) fn fill(vm: &mut Definition) {
    let Some(cpus) = vm.other.iter().find(|set| set.value.0 == "cpus") else { return };
    // `fill_from_list` has already assigned the items of a list, which contain commas here.
    if cpus.place.text.contains('[') || cpus.value.1.len() > LONGEST_LIST {
        return;
    }
    let vcpus = vm.vcpus.count.as_ref().map_or(1, |set| set.value).min(MOST_VCPUS);
    let (value, place) = (cpus.value.1.clone(), cpus.place.clone());
    vm.vcpu_pins = (0..vcpus).map(|vcpu| Set::new((vcpu, value.clone()), place.clone())).collect();
}

/// Pins from `cpus` as a list: the first item is for the first vCPU.
pub(super) fn fill_from_list(vm: &mut Definition, value: &Value) {
    let Value::List(items) = value else { return };
    let numbered = (0..MOST_VCPUS).zip(items);
    vm.vcpu_pins =
        numbered.map(|(vcpu, (item, place))| Set::new((vcpu, item.text()), place.clone())).collect();
}
