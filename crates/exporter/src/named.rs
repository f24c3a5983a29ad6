//! VMs with the names under which they were first seen.

use std::collections::BTreeMap;

use crate::totals::{VMS, VmIdentity};

/// Further names of a VM: label and value.
pub type Names = Vec<(&'static str, String)>;

/// The running VMs, each with the names under which it was first seen.
///
/// A VM's names come from its process, which can change them at any time. Without this, a process that changes its name
/// before each scrape would create a new series in Prometheus each time.
#[derive(Debug, Default)]
pub struct Named {
    vms: BTreeMap<u32, (VmIdentity, Names)>,
    others: usize,
}

impl Named {
    /// Updates the running VMs and returns them by process. Forgets VMs that are not in `running`, unless `may_run` says
    /// that their process could not be read: the counters of a forgotten VM would restart at 0 when it is seen again.
    /// Further names may appear later than the VM; the first ones seen are kept. The number of VMs is limited; known VMs
    /// take precedence over new ones.
    pub fn keep(
        &mut self,
        running: impl IntoIterator<Item = (VmIdentity, Names)>,
        may_run: impl Fn(u32) -> bool,
    ) -> &BTreeMap<u32, (VmIdentity, Names)> {
        let mut before = std::mem::take(&mut self.vms);
        let mut new = Vec::new();
        for (now, names) in running {
            let first = before.remove(&now.process).filter(|(first, _)| first.start_ticks == now.start_ticks);
            match first {
                Some((first, had)) => {
                    self.vms.insert(first.process, (first, if had.is_empty() { names } else { had }));
                }
                None => new.push((now.process, (now, names))),
            }
        }
        self.vms.extend(before.into_iter().filter(|(process, _)| may_run(*process)));
        let room = VMS.saturating_sub(self.vms.len());
        self.others = new.len().saturating_sub(room);
        self.vms.extend(new.into_iter().take(room));
        &self.vms
    }

    /// The number of running VMs above the limit.
    #[must_use]
    pub fn others(&self) -> usize {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_changes_its_names_keeps_the_first_ones() {
        let mut named = Named::default();
        let uuid = |uuid: &str| vec![("uuid", uuid.to_owned())];
        let mut said = |name: &str, start, names: Names| {
            let all = named.keep([(VmIdentity::new(name, 7, start), names)], |_| false);
            let (identity, names) = &all[&7];
            (identity.name.clone(), names.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>())
        };
        let of = |name: &str, names: &[&str]| {
            (name.to_owned(), names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(said("web", 1, Vec::new()), of("web", &[]));
        assert_eq!(said("web", 1, uuid("a")), of("web", &["a"]), "names that came later");
        assert_eq!(said("other", 1, uuid("b")), of("web", &["a"]));
        assert_eq!(said("other", 1, Vec::new()), of("web", &["a"]));
        assert_eq!(said("other", 2, uuid("b")), of("other", &["b"]), "another process");
        assert!(named.keep([], |_| false).is_empty());
        assert_eq!(
            named.keep([(VmIdentity::new("new", 7, 2), Vec::new())], |_| false)[&7].0.name,
            "new",
            "it was forgotten"
        );
    }

    #[test]
    fn vms_beyond_the_bound_have_no_place_until_another_ends() {
        let mut named = Named::default();
        let vms = |from: u32, to: u32| (from..to).map(|vm| (VmIdentity::new("vm", vm, 1), Vec::new()));
        named.keep(vms(1000, 2000), |_| false);
        let kept: Vec<u32> = named.keep(vms(0, 2000), |_| false).keys().copied().collect();
        assert_eq!(kept, (0..24).chain(1000..2000).collect::<Vec<_>>());
        assert_eq!(named.others(), 976);
        assert_eq!(named.keep(vms(0, 1500), |_| false).len(), VMS);
        assert_eq!(named.others(), 476);
    }

    #[test]
    fn a_vm_that_could_not_be_looked_at_is_not_forgotten() {
        let mut named = Named::default();
        let vm = |name: &str, process, start| (VmIdentity::new(name, process, start), Vec::new());
        named.keep([vm("web", 7, 1), vm("mail", 8, 1)], |_| false);
        let kept: Vec<u32> = named.keep([], |process| process == 7).keys().copied().collect();
        assert_eq!(kept, [7]);
        // If the process is seen, its identity there counts: a new start time is a new VM.
        assert_eq!(named.keep([vm("new", 7, 1)], |_| true)[&7].0.name, "web");
        assert_eq!(named.keep([vm("new", 7, 2)], |_| true)[&7].0.name, "new");
    }
}
