//! The system calls for perf events, each in a safe function.

use perf_event_open_sys::bindings as sys;
use perf_event_open_sys::{ioctls, perf_event_open};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The target of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// One thread on any CPU.
    Thread(i32),
    /// One CPU with any thread; needs more privileges.
    Cpu(u32),
}

impl Watch {
    /// The arguments `pid` and `cpu` of `perf_event_open(2)`; -1 means any.
    fn pid_and_cpu(self) -> (i32, i32) {
        match self {
            Self::Thread(thread) => (thread, -1),
            Self::Cpu(cpu) => (-1, i32::try_from(cpu).unwrap_or(i32::MAX)),
        }
    }

    /// The next step after an event was refused.
    pub(crate) fn advice(self, error: &io::Error) -> String {
        match (error.raw_os_error(), self) {
            (Some(libc::EACCES | libc::EPERM), _) => {
                let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
                let paranoid = paranoid.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
                match self {
                    Self::Thread(_) => format!(
                        "run as root or with CAP_PERFMON, and with leave to trace the thread (CAP_SYS_PTRACE for other \
                         users' threads); kernel.perf_event_paranoid is {paranoid}, and raw tracepoints without the \
                         capability need -1; kernel lockdown (confidentiality) forbids it to all"
                    ),
                    Self::Cpu(_) => format!(
                        "run as root or with CAP_PERFMON: events of whole CPUs need it (kernel.perf_event_paranoid is \
                         {paranoid}, and without the capability it must be -1); kernel lockdown (confidentiality) \
                         forbids them to all"
                    ),
                }
            }
            (Some(libc::ESRCH), Self::Thread(_)) => "the thread has ended; list the threads again".to_owned(),
            (Some(libc::EMFILE), _) => {
                let each = if matches!(self, Self::Thread(_)) { "thread" } else { "CPU" };
                format!("raise the limit of open files (`ulimit -n`): one for each event and {each}")
            }
            (Some(libc::ENOENT | libc::ENOSYS), _) => "the kernel lacks CONFIG_PERF_EVENTS".to_owned(),
            _ => "see the cause".to_owned(),
        }
    }
}

/// An open event of one thread or CPU, closed when dropped.
#[derive(Debug)]
pub(crate) struct Event {
    file: File,
    tells_lost: bool,
}

/// The counts of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) count: u64,
    /// Occurrences whose records were dropped; since Linux 6.0.
    pub(crate) lost: Option<u64>,
}

impl Event {
    /// Opens tracepoint `id` for one thread or CPU, sampling every occurrence. Without a `leader` it is disabled at
    /// first.
    ///
    /// With a leader, it is enabled whenever the leader is: the kernel schedules a group on a CPU as a whole, with
    /// interrupts disabled, so no event of it starts or stops before another.
    pub(crate) fn open(id: u16, watch: Watch, leader: Option<&Self>) -> io::Result<Self> {
        match Self::open_with(id, watch, leader, sys::PERF_FORMAT_LOST.into()) {
            Ok(file) => Ok(Self { file, tells_lost: true }),
            // Kernels before 6.0 return EINVAL for PERF_FORMAT_LOST.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Ok(Self { file: Self::open_with(id, watch, leader, 0)?, tells_lost: false })
            }
            Err(error) => Err(error),
        }
    }

    fn open_with(id: u16, watch: Watch, leader: Option<&Self>, read_format: u64) -> io::Result<File> {
        let mut attr = sys::perf_event_attr::default();
        attr.type_ = sys::PERF_TYPE_TRACEPOINT;
        attr.size = size_of::<sys::perf_event_attr>() as u32;
        attr.config = id.into();
        attr.sample_type = (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_RAW).into();
        attr.read_format = read_format;
        // perf's default is the scheduler's clock, which jumps between CPUs if the TSC is unstable, and handling
        // times would be wrong.
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.sample_period = 1;
        attr.set_use_clockid(1);
        attr.set_disabled(u64::from(leader.is_none()));
        let group = leader.map_or(-1, |leader| leader.file.as_raw_fd());
        let (pid, cpu) = watch.pid_and_cpu();
        // SAFETY: attr is a complete perf_event_attr with its own size and outlives the call; the events that it
        // requests only write to buffers that this crate maps.
        let fd = unsafe { perf_event_open(&mut attr, pid, cpu, group, sys::PERF_FLAG_FD_CLOEXEC.into()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor that nothing else owns.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(File::from(owned))
    }

    /// Enables this event, and with it the group that it leads.
    pub(crate) fn enable_group(&self) -> io::Result<()> {
        // Without PERF_IOC_FLAG_GROUP, which would enable the events one after the other.
        // SAFETY: the descriptor is an open perf event and no flag is given.
        check(unsafe { ioctls::ENABLE(self.file.as_raw_fd(), 0) })
    }

    /// Disables this event, and with it the group that it leads.
    pub(crate) fn disable_group(&self) -> io::Result<()> {
        // SAFETY: as for starting.
        check(unsafe { ioctls::DISABLE(self.file.as_raw_fd(), 0) })
    }

    /// Samples and counts only occurrences that match `filter`, in the syntax of the kernel's
    /// `Documentation/trace/events.rst`, "Event filtering".
    pub(crate) fn set_filter(&self, filter: &CStr) -> io::Result<()> {
        // SAFETY: the descriptor is an open perf event, and the kernel only reads the text, up to its zero.
        check(unsafe { ioctls::SET_FILTER(self.file.as_raw_fd(), filter.as_ptr().cast_mut()) })
    }

    /// Redirects this event's records to the buffer of `other`, which has the same thread or CPU.
    pub(crate) fn write_to(&self, other: &Self) -> io::Result<()> {
        // SAFETY: both descriptors are open perf events.
        check(unsafe { ioctls::SET_OUTPUT(self.file.as_raw_fd(), other.file.as_raw_fd()) })
    }

    /// The occurrences since the event was opened, including those whose samples were dropped.
    pub(crate) fn total(&self) -> io::Result<Total> {
        let mut words = [0; 16];
        let wanted = if self.tells_lost { 16 } else { 8 };
        (&self.file).read_exact(&mut words[..wanted])?;
        let [count, lost] =
            [0, 8].map(|at| words[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
        Ok(Total { count, lost: self.tells_lost.then_some(lost) })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
