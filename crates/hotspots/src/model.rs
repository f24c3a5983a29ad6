//! The content of a recording of hot spots.

use std::collections::{BTreeMap, HashMap};

use exits::ExitReason;
use serde::{Deserialize, Serialize};

/// The program that made the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Cycles of the processor, by its performance counters and an NMI.
    Cycles,
    /// The kernel's clock of each CPU, by a timer: it meets no code that runs with interrupts off.
    CpuClock,
    /// Each exit is a sample of the guest's code: recordings of exits have no other.
    Exits,
}

/// The activity of a thread when a sample met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// A vCPU was in the guest, or on its way in or out.
    Guest,
    /// A vCPU's exit was being handled, until its next entry.
    Exit(ExitReason),
    /// Another thread of the device model, or a worker of vhost's.
    Monitor,
}

/// Whose code it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// The host's kernel and its modules.
    Kernel,
    /// A program of the host.
    User,
    /// The guest.
    Guest,
}

/// A place in code. Without a symbol it is told apart by its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Whose code.
    pub space: Space,
    /// The function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The file or module that it is in.
    pub object: String,
    /// Without a symbol: where in the object, or in memory where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
}

/// A frame's place in [`Recording::frames`].
pub type FrameNumber = u32;

/// Time without a processor within exits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The number of times.
    pub times: u64,
    /// The time in all, nanoseconds.
    pub away_ns: u64,
    /// The part of them in which the thread could have run, and waited for a processor.
    pub waited_ns: u64,
}

impl Away {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.times = self.times.saturating_add(other.times);
        self.away_ns = self.away_ns.saturating_add(other.away_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }

    /// When the thread could not have run, nanoseconds.
    #[must_use]
    pub const fn asleep_ns(&self) -> u64 {
        self.away_ns.saturating_sub(self.waited_ns)
    }
}

/// The number of times that one stack was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The VM: its process, or domain.
    pub vm: Option<u32>,
    /// The thread, where it is known.
    pub thread: Option<u32>,
    /// Its activity.
    pub activity: Activity,
    /// The code, innermost first: the kernel's frames before those of the program that called it.
    pub frames: Vec<FrameNumber>,
    /// Samples on a processor.
    pub samples: u64,
    /// The time for which threads were without a processor here.
    pub away: Away,
    /// Outer frames are missing, for the stack was deeper than what is kept.
    pub cut: bool,
}

/// The exits of one VM by one reason, counted and timed one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// The number.
    pub exits: u64,
    /// The time for which they were handled in all, nanoseconds.
    pub handling_ns: u64,
    /// The part of it without a processor.
    pub away: Away,
}

impl Measured {
    /// Handling time on a processor, nanoseconds.
    #[must_use]
    pub const fn on_cpu_ns(&self) -> u64 {
        self.handling_ns.saturating_sub(self.away.away_ns)
    }

    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.exits = self.exits.saturating_add(other.exits);
        self.handling_ns = self.handling_ns.saturating_add(other.handling_ns);
        self.away.add(other.away);
    }
}

/// The facts that hold for the whole recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The host's kernel, or hypervisor.
    pub kernel: Option<String>,
    /// The program that made the samples.
    pub event: Event,
    /// Samples a second and CPU that were asked for; 0 where each exit is one.
    pub frequency_hz: u64,
    /// The number of CPUs that were sampled.
    pub cpus: u32,
    /// The time, nanoseconds.
    pub duration_ns: u64,
    /// True if time without a processor was measured.
    pub away: bool,
    /// The recorder's remarks.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The missing parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Samples of all CPUs, whatever they met.
    pub ticks: u64,
    /// Samples, or absences, for which there was no room.
    pub lost: u64,
    /// Exits that were not counted.
    pub lost_exits: u64,
    /// Samples on code of programs, or called by it, whose stack in the program could not be read.
    pub without_user_stack: u64,
}

/// Hot spots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The facts that hold for all of it.
    pub head: Head,
    /// Names of VMs.
    pub names: BTreeMap<u32, String>,
    /// Exits by VM and reason.
    pub measured: BTreeMap<(Option<u32>, ExitReason), Measured>,
    /// The code that stacks name.
    pub frames: Vec<Frame>,
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// The losses.
    pub losses: Losses,
    numbers: HashMap<Frame, FrameNumber>,
}

impl Recording {
    /// An empty one.
    #[must_use]
    pub fn new(head: Head) -> Self {
        Self {
            head,
            names: BTreeMap::new(),
            measured: BTreeMap::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            losses: Losses::default(),
            numbers: HashMap::new(),
        }
    }

    /// The number of a frame, which is new or was there.
    pub fn number(&mut self, frame: Frame) -> FrameNumber {
        if let Some(&number) = self.numbers.get(&frame) {
            return number;
        }
        let number = FrameNumber::try_from(self.frames.len()).unwrap_or(FrameNumber::MAX);
        self.frames.push(frame.clone());
        self.numbers.insert(frame, number);
        number
    }

    /// A frame by its number.
    #[must_use]
    pub fn frame(&self, number: FrameNumber) -> Option<&Frame> {
        self.frames.get(number as usize)
    }

    /// The time that a sample stands for, nanoseconds: the period that was asked for. Not by how often the CPUs' clocks
    /// ticked: an idle CPU may not tick at all (seen with Linux 6.18 in a VM), and how long a CPU was idle is not recorded.
    /// 0 where each exit is a sample.
    #[must_use]
    pub fn ns_a_sample(&self) -> f64 {
        match (self.head.event, self.head.frequency_hz) {
            (Event::Exits, _) | (_, 0) => 0.0,
            (Event::Cycles | Event::CpuClock, hz) => 1e9 / hz as f64,
        }
    }

    /// In which part of handling an exit a stack is.
    #[must_use]
    pub fn part(&self, stack: &Stack) -> Part {
        let frames = || stack.frames.iter().filter_map(|&number| self.frame(number));
        match frames().next().map(|frame| frame.space) {
            Some(Space::User) => return Part::Monitor,
            Some(Space::Guest) => return Part::Guest,
            Some(Space::Kernel) | None => {}
        }
        // The ioctl KVM_RUN, and its part that is x86's: virt/kvm/kvm_main.c and arch/x86/kvm/x86.c of Linux.
        let is_kvm = |frame: &Frame| {
            matches!(frame.symbol.as_deref(), Some("kvm_vcpu_ioctl" | "kvm_arch_vcpu_ioctl_run"))
                || (frame.space == Space::Kernel && frame.object.starts_with("kvm"))
        };
        if frames().any(is_kvm) { Part::Kvm } else { Part::Kernel }
    }
}

/// The parts of handling an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Below the system call that runs the vCPU.
    Kvm,
    /// The kernel outside of it: system calls of the device model, and interrupts.
    Kernel,
    /// The device model's own code.
    Monitor,
    /// The guest's code, which the exit left.
    Guest,
}
