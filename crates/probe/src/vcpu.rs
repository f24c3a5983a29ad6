//! One vCPU and the thread that runs it. The thread is in KVM_RUN only while there is a command, so idle
//! vCPUs use no CPU time, even 64 of them on a host with two CPUs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use kvm_ioctls::{VcpuExit, VcpuFd};
use vmm_sys_util::signal::Killable;

use crate::error::Error;
use crate::layout;
use crate::statistics::StatisticsFile;
use crate::threads;

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// The routine returned.
    Done,
    /// The guest reported an unexpected vector; the vCPU's block has the details.
    Fault,
    /// The vCPU was kicked out of KVM_RUN.
    Kicked {
        /// Its instruction pointer.
        rip: u64,
    },
    /// KVM_RUN ended in another way.
    Unexpected {
        /// The exit reason, for people.
        reason: String,
        /// The vCPU's instruction pointer.
        rip: u64,
    },
}

/// The message of a vCPU's thread when its command has ended.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) vcpu: u16,
    pub(crate) outcome: CommandEnd,
}

/// The handle of a vCPU and its thread.
#[derive(Debug)]
pub(crate) struct Vcpu {
    index: u16,
    tid: i32,
    cpu: Option<usize>,
    statistics: Option<StatisticsFile>,
    /// `None` after the thread was told to end.
    enter: Option<Sender<()>>,
    kicked: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Vcpu {
    /// Starts the thread, pinned to `cpu` if there is one.
    pub(crate) fn start(
        index: u16,
        fd: VcpuFd,
        cpu: Option<usize>,
        statistics: Option<StatisticsFile>,
        reports: Sender<Report>,
    ) -> Result<Self, Error> {
        let (enter, entries) = channel();
        let (hello, greeting) = channel();
        let kicked = Arc::new(AtomicBool::new(false));
        let runner = Runner { index, fd, kicked: Arc::clone(&kicked) };
        let thread = std::thread::Builder::new()
            .name(format!("vcpu {index}"))
            .spawn(move || {
                let ready = threads::accept_kicks().and_then(|()| cpu.map_or(Ok(()), threads::pin_to));
                // Cannot fail: the receiver waits for this message first.
                let _ = hello.send((threads::id(), ready));
                runner.serve(&entries, &reports);
            })
            .map_err(Error::host("start a thread for a vCPU"))?;
        let (tid, ready) = greeting.recv().map_err(|_| Error::ThreadGone { vcpu: index })?;
        ready.map_err(Error::host("pin the thread of a vCPU to a CPU, or let signals through to it"))?;
        Ok(Self { index, tid, cpu, statistics, enter: Some(enter), kicked, thread: Some(thread) })
    }

    pub(crate) fn tid(&self) -> i32 {
        self.tid
    }

    pub(crate) fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    pub(crate) fn statistics(&self) -> Option<&StatisticsFile> {
        self.statistics.as_ref()
    }

    /// Makes the vCPU execute the command in its block.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        let gone = Error::ThreadGone { vcpu: self.index };
        let Some(enter) = &self.enter else { return Err(gone) };
        enter.send(()).map_err(|_| gone)
    }

    /// Asks the vCPU to leave KVM_RUN. A signal that arrives just before the ioctl starts is lost, so the
    /// caller repeats this until the report arrives.
    pub(crate) fn kick(&self) -> io::Result<()> {
        self.kicked.store(true, Ordering::SeqCst);
        let signal = threads::kick_signal()?;
        match &self.thread {
            Some(thread) if !thread.is_finished() => thread.kill(signal).map_err(Into::into),
            _ => Ok(()),
        }
    }
}

