//! When a worker should look again at once instead of waiting for kicks.

use super::{Settings, View, WorkerCore};
use std::collections::BTreeMap;

/// A worker that is at least so busy on requests saves kicks and wake-ups by looking again at once.
const BEGIN: f64 = 0.3;
/// One that does so goes on until it is less busy than this.
const END: f64 = 0.15;

/// Which workers should look again at once, by place; `now` says which do.
///
/// Looking costs the whole core. That is nobody's loss where the core is the worker's own and has much to do anyway, and
/// no vCPU waits for one; a worker without a core of its own would take it from them.
#[must_use]
pub fn polling(
    settings: &Settings,
    view: &View,
    now: &BTreeMap<WorkerCore, bool>,
) -> BTreeMap<WorkerCore, bool> {
    let mut wanted = BTreeMap::new();
    for worker in &view.workers {
        let polls = now.get(&worker.core).copied().unwrap_or(false);
        let bound = if polls { END } else { BEGIN };
        let pays = worker.core.is_some() && worker.useful >= bound && view.waiting < settings.short;
        wanted.insert(worker.core, pays);
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::WorkerView;

    fn decided(core: Option<u32>, useful: f64, waiting: f64, now: bool) -> bool {
        let view = View { workers: vec![WorkerView { number: 0, core, useful }], waiting, ..View::default() };
        polling(&Settings::default(), &view, &[(core, now)].into())[&core]
    }

    #[test]
    fn polling_pays_on_a_busy_core_of_its_own_that_nobody_misses() {
        let cases = [
            ("busy", Some(3), 0.5, 0.0, false, true),
            ("hardly busy", Some(3), 0.2, 0.0, false, false),
            ("hardly busy, and polls already", Some(3), 0.2, 0.0, true, true),
            ("idle, and polls still", Some(3), 0.1, 0.0, true, false),
            ("vCPUs wait", Some(3), 0.9, 1.0, true, false),
            ("no core of its own", None, 0.9, 0.0, false, false),
        ];
        for (name, core, useful, waiting, now, wanted) in cases {
            assert_eq!(decided(core, useful, waiting, now), wanted, "{name}");
        }
    }
}
