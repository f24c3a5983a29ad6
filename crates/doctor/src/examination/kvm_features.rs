//! Parameters of KVM's modules for single features.

use super::contradictions::on_again;
use super::rule::Verdict;
use super::subject::Subject;
use crate::State;
use exits::Isa;
use host::parameter_path;

/// The polling time, in nanoseconds, from which polling costs more than any wake-up.
const LONG_POLLING: u64 = 1_000_000;

pub(super) fn device_posting(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() || subject.is_enabled() != Some(true) {
        return None;
    }
    // The parameter is in the vendor module, or in kvm.
    let modules = [subject.module(), "kvm"];
    let (module, value) = modules
        .iter()
        .find_map(|module| Some((*module, subject.parameter(module, "enable_device_posted_irqs")?)))?;
    let path = parameter_path(module, "enable_device_posted_irqs");
    Some(match (subject.is_on(module, "enable_device_posted_irqs"), subject.iommus_post()) {
        (Some(true), _) => Verdict::pass("KVM posts them").seen(path, value),
        (Some(false), Some(true)) => Verdict::warn("it is off, though the IOMMUs can post")
            .seen(path, value)
            .advice(subject.loading(module, "enable_device_posted_irqs=1")),
        _ => Verdict::skip("the IOMMUs cannot post, or there are none").seen(path, value),
    })
}

fn cpu_feature(subject: &Subject<'_>, name: &str, there: Option<bool>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Svm) {
        return None;
    }
    let value = subject.parameter("kvm_amd", name)?;
    let path = parameter_path("kvm_amd", name);
    Some(match (there, subject.is_on("kvm_amd", name)) {
        (_, Some(true)) => Verdict::pass("it is on").seen(path, value),
        (Some(true), Some(false)) => Verdict::warn("the CPU has it, and it is off")
            .seen(path, value)
            .advice(on_again(subject, "kvm_amd", name)),
        (Some(false), _) => {
            Verdict::skip(format!("{} has none", subject.owner_of_features())).seen(path, value)
        }
        _ => Verdict::skip("it is not known whether the CPU has it").seen(path, value),
    })
}

pub(super) fn vnmi(subject: &Subject<'_>) -> Option<Verdict> {
    let verdict = cpu_feature(subject, "vnmi", subject.host.processor.svm.get().map(|svm| svm.vnmi))?;
    // KVM clears it without virtual GIF (arch/x86/kvm/svm/svm.c, svm_hardware_setup).
    let is_cleared = subject.is_on("kvm_amd", "vgif") == Some(false) && verdict.state == State::Warn;
    Some(if is_cleared { Verdict::skip("KVM needs virtual GIF for it") } else { verdict })
}

pub(super) fn vgif(subject: &Subject<'_>) -> Option<Verdict> {
    cpu_feature(subject, "vgif", subject.host.processor.svm.get().map(|svm| svm.vgif))
}

pub(super) fn flexpriority(subject: &Subject<'_>) -> Option<Verdict> {
    if !subject.is_kvm_on(Isa::Vmx) {
        return None;
    }
    let value = subject.parameter("kvm_intel", "flexpriority")?;
    let path = parameter_path("kvm_intel", "flexpriority");
    let able = subject.host.processor.vmx.get().and_then(|vmx| vmx.tpr_shadow);
    Some(match (able, subject.is_on("kvm_intel", "flexpriority")) {
        (_, Some(true)) => Verdict::pass("it is on").seen(path, value),
        (Some(false), _) => {
            Verdict::skip(format!("{} has none", subject.owner_of_features())).seen(path, value)
        }
        _ => Verdict::warn("it is off").seen(path, value).advice(on_again(
            subject,
            "kvm_intel",
            "flexpriority",
        )),
    })
}

pub(super) fn halt_polling(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let value = subject.parameter("kvm", "halt_poll_ns")?;
    let path = parameter_path("kvm", "halt_poll_ns");
    let wrong = |found: String| {
        Verdict::warn(found)
            .seen(path.as_str(), value)
            .command("echo 200000 > /sys/module/kvm/parameters/halt_poll_ns  # until the next boot")
            .advice(
                "for good: options kvm halt_poll_ns=200000 in modprobe.d (kernels from 5.8 to 6.1 give either only to VMs \
                 that start afterwards)",
            )
    };
    Some(match value.parse::<u64>() {
        Ok(0) => wrong("KVM does not poll: each wake-up of a vCPU goes through the scheduler".to_owned()),
        Ok(time) if time > LONG_POLLING => {
            wrong(format!("KVM polls for up to {} ms after each halt", time / 1_000_000))
        }
        Ok(time) => Verdict::pass(format!("KVM polls for up to {} µs", time / 1000)).seen(path, value),
        Err(_) => Verdict::skip(format!("{path} is not a number")).seen(path, value),
    })
}
