//! The VM of a process.

use host::vms::Management;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A process with a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The process.
    pub pid: i32,
    /// The VM's name from its command line.
    pub vm: Option<String>,
    /// The process's own name (`/proc/PID/comm`).
    pub process: String,
    /// The VM's names in the program that manages it.
    pub management: Box<Management>,
}

/// The VM's process that is or owns process `pid` of the host below `root`; `None` for other kernel threads, and for
/// processes that have ended or are ending.
fn owner(root: &Path, pid: i32) -> Option<Owner> {
    let process = |pid: i32| std::fs::read(root.join(format!("proc/{pid}/comm"))).ok().map(text);
    let own = process(pid)?;
    let (pid, own, (vm, management)) = match host::vms::names_of(root, pid) {
        Some(names) => (pid, own, names),
        None => {
            let owner = host::vms::owner_of_worker(root, pid, &own)?;
            (owner, process(owner)?, host::vms::names_of(root, owner)?)
        }
    };
    let management = Box::new(management);
    Some(Owner { pid, vm, process: own, management })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

/// The time for which an answer is used: a PID may be reused, and a process may change its name after its first
/// event.
const HOLDS_NS: u64 = 1_000_000_000;
/// More processes than there are VMs at the same time; beyond that, the cache is emptied.
const MOST: usize = 4096;

/// A cache of owners, which also knows processes that have just ended.
#[derive(Debug)]
pub(crate) struct Owners {
    root: PathBuf,
    known: HashMap<i32, (u64, Option<Owner>)>,
}

impl Owners {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: HashMap::new() }
    }

    /// The VM's process that `pid` is or works for, at time `now_ns`.
    pub(crate) fn of(&mut self, pid: i32, now_ns: u64) -> Option<Owner> {
        if pid <= 0 {
            return None;
        }
        if self.known.len() > MOST {
            self.known.clear();
        }
        let former = self.known.get(&pid);
        if let Some((_, owner)) = former.filter(|(asked_ns, _)| now_ns.saturating_sub(*asked_ns) < HOLDS_NS) {
            return owner.clone();
        }
        // The last events of a VM arrive after its process has ended.
        let owner = owner(&self.root, pid).or_else(|| former.and_then(|(_, owner)| owner.clone()));
        self.known.insert(pid, (now_ns, owner.clone()));
        owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::vms::Manager;
    use std::fs::{self, File};

    /// The flag of kernel threads (include/linux/sched.h).
    const PF_KTHREAD: u32 = 0x0020_0000;

    fn process(root: &Path, pid: i32, comm: &str, command_line: &str) {
        let home = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(home.join("cmdline"), command_line.replace(' ', "\0")).unwrap();
    }

    /// Writes the flags of a child of PID 2, which is the parent of all kernel threads, but any process in a PID namespace of
    /// its own.
    fn child_of_2(root: &Path, pid: i32, flags: u32) {
        let stat = format!("{pid} (vhost-7) S 2 0 0 0 -1 {flags} 0 0\n");
        fs::write(root.join(format!("proc/{pid}/stat")), stat).unwrap();
    }

    #[test]
    fn owners_are_remembered_past_their_end_and_asked_again() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "qemu-system-x86", "qemu -name web");
        process(root.path(), 8, "vhost-7", "");
        child_of_2(root.path(), 8, PF_KTHREAD);
        process(root.path(), 9, "kworker/1:1", "");
        let mut owners = Owners::new(root.path());
        let web = Owner {
            pid: 7,
            vm: Some("web".to_owned()),
            process: "qemu-system-x86".to_owned(),
            management: Box::new(Management { manager: Manager::Qemu, ..Management::default() }),
        };
        assert_eq!(owners.of(7, 0), Some(web.clone()));
        assert_eq!(owners.of(8, 0), Some(web.clone()));
        assert_eq!([9, 10, 0, -1].map(|pid| owners.of(pid, 0)), [None, None, None, None]);
        // A process that names itself like another one's worker.
        process(root.path(), 11, "vhost-7", "qemu -name other");
        let other = owners.of(11, 0).unwrap();
        assert_eq!((other.pid, other.vm.as_deref()), (11, Some("other")));
        // A process whose command line cannot be read, and which is not a kernel thread.
        process(root.path(), 12, "vhost-7", "");
        assert_eq!(owners.of(12, 0), None);
        child_of_2(root.path(), 12, 0x40_0000);
        assert_eq!(owners.of(12, HOLDS_NS), None);

        fs::remove_dir_all(root.path().join("proc/7")).unwrap();
        assert_eq!(owners.of(7, 2 * HOLDS_NS), Some(web));
        process(root.path(), 7, "other", "other");
        assert_eq!(owners.of(7, 2 * HOLDS_NS + 1).unwrap().process, "qemu-system-x86");
        assert_eq!(owners.of(7, 4 * HOLDS_NS).unwrap().process, "other");
    }

    /// A process loses its command line before it disappears from `/proc`.
    #[test]
    fn a_process_that_ends_has_its_name_or_no_owner() {
        use std::process::{Command, Stdio};
        let vm = |pid| owner(Path::new("/"), pid).map(|owner| owner.vm);
        let web = || Some("web".to_owned());
        for _ in 0..100 {
            let mut vmm = Command::new("sh");
            vmm.args(["-c", "read end", "lkvm", "--name", "web"]).stdin(Stdio::piped());
            let mut vmm = vmm.spawn().unwrap();
            let pid = vmm.id().cast_signed();
            // Until execve(2) it is this program.
            while vm(pid) != Some(web()) {}
            drop(vmm.stdin.take());
            while let Some(name) = vm(pid) {
                assert_eq!(name, web());
            }
            vmm.wait().unwrap();
        }
    }

    #[test]
    fn a_command_line_that_is_a_giant_is_not_read_to_its_end() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "qemu-system-x86", "qemu -name web -x ");
        let arguments = File::options().write(true).open(root.path().join("proc/7/cmdline")).unwrap();
        arguments.set_len(1 << 42).unwrap();
        assert_eq!(Owners::new(root.path()).of(7, 0).unwrap().vm.as_deref(), Some("web"));
    }
}
