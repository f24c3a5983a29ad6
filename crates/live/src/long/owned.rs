//! The VMs of long exits.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::warn;

use super::LongOccurrence;
use crate::aside::{Aside, PATIENCE};
use crate::trace::owner::{Owner, Owners};

/// Exits whose VMs are looked up in a separate thread.
#[derive(Debug)]
pub(super) struct Owned {
    /// The owners of processes, in the same order.
    owners: Aside<Vec<Option<i32>>, Vec<Option<Owner>>>,
    /// The exits whose VMs are being looked up.
    waiting: VecDeque<LongOccurrence>,
}

impl Owned {
    /// Starts the thread, for the host below `root`.
    pub(super) fn start(root: &Path) -> io::Result<Self> {
        let mut owners = Owners::new(root);
        Self::with(move |process| owners.of(process, crate::monotonic_ns()))
    }

    fn with(mut owner: impl FnMut(i32) -> Option<Owner> + Send + 'static) -> io::Result<Self> {
        let owners = Aside::start("owners", move |processes: Vec<Option<i32>>, _| {
            processes.into_iter().map(|process| process.and_then(&mut owner)).collect()
        })?;
        Ok(Self { owners, waiting: VecDeque::new() })
    }

    /// The number of exits that were added and not taken yet.
    pub(super) fn under_way(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn add(&mut self, exits: Vec<LongOccurrence>) {
        if exits.is_empty() {
            return;
        }
        let process = |one: &LongOccurrence| one.exit.vcpu.vm.and_then(|vm| i32::try_from(vm).ok());
        self.owners.ask(exits.iter().map(process).collect());
        self.waiting.extend(exits);
    }

    /// The exits whose VMs were looked up, in the order in which they were added.
    pub(super) fn take(&mut self) -> Vec<LongOccurrence> {
        let owners: Vec<_> = self.owners.answers().flatten().collect();
        let exits = self.waiting.drain(..owners.len());
        exits.zip(owners).map(|(exit, owner)| LongOccurrence { owner, ..exit }).collect()
    }

    /// All exits that were added. Waits for their VMs, but not for long.
    pub(super) fn finish(self) -> Vec<LongOccurrence> {
        self.finish_within(PATIENCE)
    }

    fn finish_within(self, patience: Duration) -> Vec<LongOccurrence> {
        let Self { owners, waiting } = self;
        let (owners, are_all) = owners.finish(patience);
        if !are_all {
            warn!("The VMs of the last exits are not known, because processes delayed the search for them");
        }
        let owners = owners.into_iter().flatten().chain(std::iter::repeat(None));
        waiting.into_iter().zip(owners).map(|(exit, owner)| LongOccurrence { owner, ..exit }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{ExitReason, LongExit, Vcpu};
    use std::sync::mpsc::channel;
    use std::time::SystemTime;

    fn of_vm(vm: u32) -> LongOccurrence {
        let exit = LongExit {
            recording: 0,
            time_ns: 0,
            vcpu: Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm) },
            cpu: 0,
            reason: ExitReason::vmx(12),
            accesses: Vec::new(),
            guest_rip: None,
            handling_ns: 5,
            meanwhile: None,
        };
        LongOccurrence { exit, wall: SystemTime::UNIX_EPOCH, owner: None }
    }

    #[test]
    fn exits_are_added_while_vms_are_looked_up_and_all_come_back() {
        let (let_go, held) = channel::<()>();
        let owner = move |pid| {
            let _ = held.recv();
            Some(Owner { pid, vm: None, process: String::new(), management: Box::default() })
        };
        let mut owned = Owned::with(owner).unwrap();
        owned.add(vec![of_vm(7), of_vm(8)]);
        owned.add(Vec::new());
        owned.add(vec![of_vm(9)]);
        assert!(owned.take().is_empty(), "the first look goes on");
        assert_eq!(owned.under_way(), 3);
        let_go.send(()).unwrap();
        let_go.send(()).unwrap();
        let mut owners = Vec::new();
        while owners.len() < 2 {
            owners.extend(owned.take());
            std::thread::yield_now();
        }
        assert_eq!(owned.under_way(), 1);
        drop(let_go);
        owners.extend(owned.finish());
        let pids: Vec<_> = owners.iter().map(|one| one.owner.as_ref().map(|owner| owner.pid)).collect();
        assert_eq!(pids, [Some(7), Some(8), Some(9)]);
    }

    #[test]
    fn all_exits_come_back_although_looking_for_a_vm_is_blocked() {
        let (let_go, held) = channel::<()>();
        let mut owned = Owned::with(move |_| {
            let _ = held.recv();
            None
        })
        .unwrap();
        owned.add(vec![of_vm(7), of_vm(8)]);
        let exits = owned.finish_within(Duration::from_millis(1));
        assert_eq!(exits, [of_vm(7), of_vm(8)]);
        drop(let_go);
    }
}
