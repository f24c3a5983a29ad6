//! The source of exits for `exitless top`: KVM through eBPF, or Xen through xentrace.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use exits::{Profile, Span};
use live::{Collector, Cost, Mechanism};
use report::top::{Source, VmFacts};
use traces::Sums;

use super::Arguments;
use super::vms::Vms;
use crate::commands::xen::{self, Following, XenHost};

pub(super) enum Counting {
    /// A collector, whether it counts accesses, and facts of VMs.
    Kvm { collector: Box<Collector>, accesses: bool, vms: Box<Vms> },
    /// The host, xentrace's output with its totals, and the time at which the totals started.
    Xen { host: Box<XenHost>, following: Option<Following<Sums>>, sums: Sums, since_ns: u64 },
}

impl Counting {
    /// `None` if `stop` was set during the wait for KVM.
    pub(super) fn begin(
        arguments: &Arguments,
        accesses: bool,
        stop: &AtomicBool,
    ) -> anyhow::Result<Option<Self>> {
        if let Some(host) = XenHost::find(&arguments.watch) {
            xen::refuse(arguments.self_cost, "--self-cost")?;
            let sums = Sums::default();
            let following = Some(host.follow(sums.clone())?);
            let (host, since_ns) = (Box::new(host), live::monotonic_ns());
            return Ok(Some(Self::Xen { host, following, sums, since_ns }));
        }
        let watch = arguments.watch.watch(accesses)?;
        let collector = arguments.watch.attach(&watch, stop)?;
        Ok(collector.map(|collector| Self::Kvm {
            vms: Box::new(Vms::new(collector.isa())),
            collector: Box::new(collector),
            accesses,
        }))
    }

    /// Tests whether to attach again with or without accesses. xentrace always has them.
    pub(super) fn must_change(&self, wants_accesses: bool) -> bool {
        matches!(self, Self::Kvm { accesses, .. } if *accesses != wants_accesses)
    }

    pub(super) fn source(&self) -> Source {
        match self {
            Self::Kvm { collector, .. } => {
                let mechanism = match collector.mechanism() {
                    Mechanism::RawTracepoints => "raw tracepoints".to_owned(),
                    Mechanism::Tracepoints { why } => {
                        format!("tracepoints instead of raw ones, which cost less: {why}")
                    }
                };
                Source { isa: collector.isa(), mechanism, missing: collector.missing().to_vec() }
            }
            Self::Xen { host, .. } => {
                Source { isa: host.isa(), mechanism: "xentrace".to_owned(), missing: missing(host) }
            }
        }
    }

    /// The exits since the last call, with the VMs' names.
    pub(super) fn take(&mut self, arguments: &Arguments) -> anyhow::Result<Profile> {
        match self {
            Self::Kvm { collector, vms, .. } => {
                let mut profile = collector.take()?;
                vms.look(&mut profile);
                Ok(profile)
            }
            Self::Xen { host, following, sums, since_ns } => {
                if following.as_ref().is_none_or(Following::has_ended) {
                    // xentrace's own error is the reason, if it reported one.
                    following.take().map(Following::finish).transpose()?;
                    bail!("xentrace has ended");
                }
                let now_ns = live::monotonic_ns();
                let mut profile = sums.take();
                profile.span = Some(Span { first_ns: *since_ns, last_ns: now_ns });
                *since_ns = now_ns;
                host.name(&mut profile);
                Ok(xen::only(profile, arguments.watch.wanted()))
            }
        }
    }

    /// Keeps the kernel's counts from overflowing while the page takes none.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Kvm { collector, .. } => Ok(collector.keep()?),
            // A thread sums up xentrace's output all the time.
            Self::Xen { .. } => Ok(()),
        }
    }

    /// The current facts of these VMs.
    pub(super) fn facts(&self, vms: impl Iterator<Item = u32>, profile: &Profile) -> BTreeMap<u32, VmFacts> {
        match self {
            Self::Kvm { vms: known, .. } => vms.map(|vm| (vm, known.facts(vm, profile))).collect(),
            // Asking `xl` each time would be slow, so a domain is never shown as gone.
            Self::Xen { .. } => vms
                .map(|vm| {
                    let name = profile.names.get(&vm).cloned();
                    (vm, VmFacts { name, ..VmFacts::default() })
                })
                .collect(),
        }
    }

    /// The cost of counting, if known.
    pub(super) fn cost(&self) -> anyhow::Result<Option<Cost>> {
        match self {
            Self::Kvm { collector, .. } => Ok(Some(collector.cost()?)),
            Self::Xen { .. } => Ok(None),
        }
    }
}

/// The figures that rest on assumptions, because facts of the host are unknown.
fn missing(host: &XenHost) -> Vec<String> {
    let mut missing = Vec::new();
    if host.control.isa.is_none() {
        missing.push("the processor's vendor is unknown; exits are assumed to be VMX's".to_owned());
    }
    if host.control.tsc_hz.is_none() {
        missing.push("`xl info` gives no cpu_mhz; times assume 2.4 GHz".to_owned());
    }
    missing
}
