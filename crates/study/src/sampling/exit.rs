//! VM exits over a run: counted with eBPF, or by KVM's own statistics if eBPF cannot be used, or with xentrace on Xen.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use exits::{ExitReason, Exits, Profile, with_causes_in_brackets};
use host::vms::Vms;
use live::statistics::{StatisticsSource, VmStatistics};
use live::{Collector, Cost, Watch};

use super::exit_figures::{ExitsSeen, metrics, word};
use super::table::Table;
use super::traced::Traced;
use super::{SampledGuest, access};
use crate::{Better, Combine, Metric, Unit};

/// A source of exit counts, until [`Self::finish`].
pub(super) enum ExitSource {
    /// eBPF programs in the kernel.
    Counted(Box<Counted>),
    /// Xen's trace buffers.
    Traced(Box<Traced>),
    /// None, for this reason.
    Nothing { why: String },
    /// KVM's own statistics.
    Statistics { source: StatisticsSource, before: Vec<VmStatistics>, why: String },
}

pub(super) struct Counted {
    collector: Collector,
    profile: Profile,
    names: BTreeMap<u32, String>,
    accesses: bool,
    /// Keeps the kernel's statistics of the programs' run time enabled.
    _measuring: Option<OwnedFd>,
    warnings: Vec<String>,
}

impl ExitSource {
    /// Starts to count the exits of these guests, or of all VMs if there are none; with `accesses` also by port and
    /// address. On a Xen host counts those of all domains.
    pub(super) fn start(root: &Path, guests: &[SampledGuest], accesses: bool) -> Self {
        if let Some(traced) = Traced::start(root, accesses) {
            return match traced {
                Ok(traced) => Self::Traced(Box::new(traced)),
                Err(why) => Self::Nothing { why },
            };
        }
        let numbered =
            guests.iter().filter_map(|guest| Some((u32::try_from(guest.process).ok()?, guest.name.clone())));
        let names: BTreeMap<u32, String> = numbered.collect();
        let processes = (!guests.is_empty()).then(|| names.keys().copied().collect());
        let watch = Watch { processes, accesses, ..Watch::default() };
        let mut warnings = Vec::new();
        let measuring = Cost::measure();
        if let Err(error) = &measuring {
            warnings.push(format!(
                "The cost of counting exits is not in sampling.cpu: {}",
                with_causes_in_brackets(error)
            ));
        }
        match Collector::attach(root, &watch) {
            Ok(collector) => {
                warnings.extend(collector.missing().iter().cloned());
                let _measuring = measuring.ok();
                Self::Counted(Box::new(Counted {
                    collector,
                    profile: Profile::new(),
                    names,
                    accesses,
                    _measuring,
                    warnings,
                }))
            }
            Err(error) => {
                let found = Vms::discover(root).unwrap_or_default().vms;
                let wanted = |pid: i32| guests.is_empty() || guests.iter().any(|guest| guest.process == pid);
                let vms: Vec<_> = found.into_iter().filter(|vm| wanted(vm.pid)).collect();
                let mut source = StatisticsSource::new(root, &vms);
                let before = source.read();
                Self::Statistics { source, before, why: with_causes_in_brackets(&error) }
            }
        }
    }

    /// Takes one reading. `Err` is a warning.
    pub(super) fn read(&mut self, time_ns: u64, table: &mut Table) -> Result<(), String> {
        let (profile, names, what) = match self {
            Self::Counted(counted) => {
                let interval = counted.collector.take().map_err(|error| with_causes_in_brackets(&error))?;
                counted.profile.merge(&interval);
                (&counted.profile, Some(&counted.names), "process")
            }
            Self::Traced(traced) => (traced.take(), None, "domain"),
            Self::Statistics { .. } | Self::Nothing { .. } => return Ok(()),
        };
        for (vm, reasons) in by_vm(profile) {
            let name = names.and_then(|names| names.get(&vm)).cloned();
            let subject = name.unwrap_or_else(|| format!("{what} {vm}"));
            for (reason, exits) in reasons {
                table.add(time_ns, "exits", &subject, &format!("{}.count", word(reason)), exits.count);
                let handling = exits.handling.total_ns();
                table.add(time_ns, "exits", &subject, &format!("{}.handling-ns", word(reason)), handling);
            }
        }
        Ok(())
    }

    /// The CPU time that other threads and processes have spent on counting so far, without the programs in the kernel.
    pub(super) fn cpu_time(&self) -> Duration {
        match self {
            Self::Traced(traced) => traced.cpu_time(),
            Self::Counted(_) | Self::Statistics { .. } | Self::Nothing { .. } => Duration::ZERO,
        }
    }

