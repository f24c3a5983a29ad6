//! The content of a recording of hot spots.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use exits::ExitReason;
use serde::{Deserialize, Serialize};

/// The source of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// CPU cycles, from the performance counters; samples are taken in an NMI.
    Cycles,
    /// The kernel's `cpu-clock` timer of each CPU. It cannot sample code that runs with interrupts disabled.
    CpuClock,
    /// The exits themselves, in recordings of exits: each one is a sample of the guest's code.
    Exits,
}

/// The activity of a thread when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// A vCPU was in the guest, or entering or leaving it.
    Guest,
    /// A vCPU thread was handling an exit, up to the next entry.
    Exit(ExitReason),
    /// Another thread of the device model, or a vhost worker.
    Monitor,
}

/// The owner of the code.
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

/// A place in the code. Frames without a symbol are distinguished by their addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The owner of the code.
    pub space: Space,
    /// The function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The file or module that it is in.
    pub object: String,
    /// The address, if there is no symbol: relative to the object, or absolute if the object is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
}

/// The most frames that a recording has with addresses: a device model can make a new address for each frame of each
/// sample.
pub const MOST_ADDRESSES: usize = 1 << 18;

/// The index of a frame in [`Recording::frames`].
pub type FrameNumber = u32;

/// Time off the CPU while exits were handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The number of times.
    pub times: u64,
    /// The total time, nanoseconds.
    pub away_ns: u64,
    /// The part of it in which the thread was runnable and waited for a CPU.
    pub waited_ns: u64,
}

impl Away {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.times = self.times.saturating_add(other.times);
        self.away_ns = self.away_ns.saturating_add(other.away_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }

    /// The time in which the thread slept, nanoseconds.
    #[must_use]
    pub const fn asleep_ns(&self) -> u64 {
        self.away_ns.saturating_sub(self.waited_ns)
    }
}

/// A stack, and how often it was sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The VM: its process, or domain.
    pub vm: Option<u32>,
    /// The thread, if known.
    pub thread: Option<u32>,
    /// Its activity.
    pub activity: Activity,
    /// The code, innermost first: frames of the kernel before those of the program.
    pub frames: Vec<FrameNumber>,
    /// The number of samples on a CPU.
    pub samples: u64,
    /// The time that threads spent off the CPU with this stack.
    pub away: Away,
    /// True if the stack was deeper than the recorder's limit, so that outer frames are missing.
    pub cut: bool,
}

/// The exits of one VM with one reason: exact counts and times, not samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// The number.
    pub exits: u64,
    /// The total handling time, nanoseconds.
    pub handling_ns: u64,
    /// The part of it off the CPU.
    pub away: Away,
}

impl Measured {
    /// Handling time on the CPU, nanoseconds.
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
    /// The source of the samples.
    pub event: Event,
    /// The requested samples per second and CPU; 0 if each exit is a sample.
    pub frequency_hz: u64,
    /// The number of CPUs that were sampled.
    pub cpus: u32,
    /// The duration, nanoseconds.
    pub duration_ns: u64,
    /// True if time off the CPU was measured.
    pub away: bool,
    /// Remarks of the recorder.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Data that is missing from a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Samples of all CPUs, whatever ran there.
    pub ticks: u64,
    /// Samples, or times off the CPU, that were dropped for lack of room.
    pub lost: u64,
    /// Exits that were not counted.
    pub lost_exits: u64,
    /// Samples of programs' code, or of system calls of programs, whose user stack could not be read.
    pub without_user_stack: u64,
}

/// A recording of hot spots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Facts about the whole recording.
    pub head: Head,
    /// Names of VMs.
    pub names: BTreeMap<u32, String>,
    /// Exits by VM and reason.
    pub measured: BTreeMap<(Option<u32>, ExitReason), Measured>,
    /// The frames that the stacks refer to. Sums and trees share them: names are long, and any number of reasons and
    /// stacks can have the same.
    pub frames: Vec<Arc<Frame>>,
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// The losses.
    pub losses: Losses,
    numbers: HashMap<Arc<Frame>, FrameNumber>,
}

