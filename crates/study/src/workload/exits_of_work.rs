//! VM exits for each unit of a run's work.

use super::WorkUnit;
use crate::record::Run;
use crate::{Better, Combine, Metric, Unit};

/// The prefix of figures that count VM exits for each unit of work.
const OF_WORK: &str = "exits-per-";

/// The metric of the exits of one reason, or of the `total`, for each unit of work.
fn exits_of_work(unit: WorkUnit, reason: &str) -> String {
    format!("{OF_WORK}{}.{reason}", unit.singular())
}

/// The unit and the reason (or `total`) of a metric of VM exits for each unit of work: event and HLT for
/// `exits-per-event.HLT`.
pub fn exits_of_which_work(metric: &str) -> Option<(WorkUnit, &str)> {
    let (unit, reason) = metric.strip_prefix(OF_WORK)?.split_once('.')?;
    Some((WorkUnit::of_singular(unit)?, reason))
}

/// The work by the guests' figures, if the workload reports it.
pub(crate) fn work(guests: &[Metric]) -> Option<(WorkUnit, f64)> {
    let work = guests.iter().find_map(|metric| Some((WorkUnit::of_metric(&metric.name)?, metric.value)));
    work.filter(|(_, amount)| amount.is_finite() && *amount > 0.0)
}

/// The exits of a run for each unit of `work`, that of the time in which they were counted. They are from the whole time of
/// sampling, so exits of the tool's start and end are included.
pub(crate) fn of_work(run: &Run, work: Option<(WorkUnit, f64)>) -> Vec<Metric> {
    let Some((unit, amount)) = work else { return Vec::new() };
    let rates = run.host.iter().filter(|metric| metric.unit == Unit::PerSecond);
    let each = rates.filter_map(|metric| {
        let reason = metric.name.strip_prefix("exits.")?;
        Some(Metric {
            name: exits_of_work(unit, reason),
            unit: Unit::PerOperation,
            better: Better::Lower,
            combine: Combine::Single,
            value: metric.value * run.host_seconds(&metric.name) / amount,
        })
    });
    each.collect()
}
