//! Devices for Xen's guests, and the IOMMU behind which they are.

use super::controlled;
use crate::examination::rule::Verdict;
use crate::examination::subject::Subject;
use host::inspection::XenLog;

pub(super) fn iommu(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(info) = xen.info.get() else { return Some(Verdict::unknown(&xen.info)) };
    let caps = info.field("virt_caps").unwrap_or_default();
    // The log loses its beginning with time; what Xen can do it says always.
    let used = caps.split_whitespace().any(|cap| cap == "hvm_directio" || cap == "pv_directio");
    let said = |verdict: Verdict| verdict.seen("xl info, virt_caps", caps);
    if !used {
        let log = xen.log.get().and_then(|log| log.iommu);
        let verdict = said(Verdict::warn("Xen uses no IOMMU, so that no device can be given to a guest"));
        let verdict = match log {
            Some(false) => verdict.seen("xl dmesg", "I/O virtualisation disabled"),
            _ => verdict,
        };
        return Some(verdict.advice(
            "switch VT-d or AMD-Vi on in the firmware's setup, and take iommu=off out of Xen's arguments",
        ));
    }
    Some(match (xen.log.get(), xen.log.get().and_then(|log| log.interrupt_remapping)) {
        (_, Some(true)) => said(Verdict::pass("Xen uses the IOMMU, which remaps interrupts"))
            .seen("xl dmesg", "Interrupt remapping enabled"),
        (_, Some(false)) => said(Verdict::warn("Xen uses the IOMMU, which does not remap interrupts"))
            .seen("xl dmesg", "Interrupt remapping disabled")
            .advice("take iommu=no-intremap out of Xen's arguments, and look for a firmware that offers remapping"),
        (Some(_), None) => said(Verdict::pass(
            "Xen uses the IOMMU; whether it remaps interrupts stood in the part of Xen's log that is gone",
        )),
        (None, None) => {
            said(Verdict::pass("Xen uses the IOMMU; whether it remaps interrupts is in Xen's log, not read"))
        }
    })
}

pub(super) fn pass_through(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(info) = xen.info.get() else { return Some(Verdict::unknown(&xen.info)) };
    let caps = info.field("virt_caps").unwrap_or_default();
    let Some(devices) = xen.assignable.get() else { return Some(Verdict::unknown(&xen.assignable)) };
    if devices.is_empty() {
        return Some(Verdict::skip(
            "no device is ready for a guest; `xl pci-assignable-add ADDRESS` makes one ready",
        ));
    }
    let ready = format!(
        "ready for a guest: {}{}",
        devices.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", "),
        if devices.len() > MOST { format!(" and {} others", devices.len() - MOST) } else { String::new() }
    );
    let obstacle = if !caps.contains("directio") {
        Some(("no IOMMU is used", "switch VT-d or AMD-Vi on in the firmware's setup"))
    } else if xen.log.get().and_then(remaps) == Some(false) {
        Some(("the IOMMU does not remap their interrupts", "take iommu=no-intremap out of Xen's arguments"))
    } else {
        None
    };
    let verdict = match obstacle {
        Some((obstacle, cure)) => Verdict::fail(format!("{ready}; but {obstacle}")).advice(cure),
        None => Verdict::pass(ready),
    };
    Some(verdict.seen("xl pci-assignable-list", devices.join(", ")))
}

/// More addresses than this are counted.
const MOST: usize = 4;

fn remaps(log: &XenLog) -> Option<bool> {
    log.interrupt_remapping
}