impl Drop for Vcpu {
    fn drop(&mut self) {
        self.enter = None;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            self.kicked.store(true, Ordering::SeqCst);
            if let Ok(signal) = threads::kick_signal() {
                // Fails only if the thread has just ended.
                let _ = thread.kill(signal);
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        if thread.join().is_err() {
            tracing::error!(vcpu = self.index, "the thread of a vCPU panicked");
        }
    }
}

/// The thread's part of a vCPU.
struct Runner {
    index: u16,
    fd: VcpuFd,
    kicked: Arc<AtomicBool>,
}

impl Runner {
    /// Executes commands until the sender is dropped.
    fn serve(mut self, entries: &Receiver<()>, reports: &Sender<Report>) {
        while entries.recv().is_ok() {
            let outcome = self.run();
            if reports.send(Report { vcpu: self.index, outcome }).is_err() {
                return;
            }
        }
    }

    fn run(&mut self) -> CommandEnd {
        loop {
            if self.kicked.load(Ordering::SeqCst) {
                return CommandEnd::Kicked { rip: self.rip() };
            }
            let reason = match self.fd.run() {
                Ok(VcpuExit::IoOut(layout::PORT_USER, _)) => continue,
                Ok(VcpuExit::MmioWrite(layout::MMIO_USER, _)) => continue,
                Ok(VcpuExit::IoOut(layout::PORT_DONE, _)) => return CommandEnd::Done,
                Ok(VcpuExit::IoOut(layout::PORT_FAULT, _)) => return CommandEnd::Fault,
                Ok(VcpuExit::Intr) => continue,
                Ok(exit) => describe(&exit),
                Err(error) if error.errno() == libc::EINTR => continue,
                // KVM_RUN returns this for a vCPU that was woken before its first entry.
                Err(error) if error.errno() == libc::EAGAIN => continue,
                Err(error) => format!("an error of KVM_RUN: {}", io::Error::from(error)),
            };
            let reason = match reason.as_str() {
                INTERNAL_ERROR => format!("{INTERNAL_ERROR}, suberror {}", self.suberror()),
                _ => reason,
            };
            return CommandEnd::Unexpected { reason, rip: self.rip() };
        }
    }

    fn rip(&self) -> u64 {
        self.fd.get_regs().map_or(0, |registers| registers.rip)
    }

    /// KVM_INTERNAL_ERROR_*: 1 is an instruction that KVM could not emulate.
    fn suberror(&mut self) -> u32 {
        let run = self.fd.get_kvm_run();
        // SAFETY: the exit reason was KVM_EXIT_INTERNAL_ERROR, for which KVM fills this member; any bit pattern
        // is a value of it.
        unsafe { run.__bindgen_anon_1.internal.suberror }
    }
}

const INTERNAL_ERROR: &str = "KVM_EXIT_INTERNAL_ERROR";

/// An exit in the words of the KVM documentation, with the hardware's reason where there is one.
fn describe(exit: &VcpuExit<'_>) -> String {
    match exit {
        VcpuExit::FailEntry(reason, cpu) => {
            format!("KVM_EXIT_FAIL_ENTRY, hardware entry failure reason {reason:#x} on host CPU {cpu}")
        }
        VcpuExit::InternalError => INTERNAL_ERROR.to_owned(),
        VcpuExit::Shutdown => "KVM_EXIT_SHUTDOWN (a triple fault)".to_owned(),
        VcpuExit::Hlt => "KVM_EXIT_HLT (the local APIC is not in the kernel)".to_owned(),
        VcpuExit::IoOut(port, data) => format!("output of {data:02x?} to the unknown port {port:#x}"),
        VcpuExit::IoIn(port, _) => format!("input from the unknown port {port:#x}"),
        VcpuExit::MmioWrite(address, data) => format!("a write of {data:02x?} to {address:#x}"),
        VcpuExit::MmioRead(address, _) => format!("a read of {address:#x}"),
        VcpuExit::Unsupported(number) => format!("exit reason {number}"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_told_with_the_hardware_reason() {
        let text = describe(&VcpuExit::FailEntry(0x8000_0021, 3));
        assert!(text.contains("0x80000021") && text.contains("CPU 3"), "{text}");
        assert!(describe(&VcpuExit::Shutdown).contains("triple fault"));
        assert!(describe(&VcpuExit::IoOut(0x80, &[1])).contains("0x80"));
        assert!(describe(&VcpuExit::Unsupported(77)).contains("77"));
    }
}
