//! Running VMs, and the placement of their threads.

use crate::root::kind_of;
use crate::thread_id::stat_field;
use crate::vms::{HeldProcess, LikelyVm, NamedThread, Vm, Vmm, Vms};
use crate::{CpuSet, Fact, Root};
use std::collections::{BTreeMap, BTreeSet};

/// The VMs of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Running {
    /// The VMs, by process.
    pub vms: Fact<Vec<RunningVm>>,
    /// Processes that cannot be examined; each may be another VM.
    pub unreadable: u32,
    /// The unreadable processes that look like VMs.
    pub likely: Vec<LikelyVm>,
    /// Processes that block readers of their files; each may be another VM.
    pub held: Vec<HeldProcess>,
    /// libvirt's domains that are defined but have no process here.
    pub defined: Vec<LibvirtDomain>,
}

/// A running VM. `vm.arguments` is its definition; `vm.debugfs` has the directories' paths on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningVm {
    /// Facts from the process.
    pub vm: Vm,
    /// libvirt's domain, if libvirt started it.
    pub libvirt: Option<LibvirtDomain>,
    /// Its threads and vhost's workers, by number.
    pub threads: Vec<ThreadPlace>,
    /// The PCI addresses, or other names, of the devices assigned to it.
    pub assigned: Vec<String>,
}

/// The role of a thread for a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs the vCPU with this number.
    Vcpu(u32),
    /// A vhost worker.
    Vhost,
    /// An I/O thread of QEMU.
    IoThread,
    /// Another thread of the VMM.
    Emulator,
}

/// A domain of libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibvirtDomain {
    /// Its name.
    pub name: String,
    /// Its definition: the text of `/etc/libvirt/qemu/NAME.xml`.
    pub definition: Fact<String>,
    /// Its running state: the text of `/run/libvirt/qemu/NAME.xml`, a `<domstatus>` around a `<domain>`.
    pub status: Fact<String>,
}

/// A thread with its placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlace {
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Its role for the VM.
    pub role: Role,
    /// The processors it may use (`Cpus_allowed_list`).
    pub allowed: Option<CpuSet>,
    /// The processor on which it ran last (proc_pid_stat(5), field 39).
    pub last: Option<u32>,
}

/// libvirt's directories of definitions, and of the states of running domains.
const DEFINED: &str = "/etc/libvirt/qemu";
const STATUS: &str = "/run/libvirt/qemu";
/// The start of the directories that libvirt makes for running domains. Those of a user's own libvirt (qemu:///session) are
/// in their home.
const OF_RUNNING: &str = "/var/lib/libvirt/qemu/domain-";

impl Running {
    pub(super) fn read(root: &Root) -> Self {
        if root.is_sosreport() {
            let why = "a sosreport lacks the files of processes; judge libvirt's definitions in its etc/libvirt/qemu with \
                       `exitless vm lint FILE`, or collect the host with `exitless collect-script`";
            let defined = domains(root).into_values().map(|(_, domain)| domain).collect();
            return Self { vms: Fact::absent(crate::AbsenceKind::NotKept, why), defined, ..Self::default() };
        }
        let found = match Vms::discover_in(root) {
            Ok(found) => found,
            Err(error) => {
                let kind = match &error {
                    crate::Error::Read { source, .. } => kind_of(source),
                    _ => crate::AbsenceKind::Unreadable,
                };
                return Self { vms: Fact::absent(kind, error.to_string()), ..Self::default() };
            }
        };
        let mut domains = domains(root);
        let running: BTreeSet<i32> = found.vms.iter().map(|vm| vm.pid).collect();
        let vms = found.vms.into_iter().map(|vm| RunningVm {
            libvirt: libvirt(&vm, &mut domains, &running),
            threads: threads(root, &vm),
            assigned: super::posting::devices_in(root, &vm),
            vm,
        });
        let vms = vms.collect();
        Self {
            vms: Fact { value: Ok(vms), evidence: Vec::new() },
            unreadable: found.unreadable,
            likely: found.likely,
            held: found.held,
            defined: domains.into_values().map(|(_, domain)| domain).collect(),
        }
    }
}

/// Domains by name, with their process if libvirt recorded one.
type Domains = BTreeMap<String, (Option<i32>, LibvirtDomain)>;

fn domains(root: &Root) -> Domains {
    let names_in = |folder: &str| {
        let files = root.entries(folder, |name| name.ends_with(".xml")).unwrap_or_default();
        files.into_iter().filter_map(|file| file.strip_suffix(".xml").map(str::to_owned)).collect::<Vec<_>>()
    };
    let mut names = names_in(DEFINED);
    names.extend(names_in(STATUS));
    names.sort_unstable();
    names.dedup();
    let read = |name: String| {
        let file = |folder: &str| {
            let path = format!("{folder}/{name}.xml");
            // The text is its own evidence: do not keep it twice.
            Fact { evidence: vec![crate::Evidence::new(&path, "")], ..root.line(&path, "a domain in XML") }
        };
        let pid =
            root.text(&format!("{STATUS}/{name}.pid"), "a process").ok().and_then(|text| text.parse().ok());
        let domain = LibvirtDomain { definition: file(DEFINED), status: file(STATUS), name: name.clone() };
        (name, (pid, domain))
    };
    names.into_iter().map(read).collect()
}

