//! A defect of QEMU's emulator that ends guests with several vCPUs now and then while they boot.
//!
//! Linux patches its code by a breakpoint that it removes again. QEMU before 8.1 may go on to execute what it translated
//! while the breakpoint was there; the guest's kernel then knows nothing of it and ends with "Oops: int3". QEMU mended it
//! with "accel/tcg: Always lock pages before translation" (commit cb62bd15e14e). A guest that is started again is as good
//! as any: nothing of the study has begun yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::super::plan::{Accelerator, QemuPlan};

/// So many times a guest is started.
pub(super) const STARTS: u32 = 3;

/// Whether this ended the guest of which `console` was kept.
pub(super) fn ended(plan: &QemuPlan, console: &Path) -> bool {
    let text = || fs::read(console).unwrap_or_default();
    plan.accel == Accelerator::Tcg
        && plan.vcpus > 1
        && String::from_utf8_lossy(&text()).contains("Oops: int3")
}

/// Keeps the console of start `number`, counted from 1, beside the one of the next; gives its new path.
pub(super) fn keep(console: &Path, number: u32) -> io::Result<PathBuf> {
    let kept = console.with_extension(number.to_string());
    fs::rename(console, &kept).map(|()| kept)
}
