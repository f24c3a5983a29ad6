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
    /// A number that is a process selects that one; everything else is a name, which several VMs may have.
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
        let by_pid = wanted.parse().ok().and_then(|pid: i32| self.vms.iter().find(|vm| vm.pid == pid));
        match by_pid {
            Some(vm) => vec![vm],
            None => self.vms.iter().filter(|vm| vm.name == wanted).collect(),
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
