//! The kinds of Xen's guests, and the translation of their memory.

use super::controlled;
use crate::examination::rule::Verdict;
use crate::examination::subject::Subject;
use exits::XenGuestType;
use host::inspection::XenDomain;

pub(super) fn nested_paging(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(info) = xen.info.get() else { return Some(Verdict::unknown(&xen.info)) };
    let caps = info.field("virt_caps").unwrap_or_default();
    let verdict = if caps.split_whitespace().any(|cap| cap == "hap") {
        Verdict::pass("Xen uses nested paging (HAP)")
    } else {
        Verdict::warn("Xen has only shadow page tables")
            .advice("remove hap=0 from Xen's arguments, or enable nested paging in the firmware setup")
    };
    Some(verdict.seen("xl info, virt_caps", caps))
}

pub(super) fn types(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(domains) = xen.domains.get() else { return Some(Verdict::unknown(&xen.domains)) };
    let guests = || domains.iter().filter(|domain| domain.id != 0);
    if guests().next().is_none() {
        return Some(Verdict::pass("no guest runs").resting_on(&xen.domains));
    }
    let Some(name) = crate::xen::technology(subject.isa) else {
        let all = guests().map(called).collect::<Vec<_>>().join(", ");
        return Some(
            Verdict::pass(format!("Xen uses no AVIC for any type: {all}")).seen("xl list -l, type", all),
        );
    };
    let of = |wanted: fn(Option<XenGuestType>) -> bool| {
        let chosen = guests().filter(|domain| wanted(domain.guest_type));
        chosen.map(called).collect::<Vec<_>>().join(", ")
    };
    let pv = of(|kind| kind == Some(XenGuestType::Pv));
    let hardware = of(|kind| matches!(kind, Some(XenGuestType::Pvh | XenGuestType::Hvm)));
    let unknown = of(|kind| kind.is_none());
    let mut found = Vec::new();
    if !pv.is_empty() {
        found.push(format!("without {name} whatever the host has: {pv}"));
    }
    if !hardware.is_empty() {
        found.push(format!("of a type that can have {name}: {hardware}"));
    }
    if !unknown.is_empty() {
        found.push(format!("of a type that xl does not report: {unknown}"));
    }
    let found = found.join("; ");
    Some(if !pv.is_empty() {
        Verdict::warn(found)
            .seen("xl list -l, type", pv)
            .advice("write type = \"pvh\" into the guest's definition; Linux needs CONFIG_PVH for it")
    } else if hardware.is_empty() {
        Verdict::skip(found)
    } else {
        Verdict::pass(found).seen("xl list -l, type", hardware)
    })
}

fn called(domain: &XenDomain) -> String {
    match domain.guest_type {
        Some(kind) => format!("{} ({})", domain.name, kind.name()),
        None => domain.name.clone(),
    }
}
