//! Which cores are the workers'.

use super::{Core, Layout, QueueView, View};

/// The cores for the workers: those they have, and more or fewer by where the VMs are.
pub(super) fn choose(view: &View, now: &Layout, wanted: usize) -> Vec<Core> {
    let mut chosen: Vec<Core> =
        view.cores.iter().copied().filter(|core| now.0.contains_key(&Some(core.number))).collect();
    let load_of = |node: u32| {
        let there = |queue: &&QueueView| queue.node.is_none_or(|of| of == node);
        view.queues.iter().filter(there).map(|queue| queue.useful).sum::<f64>()
    };
    let crowd = |chosen: &[Core], node: u32| chosen.iter().filter(|core| core.node == node).count() as f64;
    while chosen.len() < wanted {
        let free = view.cores.iter().filter(|core| !chosen.contains(core));
        // The node whose cores have most to do gets the next; the last core of a node is the farthest from CPU 0.
        let need = |core: &Core| load_of(core.node) / (crowd(&chosen, core.node) + 1.0);
        let Some(&next) = free.max_by(|a, b| need(a).total_cmp(&need(b)).then(a.number.cmp(&b.number)))
        else {
            break;
        };
        chosen.push(next);
    }
    while chosen.len() > wanted {
        let need = |core: &Core| load_of(core.node) / crowd(&chosen, core.node).max(1.0);
        let Some((at, _)) = chosen
            .iter()
            .enumerate()
            .min_by(|(_, a), (_, b)| need(a).total_cmp(&need(b)).then(a.number.cmp(&b.number)))
        else {
            break;
        };
        chosen.remove(at);
    }
    chosen
}
