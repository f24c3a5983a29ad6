//! What I/O and computation ask for, and what a number of cores could serve of it.

use super::{Settings, View};

/// I/O of up to so many CPUs' worth is served without a core of its own; half of that while vCPUs wait for CPUs.
const ALONE: f64 = 0.5;
/// A full worker may want so many times more than it does.
const HIDDEN: f64 = 2.0;
/// How busy workers may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The share of a core.
    usual: f64,
    /// The same while vCPUs wait for CPUs.
    short: f64,
    /// CPUs' worth of I/O for a worker without a core of its own.
    alone: f64,
}

impl Bounds {
    pub(super) fn adding(settings: &Settings) -> Self {
        Self { usual: settings.add_above, short: 1.0, alone: ALONE }
    }

    pub(super) fn giving_back(settings: &Settings) -> Self {
        Self { usual: settings.remove_below, short: 1.0, alone: ALONE * 0.75 }
    }
}

/// What I/O and computation would take if both got all they ask for, in CPUs' worth.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) io: f64,
    computing: f64,
    cores: f64,
    /// Whether workers were full, so that I/O may want more.
    pub(super) hidden: bool,
}

impl Wanted {
    pub(super) fn of(settings: &Settings, known: Option<f64>, view: &View, before: usize) -> Self {
        let (useful, cores) = (view.useful(), view.cores.len() as f64);
        let computing = view.computing + view.waiting;
        // vCPUs that wait ask for less I/O.
        let progress = if computing > 0.0 { view.computing / computing } else { 1.0 };
        let limit = if before == 0 { settings.full * progress } else { settings.full };
        let hidden = view.workers.iter().any(|worker| worker.useful >= limit);
        let seen = useful / progress.max(0.05);
        let io = if hidden { known.unwrap_or(0.0).max(seen * HIDDEN) } else { seen };
        Self { io, computing, cores, hidden }
    }

    /// How much of the I/O is served by so many cores within these bounds.
    fn served(&self, cores: usize, bounds: Bounds) -> f64 {
        if cores == 0 {
            let progress = (self.cores / (self.computing + 2.0 * self.io).max(f64::MIN_POSITIVE)).min(1.0);
            let most = if progress < 1.0 { bounds.alone / 2.0 } else { bounds.alone };
            return self.io.min(most) * progress;
        }
        let left = self.cores - cores as f64;
        let progress = (left / self.computing.max(f64::MIN_POSITIVE)).min(1.0);
        let bound = if progress < 1.0 { bounds.short } else { bounds.usual };
        (cores as f64 * bound).min(self.io * progress)
    }

    /// The fewest cores that serve as much as can be served.
    pub(super) fn cores(&self, bounds: Bounds, range: std::ops::RangeInclusive<usize>) -> usize {
        let served = |cores| self.served(cores, bounds);
        let best = range.clone().map(served).fold(0.0, f64::max);
        range.clone().find(|&cores| served(cores) >= best * 0.995).unwrap_or(*range.start())
    }
}