    /// Stops counting after `elapsed_ns`.
    pub(super) fn finish(self, elapsed_ns: u64) -> ExitsSeen {
        match self {
            Self::Counted(counted) => counted.finish(elapsed_ns),
            Self::Traced(traced) => traced.finish(elapsed_ns),
            Self::Nothing { why } => ExitsSeen {
                warnings: vec![format!("VM exits were not counted: {why}")],
                ..ExitsSeen::default()
            },
            Self::Statistics { mut source, before, why } => statistics(&before, &source.read(), &why),
        }
    }
}

impl Counted {
    fn finish(self, elapsed_ns: u64) -> ExitsSeen {
        let Self { collector, mut profile, names, accesses, mut warnings, .. } = self;
        let isa = collector.isa();
        let cost_ns = match collector.cost() {
            Ok(cost) => Some(cost.programs.iter().map(|program| program.total_ns).sum()),
            Err(error) => {
                warnings.push(with_causes_in_brackets(&error));
                None
            }
        };
        match collector.finish() {
            Ok(last) => profile.merge(&last),
            Err(error) => {
                warnings.push(format!("The last exits are missing: {}", with_causes_in_brackets(&error)))
            }
        }
        // Prefer the profile's own span, which excludes times without counting.
        let elapsed_ns = profile.span.map_or(elapsed_ns, exits::Span::length_ns);
        let lost = profile.losses.lost_exits;
        if lost > 0 {
            warnings.push(format!(
                "{} {} lost, because the kernel had no room for more vCPUs; {} {} counted",
                exits::counted(lost, "VM exit"),
                exits::agree(lost, "was", "were"),
                profile.total(),
                exits::agree(profile.total(), "was", "were")
            ));
        }
        let mut metrics = metrics(&profile, elapsed_ns);
        if accesses {
            let (by_place, left_out) = access::metrics(&profile, elapsed_ns);
            metrics.extend(by_place);
            warnings.extend(left_out);
        }
        profile.names.extend(names);
        let seconds = Some(elapsed_ns as f64 / 1e9);
        ExitsSeen { metrics, warnings, profile: Some((isa, profile)), seconds, cost_ns }
    }
}

fn by_vm(profile: &Profile) -> BTreeMap<u32, BTreeMap<ExitReason, Exits>> {
    let mut vms: BTreeMap<u32, BTreeMap<ExitReason, Exits>> = BTreeMap::new();
    for vcpu in profile.vcpus() {
        let reasons = vms.entry(vcpu.vcpu.vm.unwrap_or(0)).or_default();
        for (&reason, exits) in &vcpu.reasons {
            reasons.entry(reason).or_default().merge(exits);
        }
    }
    vms
}

/// Figures of KVM's own counters.
fn statistics(before: &[VmStatistics], after: &[VmStatistics], why: &str) -> ExitsSeen {
    let mut warnings = vec![format!("VM exits were not counted by reason: {why}")];
    let mut rates: BTreeMap<String, f64> = BTreeMap::new();
    let mut seconds: Option<f64> = None;
    for later in after {
        let earlier = before.iter().find(|one| (one.pid, one.start_ticks) == (later.pid, later.start_ticks));
        let Some(change) = earlier.and_then(|earlier| later.since(earlier)) else {
            let why = later.failures.first().map_or("it came meanwhile", |failure| failure.cause.as_str());
            warnings.push(format!("KVM's statistics of VM {} are missing: {why}", later.name));
            continue;
        };
        // Those of the VMs differ by the time of reading one.
        seconds = Some(change.elapsed.as_secs_f64().max(seconds.unwrap_or(0.0)));
        let plain = change.total.keys().filter(|name| !later.units.contains_key(*name));
        for name in plain {
            *rates.entry(name.clone()).or_default() += change.per_second(name).unwrap_or_default();
        }
        warnings.extend(
            change
                .reset
                .iter()
                .map(|name| format!("KVM's counter {name} of VM {} went backwards", later.name)),
        );
    }
    let metric = |name: String, value| Metric {
        name,
        unit: Unit::PerSecond,
        better: Better::Neither,
        combine: Combine::Single,
        value,
    };
    let total = rates
        .get("exits")
        .map(|&value| Metric { better: Better::Lower, ..metric("exits.total".into(), value) });
    // Including counters that did not change: in other runs they may.
    let others = rates.iter().filter(|(name, _)| *name != "exits");
    let others = others.map(|(name, &value)| metric(format!("kvm.{name}"), value));
    let metrics = total.into_iter().chain(others).collect();
    ExitsSeen { metrics, warnings, profile: None, seconds, cost_ns: None }
}

#[cfg(test)]
#[path = "exit_tests.rs"]
mod tests;
