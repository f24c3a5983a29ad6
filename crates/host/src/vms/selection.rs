//! Selects VMs by process or name.

use super::{AS_ROOT, Management, Vm, Vms, name};

/// No VM has the requested name or process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("No VM is called {wanted:?} nor has it as its process; {there}")]
pub struct NoSuchVm {
    wanted: String,
    /// The available VMs, or the reason why there are none.
    there: String,
}

/// The kind of match between a user's text and a VM, the most reliable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    /// The VM ID in Proxmox VE, confirmed by the control group.
    Vmid,
    /// The process ID.
    Process,
    /// The domain ID in libvirt, confirmed by the control group.
    Domain,
    /// The VM ID in Proxmox VE, only from the command line.
    VmidOfCommandLine,
    /// The domain ID in libvirt, only from the command line.
    DomainOfCommandLine,
    /// The name, UUID, or namespace and name.
    Name,
}

impl By {
    fn of(wanted: &str, pid: i32, name: Option<&str>, management: &Management) -> Option<Self> {
        if let Ok(number) = wanted.parse::<u32>() {
            let (vmid, domain) = (management.has_vmid(number), management.is_domain(number));
            let by_number = match () {
                () if vmid && management.vmid_confirmed => Some(Self::Vmid),
                () if u32::try_from(pid) == Ok(number) => Some(Self::Process),
                () if domain && management.libvirt_id_confirmed => Some(Self::Domain),
                () if vmid => Some(Self::VmidOfCommandLine),
                () if domain => Some(Self::DomainOfCommandLine),
                () => None,
            };
            if by_number.is_some() {
                return by_number;
            }
        }
        (name == Some(name::shortened(wanted)) || management.is_called(wanted)).then_some(Self::Name)
    }
}

/// A VM that a user named, for callers that see VMs one after another, even VMs that start later. Once a VM with a more
/// reliable match appears (in the order of [`Vms::select`]), VMs with a less reliable one no longer match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedVm {
    wanted: String,
    best: Option<By>,
}

impl WantedVm {
    /// Takes the user's text, and the VMs that already run.
    #[must_use]
    pub fn new(wanted: &str, running: &Vms) -> Self {
        let mut new = Self { wanted: wanted.to_owned(), best: None };
        for vm in &running.vms {
            new.is(vm.pid, Some(&vm.name), &vm.management);
        }
        new
    }

    /// Tests whether the user means the VM of process `pid` with this name and these names in its manager.
    pub fn is(&mut self, pid: i32, name: Option<&str>, management: &Management) -> bool {
        let Some(by) = By::of(&self.wanted, pid, name, management) else { return false };
        let best = *self.best.get_or_insert(by);
        self.best = Some(best.min(by));
        by <= best
    }
}

impl Vms {
    /// The VMs in `wanted`, each once and in the host's order; all if it is empty.
    ///
    /// A number is the ID of a VM in Proxmox VE, of a process, or of a domain in libvirt, tried in this order. Any other
    /// text, and a number without a match, is a name (several VMs may have it), a UUID, or `namespace/name` of KubeVirt.
    /// IDs that the control group does not confirm are tried after all others: anyone can write them on a command line.
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
        let by = |vm: &Vm| By::of(wanted, vm.pid, Some(&vm.name), &vm.management);
        let Some(best) = self.vms.iter().filter_map(by).min() else { return Vec::new() };
        // An ID belongs to one VM only.
        let most = if best == By::Name { usize::MAX } else { 1 };
        self.vms.iter().filter(|vm| by(vm) == Some(best)).take(most).collect()
    }

    fn there(&self) -> String {
        let named: Vec<String> = self.vms.iter().map(|vm| format!("{} ({})", vm.name, vm.pid)).collect();
        let mut text = match named.as_slice() {
            [] => "no VM was found".to_owned(),
            named => format!("running: {}", named.join(", ")),
        };
        match self.unreadable {
            0 => {}
            1 => text += &format!("; 1 process cannot be inspected: {AS_ROOT}"),
            many => text += &format!("; {many} processes cannot be inspected: {AS_ROOT}"),
        }
        for one in &self.held {
            text += &format!("; process {} ({}) blocks inspection", one.pid, one.command);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vms::Manager;

    /// A VM of Proxmox VE.
    fn of_proxmox(vmid: u32, vmid_confirmed: bool) -> Management {
        Management { manager: Manager::Proxmox, vmid: Some(vmid), vmid_confirmed, ..Management::default() }
    }

    #[test]
    fn a_number_means_the_vm_that_has_it_with_most_certainty_also_among_those_that_come_later() {
        let (plain, claims, has) = (Management::default(), of_proxmox(100, false), of_proxmox(100, true));
        let mut wanted = WantedVm::new("100", &Vms::default());
        assert!(!wanted.is(7, Some("web"), &plain));
        // Anyone can write the ID on a command line: it counts until a VM with a better match appears.
        assert!(wanted.is(8, Some("claims"), &claims));
        assert!(wanted.is(100, Some("process"), &plain));
        assert!(!wanted.is(8, Some("claims"), &claims));
        assert!(wanted.is(9, Some("has"), &has));
        assert!(!wanted.is(100, Some("process"), &plain) && !wanted.is(8, Some("claims"), &claims));
        // The VM is started again.
        assert!(wanted.is(12, Some("has"), &has));

        let of_libvirt = |libvirt_id_confirmed| Management {
            manager: Manager::Libvirt,
            libvirt_id: Some(100),
            libvirt_id_confirmed,
            ..Management::default()
        };
        let (claims_domain, domain) = (of_libvirt(false), of_libvirt(true));
        let mut wanted = WantedVm::new("100", &Vms::default());
        for (pid, management, expected) in
            [(13, &claims_domain, true), (8, &claims, true), (13, &claims_domain, false), (14, &domain, true)]
        {
            assert_eq!(wanted.is(pid, None, management), expected, "{pid}");
        }
        assert!(!wanted.is(8, None, &claims) && wanted.is(100, None, &plain));
        let vm = |pid, management: &Management| Vm { pid, management: management.clone(), ..Vm::default() };
        let vms = Vms { vms: vec![vm(13, &claims_domain), vm(14, &domain)], ..Vms::default() };
        let chosen = vms.select(&["100".to_owned()]).unwrap();
        assert_eq!(chosen.iter().map(|vm| vm.pid).collect::<Vec<_>>(), [14]);

        let mut by_name = WantedVm::new("web", &Vms::default());
        assert!(by_name.is(7, Some("web"), &plain) && by_name.is(8, Some("web"), &claims));
        assert!(!by_name.is(9, Some("other"), &has) && !by_name.is(9, None, &has));
    }
}
