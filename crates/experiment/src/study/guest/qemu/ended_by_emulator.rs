//! Guests that an emulator ended while they booted.
//!
//! Linux patches its code by a breakpoint that it removes again. QEMU before 8.1 may go on to execute what it translated
//! while the breakpoint was there; the guest's kernel then knows nothing of it and ends with "Oops: int3". QEMU mended it
//! with "accel/tcg: Always lock pages before translation" (commit cb62bd15e14e).
//!
//! Guests of KVM in a machine that QEMU emulates (10.0, SVM with nested paging) now and then lose a page that is mapped:
//! the first sign is a page fault in the handler of page faults, and so on until the stack is full ("BUG: #DF stack guard
//! page was hit"), once in 32 starts with two guests beside each other.
//!
//! A guest that is started again is as good as any: nothing of the study has begun yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::super::last_words::tells_of_a_death;
use super::super::plan::{Accelerator, QemuPlan};

/// So many times a guest is started.
pub(super) const STARTS: u32 = 3;
/// What QEMU's emulator calls itself (target/i386/cpu.c).
const TCG: &str = "TCGTCGTCGTCG";

/// How an emulator ended the guest of which `console` was kept, if one did. `below` is the hypervisor under this machine.
pub(super) fn how(plan: &QemuPlan, console: &Path, below: Option<&str>) -> Option<&'static str> {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    match plan.accel {
        Accelerator::Tcg if plan.vcpus > 1 && text.contains("Oops: int3") => {
            Some("QEMU's emulator ran a breakpoint that was gone (mended in QEMU 8.1)")
        }
        Accelerator::Kvm if below == Some(TCG) && tells_of_a_death(&text) => {
            Some("its kernel died in a machine that QEMU emulates, as happens there now and then")
        }
        _ => None,
    }
}

/// Keeps the console of start `number`, counted from 1, beside the one of the next; gives its new path.
pub(super) fn keep(console: &Path, number: u32) -> io::Result<PathBuf> {
    let kept = console.with_extension(number.to_string());
    fs::rename(console, &kept).map(|()| kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_count_where_an_emulator_can_be_the_cause() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("console");
        let plan = |accel: &str, vcpus: u32| -> QemuPlan {
            toml::from_str(&format!("accel = {accel:?}\nvcpus = {vcpus}")).unwrap()
        };
        let how = |text: &str, plan: &QemuPlan, below| {
            fs::write(&console, text).unwrap();
            how(plan, &console, below).is_some()
        };
        let fault = "[ 11.7] BUG: #DF stack guard page was hit at 0000000060cd94fc";
        let kvm = plan("kvm", 1);
        assert!(how(fault, &kvm, Some(TCG)));
        assert!(!how(fault, &kvm, None), "on a processor it is the guest's own fault");
        assert!(!how(fault, &kvm, Some("KVMKVMKVM")));
        assert!(!how("[ 1.0] Run /init as init process", &kvm, Some(TCG)));
        assert!(how("Oops: int3: 0000 [#1]", &plan("tcg", 2), None));
        assert!(!how("Oops: int3: 0000 [#1]", &plan("tcg", 1), None), "nobody else patches");
        assert!(!how(fault, &plan("tcg", 2), Some(TCG)));
    }
}
