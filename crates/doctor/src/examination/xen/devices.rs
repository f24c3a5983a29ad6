//! Devices for Xen's guests, and their IOMMU.

use super::controlled;
use crate::examination::rule::Verdict;
use crate::examination::subject::Subject;
use exits::counted;
use host::inspection::XenLog;
use host::{FunctionRole, PciFunction};

pub(super) fn iommu(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(info) = xen.info.get() else { return Some(Verdict::unknown(&xen.info)) };
    let caps = info.field("virt_caps").unwrap_or_default();
    // `xl info` always shows Xen's capabilities; the log loses its first lines over time.
    let used = caps.split_whitespace().any(|cap| cap == "hvm_directio" || cap == "pv_directio");
    let said = |verdict: Verdict| verdict.seen("xl info, virt_caps", caps);
    if !used {
        let log = xen.log.get().and_then(|log| log.iommu);
        let verdict = said(Verdict::warn("Xen uses no IOMMU, so no device can be assigned to a guest"));
        let verdict = match log {
            Some(false) => verdict.seen("xl dmesg", "I/O virtualisation disabled"),
            _ => verdict,
        };
        return Some(verdict.advice(
            "enable VT-d or AMD-Vi in the firmware setup, and remove iommu=off from Xen's arguments",
        ));
    }
    Some(match (xen.log.get(), xen.log.get().and_then(|log| log.interrupt_remapping)) {
        (_, Some(true)) => said(Verdict::pass("Xen uses the IOMMU, which remaps interrupts"))
            .seen("xl dmesg", "Interrupt remapping enabled"),
        (_, Some(false)) => said(Verdict::warn("Xen uses the IOMMU, which does not remap interrupts"))
            .seen("xl dmesg", "Interrupt remapping disabled")
            .advice(
                "remove iommu=no-intremap from Xen's arguments, and look for firmware that offers remapping",
            ),
        (Some(_), None) => {
            said(Verdict::pass("Xen uses the IOMMU; Xen's log no longer says whether it remaps interrupts"))
        }
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
        let virtual_ones: Vec<String> = xen.functions.iter().map(named).collect();
        return Some(Verdict::skip(if virtual_ones.is_empty() {
            "no device is ready for a guest; `xl pci-assignable-add ADDRESS` makes one ready".to_owned()
        } else {
            format!(
                "no device is ready for a guest; `xl pci-assignable-add ADDRESS` would make ready: {}",
                some(&virtual_ones)
            )
        }));
    }
    let function = |address: &String| xen.functions.iter().find(|function| function.address == *address);
    let each = devices.iter().map(|address| function(address).map_or_else(|| address.clone(), named));
    let ready = format!("ready for a guest: {}", some(&each.collect::<Vec<_>>()));
    let whole = devices.iter().filter_map(function).find_map(|function| match function.role {
        FunctionRole::Physical { virtual_functions: count @ 1.., .. } => Some((&function.address, count)),
        _ => None,
    });
    let obstacle = if !caps.contains("directio") {
        Some(("no IOMMU is used", "enable VT-d or AMD-Vi in the firmware setup"))
    } else if xen.log.get().and_then(remaps) == Some(false) {
        Some(("the IOMMU does not remap their interrupts", "remove iommu=no-intremap from Xen's arguments"))
    } else {
        None
    };
    let verdict = match (obstacle, whole) {
        (Some((obstacle, cure)), _) => Verdict::fail(format!("{ready}; but {obstacle}")).advice(cure),
        (None, Some((address, count))) => Verdict::warn(format!(
            "{ready}; with {address} dom0 also loses {}",
            if count == 1 {
                "its virtual function".to_owned()
            } else {
                format!("its {count} virtual functions")
            },
        ))
        .advice("give guests virtual functions, and leave the physical one to dom0"),
        (None, None) => Verdict::pass(ready),
    };
    Some(verdict.seen("xl pci-assignable-list", devices.join(", ")))
}

/// A function, with its SR-IOV role.
fn named(function: &PciFunction) -> String {
    let address = &function.address;
    match &function.role {
        FunctionRole::Virtual { of } => format!("{address} (a virtual function of {of})"),
        FunctionRole::Physical { possible: 0, .. } => address.clone(),
        FunctionRole::Physical { .. } => format!("{address} (a physical function)"),
    }
}

fn some(all: &[String]) -> String {
    let others = all.len().saturating_sub(MOST);
    let behind = if others > 0 { format!(" and {}", counted(others as u64, "other")) } else { String::new() };
    format!("{}{behind}", all[..all.len() - others].join(", "))
}

/// The largest number of addresses to list; the others are only counted.
const MOST: usize = 4;

fn remaps(log: &XenLog) -> Option<bool> {
    log.interrupt_remapping
}
