//! The demand of I/O and of vCPUs, and the part of it that a number of cores could serve.

use super::{PolicyState, Settings, View};

/// I/O of up to this many CPUs' worth is served without a dedicated core.
const ALONE: f64 = 0.5;
/// The demand of a full worker may be this many times its load.
const HIDDEN: f64 = 2.0;
/// The lowest cost of a request with a dedicated core, as a share of its cost without one.
const LEAST_OWN: f64 = 0.1;
/// The known demand of a load counts while the I/O seen is less than the demand divided by this factor: what is seen
/// varies.
const STILL: f64 = 0.9;

/// The load up to which workers are acceptable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The load of a dedicated core, as a share of it.
    usual: f64,
    /// The same while vCPUs wait for CPUs.
    short: f64,
    /// CPUs' worth of I/O for a worker without a dedicated core.
    alone: f64,
    /// The same while vCPUs wait for CPUs. Dedicating a core would slow down the vCPUs, and so the I/O that they submit.
    alone_short: f64,
}

impl Bounds {
    pub(super) fn adding(settings: &Settings) -> Self {
        Self { usual: settings.add_above, short: 1.0, alone: ALONE, alone_short: 1.0 }
    }

    pub(super) fn giving_back(settings: &Settings) -> Self {
        Self { usual: settings.remove_below, short: 1.0, alone: ALONE * 0.75, alone_short: 1.0 }
    }
}

/// The CPUs' worth that I/O and vCPUs would use if both got all they demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) io: f64,
    /// The same I/O without a dedicated core.
    alone: f64,
    computing: f64,
    cores: f64,
    /// Some workers were full, so the demand for I/O may be higher than what was seen.
    pub(super) hidden: bool,
}

impl Demand {
    pub(super) fn of(
        settings: &Settings,
        memory: &PolicyState,
        known: Option<f64>,
        view: &View,
        before: usize,
    ) -> Self {
        let (useful, cores) = (view.useful(), view.cores.len() as f64);
        let computing = view.computing + view.waiting;
        // vCPUs that wait submit less I/O.
        let progress = if computing > 0.0 { view.computing / computing } else { 1.0 };
        let limit = if before == 0 { settings.full * progress } else { settings.full };
        let hidden = view.workers.iter().any(|worker| worker.useful >= limit);
        let progress = progress.max(0.05);
        let longer = view.requests() * memory.longer_alone / progress;
        let seen = useful / progress;
        let seen = if before == 0 { (seen - longer).max(seen * LEAST_OWN) } else { seen };
        let io = match (hidden, known) {
            (false, _) => seen,
            (true, Some(known)) if known > seen * STILL => known.max(seen),
            (true, _) => seen * HIDDEN,
        };
        // Requests that were not seen take longer without a dedicated core, too.
        let alone = io + longer * if seen > 0.0 { io / seen } else { 1.0 };
        Self { io, alone, computing, cores, hidden }
    }

    /// The I/O that this many cores serve within these bounds.
    fn served(&self, cores: usize, bounds: Bounds) -> f64 {
        if cores == 0 {
            let busy = self.alone.min(1.0);
            let progress = (self.cores / (self.computing + busy).max(f64::MIN_POSITIVE)).min(1.0);
            let most = if progress < 1.0 { bounds.alone_short } else { bounds.alone };
            let share = if self.alone > most { most / self.alone } else { 1.0 };
            return self.io * share * progress;
        }
        let left = self.cores - cores as f64;
        let progress = (left / self.computing.max(f64::MIN_POSITIVE)).min(1.0);
        let bound = if progress < 1.0 { bounds.short } else { bounds.usual };
        (cores as f64 * bound).min(self.io * progress)
    }

    /// The smallest number of cores whose throughput is nearly the highest.
    pub(super) fn cores(&self, bounds: Bounds, range: std::ops::RangeInclusive<usize>) -> usize {
        let served = |cores| self.served(cores, bounds);
        let best = range.clone().map(served).fold(0.0, f64::max);
        range.clone().find(|&cores| served(cores) >= best * 0.995).unwrap_or(*range.start())
    }
}
