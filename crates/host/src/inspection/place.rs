//! Who meets on a processor.

/// What a thread does for a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs the vCPU of this number.
    Vcpu(u32),
    /// vhost's worker.
    Vhost,
    /// An I/O thread of QEMU.
    IoThread,
    /// All else of the VMM.
    Emulator,
}

/// A thread on a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The VM's process.
    pub pid: i32,
    /// What the VM is called.
    pub vm: String,
    /// The thread.
    pub tid: i32,
    /// What it does.
    pub role: Role,
    /// Whether it may run nowhere else.
    pub pinned: bool,
}

/// A processor and all that is there: threads that are bound to it or ran on it last, interrupts that go to it alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The processor.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Whether the scheduler leaves it alone (`isolcpus=`).
    pub isolated: bool,
    /// Whether it runs without the timer's tick (`nohz_full=`).
    pub nohz_full: bool,
    /// Threads of VMs.
    pub occupants: Vec<Occupant>,
    /// Interrupts of devices that go to it alone, by number.
    pub interrupts: Vec<u32>,
}