/// The domain of a VM, by the process ID that libvirt recorded, or else by the name that libvirt gave to QEMU. Anybody can
/// give a QEMU the name of a domain, so one that libvirt recorded for another VM is not taken, nor one that does not run by
/// all that libvirt left behind: the other definition of that name may be of another manager.
fn libvirt(vm: &Vm, domains: &mut Domains, running: &BTreeSet<i32>) -> Option<LibvirtDomain> {
    let noted = domains.iter().find(|(_, (pid, _))| *pid == Some(vm.pid)).map(|(name, _)| name.clone());
    let is_of_libvirt =
        || vm.management.libvirt_id_confirmed || vm.arguments.iter().any(|one| one.contains(OF_RUNNING));
    let is_free = |(pid, domain): &(Option<i32>, LibvirtDomain)| {
        pid.is_none_or(|pid| !running.contains(&pid)) && (domain.status.get().is_some() || is_of_libvirt())
    };
    let named =
        || (vm.vmm == Vmm::Qemu && domains.get(&vm.name).is_some_and(is_free)).then(|| vm.name.clone());
    let name = noted.or_else(named)?;
    domains.remove(&name).map(|(_, domain)| domain)
}

/// The largest number of a VM's threads to examine.
const MOST_THREADS: usize = 16_384;

fn threads(root: &Root, vm: &Vm) -> Vec<ThreadPlace> {
    let vcpus: BTreeMap<i32, u32> =
        vm.vcpus.iter().filter_map(|vcpu| Some((vcpu.thread?, vcpu.number))).collect();
    let named = |threads: &[NamedThread], tid| threads.iter().any(|one| one.tid == tid);
    let role = |tid: i32| match vcpus.get(&tid) {
        Some(&number) => Role::Vcpu(number),
        None if named(&vm.vhost, tid) => Role::Vhost,
        None if named(&vm.iothreads, tid) => Role::IoThread,
        None => Role::Emulator,
    };
    let own = vm.threads.iter().map(|&tid| (tid, format!("/proc/{}/task/{tid}", vm.pid)));
    let workers = vm.vhost.iter().filter(|one| one.kernel);
    let kernels = workers.map(|one| (one.tid, format!("/proc/{}", one.tid)));
    let mut found: Vec<ThreadPlace> = own
        .chain(kernels)
        .take(MOST_THREADS)
        .map(|(tid, home)| {
            let text =
                |file: &str| root.text(&format!("{home}/{file}"), "a thread's state").unwrap_or_default();
            let status = text("status");
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            ThreadPlace {
                tid,
                name: text("comm"),
                role: role(tid),
                allowed: allowed.and_then(CpuSet::parse),
                last: stat_field(&text("stat"), 39),
            }
        })
        .collect();
    found.sort_by_key(|one| one.tid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_that_of_its_process_whatever_else_has_its_name() {
        let qemu = |pid: i32, name: &str| {
            let home = format!("/proc/{pid}");
            format!(
                "== {home}/comm\nqemu-kvm\n== {home}/exe -> /usr/bin/qemu-kvm\n== {home}/stat\n{pid} (qemu-kvm) S{}\n\
                 == {home}/cmdline arguments\nqemu-kvm\n-name\n{name}\n== {home}/fd/9 -> anon_inode:kvm-vm\n",
                " 1".repeat(49)
            )
        };
        let domain = |name: &str| format!("== /run/libvirt/qemu/{name}.xml\n<domstatus/>\n");
        let text =
            [qemu(4000, "web"), qemu(5000, "web"), qemu(6000, "db"), domain("web"), domain("db")].concat();
        let found = Running::read(&crate::fake::root(&format!("{text}== /run/libvirt/qemu/web.pid\n5000\n")));
        let vms = found.vms.get().unwrap().iter();
        let told: Vec<_> =
            vms.map(|one| (one.vm.pid, one.libvirt.as_ref().map(|domain| domain.name.as_str()))).collect();
        assert_eq!(told, [(4000, None), (5000, Some("web")), (6000, Some("db"))]);
        assert!(found.defined.is_empty());
    }

    #[test]
    fn a_domain_that_does_not_run_is_not_that_of_a_vm_with_its_name() {
        let own = "path=/var/lib/libvirt/qemu/domain-3-web/monitor.sock,id=monitor";
        let of_user = "path=/home/a/.config/libvirt/qemu/lib/domain-3-web/monitor.sock,id=monitor";
        for (chardev, domain) in [(own, Some("web")), (of_user, None), ("null,id=a", None)] {
            let text = format!(
                "== /proc/4000/comm\nqemu-kvm\n== /proc/4000/exe -> /usr/bin/qemu-kvm\n== /proc/4000/stat\n\
                 4000 (qemu-kvm) S{}\n== /proc/4000/cmdline arguments\nqemu-kvm\n-name\nweb\n-chardev\n{chardev}\n\
                 == /proc/4000/fd/9 -> anon_inode:kvm-vm\n== /etc/libvirt/qemu/web.xml\n<domain type='kvm'/>\n",
                " 1".repeat(49)
            );
            let found = Running::read(&crate::fake::root(&text));
            let told = found.vms.get().unwrap()[0].libvirt.as_ref().map(|domain| domain.name.as_str());
            assert_eq!(told, domain, "{chardev}");
            let defined: Vec<_> = found.defined.iter().map(|domain| domain.name.as_str()).collect();
            assert_eq!(defined, if domain.is_some() { vec![] } else { vec!["web"] }, "{chardev}");
        }
    }
}
