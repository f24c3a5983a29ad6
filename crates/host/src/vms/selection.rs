//! Selects VMs by process or name.

use super::{Vm, Vms};

/// No VM has the requested name or process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("No VM is called {wanted:?} nor has it as its process; {there}")]
pub struct NoSuchVm {
    wanted: String,
    /// The available VMs, or the reason why there are none.
    there: String,
}

impl Vms {
    /// The VMs in `wanted`, each once and in the host's order; all if it is empty.
    ///
    /// A number is that of a VM in Proxmox VE, of a process, or of a domain in libvirt, in this order; everything else, and
    /// other numbers, is a name, which several VMs may have, a UUID, or `namespace/name` of KubeVirt. The number in Proxmox
    /// VE goes before the process only if the control group shows it: anybody can write it on a command line.
    ///
    /// # Errors
    /// [`NoSuchVm`] for the first name without a VM, with the available ones.
    pub fn select(&self, wanted: &[String]) -> Result<Vec<&Vm>, NoSuchVm> {
        if wanted.is_empty() {
            return Ok(self.vms.iter().collect());
        }
        let mut chosen = Vec::new();
        for one in wanted {
            let found = self.matching(one);
            if found.is_empty() {
                return Err(NoSuchVm { wanted: one.clone(), there: self.there() });
            }
            chosen.extend(found);
        }
        chosen.sort_unstable_by_key(|vm| vm.pid);
        chosen.dedup_by_key(|vm| vm.pid);
        Ok(chosen)
    }

    fn matching(&self, wanted: &str) -> Vec<&Vm> {
        let number = wanted.parse::<u32>().ok();
        let first = |test: &dyn Fn(&Vm, u32) -> bool| {
            number.and_then(|number| self.vms.iter().find(|vm| test(vm, number)))
        };
        let by_number = first(&|vm, number| vm.management.vmid_confirmed && vm.management.has_vmid(number))
            .or_else(|| first(&|vm, number| u32::try_from(vm.pid) == Ok(number)))
            .or_else(|| first(&|vm, number| vm.management.has_vmid(number)))
            .or_else(|| first(&|vm, number| vm.management.is_domain(number)));
        match by_number {
            Some(vm) => vec![vm],
            None => {
                self.vms.iter().filter(|vm| vm.name == wanted || vm.management.is_called(wanted)).collect()
            }
        }
    }

    fn there(&self) -> String {
        let named: Vec<String> = self.vms.iter().map(|vm| format!("{} ({})", vm.name, vm.pid)).collect();
        let mut text = match named.as_slice() {
            [] => "no VM was found".to_owned(),
            named => format!("running: {}", named.join(", ")),
        };
        match self.unreadable {
            0 => {}
            1 => text += "; 1 process cannot be inspected, so run as root",
            many => text += &format!("; {many} processes cannot be inspected, so run as root"),
        }
        for one in &self.held {
            text += &format!("; process {} ({}) blocks inspection", one.pid, one.command);
        }
        text
    }
}