impl Recording {
    /// An empty recording.
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

    /// The number of a frame, which is added if it is new; without its address if there are [`MOST_ADDRESSES`] frames.
    pub fn number(&mut self, mut frame: Frame) -> FrameNumber {
        if let Some(&number) = self.numbers.get(&frame) {
            return number;
        }
        if self.frames.len() >= MOST_ADDRESSES && frame.address.take().is_some() {
            return self.number(frame);
        }
        let number = FrameNumber::try_from(self.frames.len()).unwrap_or(FrameNumber::MAX);
        let frame = Arc::new(frame);
        self.frames.push(Arc::clone(&frame));
        self.numbers.insert(frame, number);
        number
    }

    /// A frame by its number.
    #[must_use]
    pub fn frame(&self, number: FrameNumber) -> Option<&Arc<Frame>> {
        self.frames.get(number as usize)
    }

    /// The time that a sample stands for, nanoseconds: the requested period, 0 if each exit is a sample. Not
    /// calculated from the number of ticks: an idle CPU may not tick at all (seen with Linux 6.18 in a VM), and idle
    /// time is not recorded.
    #[must_use]
    pub fn ns_a_sample(&self) -> f64 {
        match (self.head.event, self.head.frequency_hz) {
            (Event::Exits, _) | (_, 0) => 0.0,
            (Event::Cycles | Event::CpuClock, hz) => 1e9 / hz as f64,
        }
    }

    /// The part of exit handling that a stack belongs to.
    #[must_use]
    pub fn part(&self, stack: &Stack) -> Part {
        let frames = || stack.frames.iter().filter_map(|&number| self.frame(number));
        match frames().next().map(|frame| frame.space) {
            Some(Space::User) => return Part::Monitor,
            Some(Space::Guest) => return Part::Guest,
            Some(Space::Kernel) | None => {}
        }
        // The ioctl KVM_RUN and its x86 part: virt/kvm/kvm_main.c and arch/x86/kvm/x86.c of Linux.
        let is_kvm = |frame: &Arc<Frame>| {
            matches!(frame.symbol.as_deref(), Some("kvm_vcpu_ioctl" | "kvm_arch_vcpu_ioctl_run"))
                || (frame.space == Space::Kernel && frame.object.starts_with("kvm"))
        };
        if frames().any(is_kvm) { Part::Kvm } else { Part::Kernel }
    }
}

/// The parts of exit handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The system call that runs the vCPU, and all that it calls.
    Kvm,
    /// The rest of the kernel: system calls of the device model, and interrupts.
    Kernel,
    /// The device model's own code.
    Monitor,
    /// The guest's code that was running at the exit.
    Guest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_end_become_one_frame_of_their_object() {
        let event = Event::Cycles;
        let (frequency_hz, cpus, duration_ns) = (997, 1, 0);
        let head =
            Head { kernel: None, event, frequency_hz, cpus, duration_ns, away: false, notes: Vec::new() };
        let mut recording = Recording::new(head);
        let frame = |symbol: Option<&str>, address| Frame {
            space: Space::User,
            symbol: symbol.map(ToOwned::to_owned),
            object: "memory".to_owned(),
            address,
        };
        let most = MOST_ADDRESSES as u64;
        for address in 0..most + 10 {
            recording.number(frame(None, Some(address)));
        }
        assert_eq!(recording.frames.len(), MOST_ADDRESSES + 1);
        assert_eq!(*recording.frames[MOST_ADDRESSES], frame(None, None));
        // Frames that it has keep their addresses, and functions their names.
        assert_eq!(recording.number(frame(None, Some(7))), 7);
        let main = recording.number(frame(Some("main"), None));
        assert_eq!(**recording.frame(main).unwrap(), frame(Some("main"), None));
    }
}
