//! Errors, with the next step in their messages.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::layout;
use crate::measure::Measure;
use crate::run::Arm;

/// The reason why there is no micro VM, or no samples.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device does not exist.
    #[error(
        "{path} does not exist: load kvm_intel or kvm_amd (and switch on VT-x or AMD-V in the firmware), or \
         use an emulated host, for instance --lab intel-apicv"
    )]
    NoKvm {
        /// The device.
        path: PathBuf,
    },
    /// This user may not open the device.
    #[error(
        "{path} may not be opened by this user: add yourself to its group (usermod -aG kvm $USER, then log in \
         again), or run as root"
    )]
    KvmDenied {
        /// The device.
        path: PathBuf,
    },
    /// The device does not open for another reason.
    #[error("{path} does not open: is it a KVM device, and is VT-x or AMD-V free (no other hypervisor)?")]
    OpenKvm {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The interface is not the one that has been stable since Linux 2.6.22.
    #[error("{path} speaks version {found} of the KVM interface; this program needs version 12")]
    KvmVersion {
        /// The device.
        path: PathBuf,
        /// KVM_GET_API_VERSION.
        found: i32,
    },
    /// Too few or too many vCPUs.
    #[error("the micro VM can not have {asked} vCPUs: ask for 2 to {most}")]
    VcpuCount {
        /// The request.
        asked: u16,
        /// The largest number on this host.
        most: u16,
    },
    /// Too few or too many samples.
    #[error("a run can not take {asked} samples: ask for 1 to {}", layout::MAX_SAMPLES)]
    SampleCount {
        /// The request.
        asked: u32,
    },
    /// The target does not exist, or is the sender itself.
    #[error("vCPU {target} can not be the target: the sender is vCPU 0, so choose 1 to {last}")]
    Target {
        /// The request.
        target: u16,
        /// The last vCPU.
        last: u16,
    },
    /// KVM refused something.
    #[error("KVM refused to {what}")]
    Ioctl {
        /// The action that KVM refused, with its object.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The guest's memory could not be allocated or accessed.
    #[error("the guest's memory could not be {what}")]
    Memory {
        /// The attempt.
        what: &'static str,
        /// The error of the allocator or the bounds check.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host refused a thread, a signal handler or an eventfd.
    #[error("the host refused to {what}")]
    Host {
        /// The attempt.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Sender and target must run at the same time.
    #[error(
        "{measure} needs two host CPUs and this process may use {allowed}: the vCPUs would take turns and the \
         samples would show the scheduler; widen the CPU affinity (taskset) or leave the measure out"
    )]
    TooFewCpus {
        /// The measure.
        measure: Measure,
        /// The number of CPUs that the process may use.
        allowed: usize,
    },
    /// This VM cannot perform the measure.
    #[error("{measure} can not be measured here: {why}")]
    Unsupported {
        /// The measure.
        measure: Measure,
        /// The reason.
        why: String,
    },
    /// Only the other arm is available on this host.
    #[error("interrupt virtualization can not be switched {} here: {why}", match arm { Arm::On => "on", Arm::Off => "off" })]
    ArmUnavailable {
        /// The request.
        arm: Arm,
        /// The reason.
        why: String,
    },
    /// The run made no progress for too long.
    #[error(
        "{measure} made no progress for {} s with interrupt virtualization {}, after {done} of {wanted} \
         iterations; {whereabouts}. An interrupt was probably lost; the micro VM has been stopped, make a new \
         one",
        after.as_secs_f32(), match arm { Arm::On => "on", Arm::Off => "off" }
    )]
    Hung {
        /// The measure.
        measure: Measure,
        /// The arm.
        arm: Arm,
        /// The time without any event.
        after: Duration,
        /// Iterations done, warm-up included.
        done: u64,
        /// Iterations to do, warm-up included.
        wanted: u64,
        /// Each vCPU and its instruction pointer.
        whereabouts: String,
    },
    /// An unexpected exception or interrupt arrived in the guest.
    #[error(
        "vCPU {vcpu} took the unexpected vector {vector} (error code {code:#x}) at {rip:#x} during {measure}; \
         the micro VM has been stopped, make a new one"
    )]
    GuestFault {
        /// The measure.
        measure: Measure,
        /// The vCPU.
        vcpu: u16,
        /// The vector: below 32 an exception.
        vector: u64,
        /// The exception's error code, or 0.
        code: u64,
        /// The guest's instruction pointer.
        rip: u64,
    },
    /// An interrupt arrived while it was masked, or another arrived in its place.
    #[error(
        "{what}: this processor, or its emulation, does not deliver virtual interrupts as its manual says; measure \
         elsewhere"
    )]
    Delivery {
        /// The wrong delivery that was observed.
        what: String,
    },
    /// KVM_RUN returned with an exit that the payload never causes.
    #[error(
        "vCPU {vcpu} left the guest by {reason} at {rip:#x} during {measure}; the kernel log may say more \
         (dmesg), and the micro VM has been stopped, make a new one"
    )]
    UnexpectedExit {
        /// The measure.
        measure: Measure,
        /// The vCPU.
        vcpu: u16,
        /// The exit reason, with the hardware's reason where KVM gives one.
        reason: String,
        /// The guest's instruction pointer.
        rip: u64,
    },
    /// An earlier run failed and left vCPUs in the middle of a routine.
    #[error("the micro VM was stopped by an earlier error and can not run {measure}: make a new one")]
    Stopped {
        /// The measure.
        measure: Measure,
    },
    /// A vCPU's thread ended unexpectedly.
    #[error("the thread of vCPU {vcpu} is gone; this is a defect of the probe, please report it")]
    ThreadGone {
        /// The vCPU.
        vcpu: u16,
    },
    /// KVM's binary statistics do not have the documented form.
    #[error("KVM's statistics of vCPU {vcpu} can not be read")]
    Statistics {
        /// The vCPU.
        vcpu: u16,
        /// The defect.
        source: crate::statistics::StatisticsError,
    },
}

impl Error {
    /// An ioctl's failure; `what` completes "KVM refused to".
    pub(crate) fn ioctl(what: impl Into<String>) -> impl FnOnce(vmm_sys_util::errno::Error) -> Self {
        let what = what.into();
        move |source| Self::Ioctl { what, source: source.into() }
    }

    pub(crate) fn host(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Host { what, source }
    }

    pub(crate) fn memory<E>(what: &'static str) -> impl FnOnce(E) -> Self
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        move |source| Self::Memory { what, source: Box::new(source) }
    }

    /// The reason why the device did not open.
    pub(crate) fn open(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoKvm { path },
            io::ErrorKind::PermissionDenied => Self::KvmDenied { path },
            _ => Self::OpenKvm { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_names_the_way_out() {
        let error = Error::open(Path::new("/nowhere/kvm"), io::Error::from(io::ErrorKind::NotFound));
        let text = error.to_string();
        assert!(text.contains("/nowhere/kvm") && text.contains("--lab intel-apicv"), "{text}");
        let error = Error::open(Path::new("/dev/kvm"), io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(error.to_string().contains("usermod -aG kvm"), "{error}");
    }

    #[test]
    fn a_hang_says_what_where_and_how_far() {
        let error = Error::Hung {
            measure: Measure::IpiHalted,
            arm: Arm::On,
            after: Duration::from_secs(30),
            done: 17,
            wanted: 1000,
            whereabouts: "vCPU 0 was at 0x8123".to_owned(),
        };
        let text = error.to_string();
        for part in ["ipi-halted", "30 s", "virtualization on", "17 of 1000", "vCPU 0 was at 0x8123"] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
    }
}
