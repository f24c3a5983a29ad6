//! Xen's scheduling of vCPUs, and the speed of its processors.

use super::controlled;
use crate::examination::rule::Verdict;
use crate::examination::subject::Subject;
use host::CpuSet;
use host::inspection::XenVcpu;
use std::collections::BTreeMap;

/// Schedulers that may not run a vCPU with a pending interrupt although a processor is free, with the reason.
const HOLD_BACK: &[(&str, &str)] = &[
    ("credit", "credit, where a vCPU that used its share waits for slices of 30 ms"),
    ("rtds", "rtds, where a vCPU that used its budget waits for its next period"),
    ("arinc653", "arinc653, where each domain waits for its slot"),
];

pub(super) fn scheduler(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(pools) = xen.pools.get() else {
        let Some(name) = xen.info.get().and_then(|info| info.field("xen_scheduler")) else {
            return Some(Verdict::unknown(&xen.pools));
        };
        return Some(judged(&[name.to_owned()]).seen("xl info, xen_scheduler", name));
    };
    let used: Vec<_> = pools.iter().filter(|pool| pool.domains > 0).collect();
    let seen =
        used.iter().map(|pool| format!("{} {} on {} processors", pool.name, pool.scheduler, pool.cpus));
    let seen = seen.collect::<Vec<_>>().join("; ");
    // Only with a single pool is it known which vCPUs compete for its processors.
    if let [pool] = &used[..] {
        let vcpus = xen.vcpus.get().map_or(0, |vcpus| vcpus.iter().filter(|one| one.cpu.is_some()).count());
        if pool.scheduler == "null" && vcpus > usize::try_from(pool.cpus).unwrap_or(usize::MAX) {
            let found = format!("null, with {vcpus} vCPUs for {} processors: some never run", pool.cpus);
            return Some(
                Verdict::fail(found)
                    .seen("xl cpupool-list", seen)
                    .advice("fewer vCPUs, or sched=credit2 in Xen's arguments"),
            );
        }
    }
    let names: Vec<String> = used.iter().map(|pool| pool.scheduler.clone()).collect();
    Some(judged(&names).seen("xl cpupool-list", seen))
}

fn judged(names: &[String]) -> Verdict {
    let held = HOLD_BACK.iter().find(|(name, _)| names.iter().any(|used| used == name));
    match held {
        Some((_, words)) => Verdict::warn(*words).advice(
            "sched=credit2 in Xen's arguments, or a pool of its own for the guest (xl cpupool-create)",
        ),
        None => {
            let mut names = names.to_vec();
            names.dedup();
            Verdict::pass(names.join(", "))
        }
    }
}

pub(super) fn places(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(vcpus) = xen.vcpus.get() else { return Some(Verdict::unknown(&xen.vcpus)) };
    let mut on: BTreeMap<u32, Vec<&XenVcpu>> = BTreeMap::new();
    for vcpu in vcpus.iter().filter(|vcpu| vcpu.cpu.is_some()) {
        if let Some(only) = vcpu.hard.as_ref().and_then(CpuSet::only) {
            on.entry(only).or_default().push(vcpu);
        }
    }
    let bound: usize = on.values().map(Vec::len).sum();
    let Some((cpu, together)) = on.iter().find(|(_, vcpus)| vcpus.len() > 1) else {
        let found = match bound {
            0 => "none is bound to a processor: the scheduler places them".to_owned(),
            _ => format!("{bound} of {} are bound to a processor each", vcpus.len()),
        };
        return Some(Verdict::pass(found).resting_on(&xen.vcpus));
    };
    let names = together.iter().map(|one| format!("{} vCPU {}", one.domain, one.vcpu));
    let names = names.collect::<Vec<_>>().join(", ");
    Some(
        Verdict::warn(format!("{} are bound to processor {cpu} only", together.len()))
            .seen("xl vcpu-list", names)
            .command(format!("xl vcpu-pin {} {} all", together[0].domain, together[0].vcpu))
            .advice("cpus = \"...\" in the definitions, with a processor for each vCPU"),
    )
}

pub(super) fn frequency(subject: &Subject<'_>) -> Option<Verdict> {
    let xen = controlled(subject)?;
    let Some(frequencies) = xen.frequencies.get() else { return Some(Verdict::unknown(&xen.frequencies)) };
    let Some(first) = frequencies.first() else {
        return Some(Verdict::skip("Xen sets no frequencies here: xenpm has no processor to show"));
    };
    let slow = frequencies.iter().filter_map(|one| one.governor.as_deref());
    let slow: Vec<&str> = slow.filter(|governor| *governor != "performance").collect();
    let Some(governor) = slow.first() else {
        let by = match &first.governor {
            Some(governor) => format!("the governor is {governor} on all processors"),
            None => format!("the driver {} decides by itself", first.driver),
        };
        return Some(Verdict::pass(by).resting_on(&xen.frequencies));
    };
    let found = format!("the governor is {governor} on {} of {} processors", slow.len(), frequencies.len());
    Some(
        Verdict::warn(found)
            .seen("xenpm get-cpufreq-para, current_governor", *governor)
            .command("xenpm set-scaling-governor performance")
            .advice("cpufreq=xen:performance in Xen's arguments, for all boots"),
    )
}
