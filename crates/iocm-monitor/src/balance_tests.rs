//! The assignment of queues to cores, in simple cases.

use super::*;
use proptest::prelude::*;

fn core(number: u32, node: u32) -> Core {
    Core { number, node }
}

fn queue(number: u32, useful: f64) -> QueueView {
    QueueView { number, worker: 0, node: None, useful, requests: useful * 1e6, bytes: useful * 1e8 }
}

fn bulk(number: u32, useful: f64) -> QueueView {
    QueueView { requests: useful * 1e5, bytes: useful * 1e5 * 65_536.0, ..queue(number, useful) }
}

#[test]
fn heavy_queues_go_apart_and_light_ones_fill_up() {
    let queues = [queue(0, 0.5), queue(1, 0.45), queue(2, 0.2), queue(3, 0.2)];
    let layout = balance(&queues, &[core(6, 0), core(7, 0)], &Layout::default());
    let (most, least) = layout.extremes(&queues);
    assert!(most - least < 0.1, "{layout:?}");
    assert_ne!(layout.cores_by_queue()[&0], layout.cores_by_queue()[&1]);
}

#[test]
fn no_workers_have_no_load() {
    assert_eq!(Layout::default().extremes(&[queue(0, 0.5)]), (0.0, 0.0));
}

#[test]
fn what_is_even_stays_and_what_is_not_moves_little() {
    let cores = [core(6, 0), core(7, 0)];
    let even = [queue(0, 0.3), queue(1, 0.3), queue(2, 0.25), queue(3, 0.3)];
    let now = Layout([(Some(6), [0, 1].into()), (Some(7), [2, 3].into())].into());
    assert_eq!(balance(&even, &cores, &now), now);
    let uneven = [queue(0, 0.5), queue(1, 0.4), queue(2, 0.05), queue(3, 0.05)];
    let wanted = balance(&uneven, &cores, &now);
    let moves = now.actions_to(&wanted).len();
    assert!((1..=2).contains(&moves), "{wanted:?}");
    assert!(wanted.extremes(&uneven).0 <= 0.6, "{wanted:?}");
}

#[test]
fn a_load_that_cannot_be_divided_is_not_moved_about() {
    let one = [queue(0, 0.9), queue(1, 0.01)];
    let now = Layout([(Some(6), [0, 1].into()), (Some(7), [].into())].into());
    let after = balance(&one, &[core(6, 0), core(7, 0)], &now);
    assert_eq!(balance(&one, &[core(6, 0), core(7, 0)], &after), after);
}

#[test]
fn queues_go_to_their_node_and_bulk_apart_from_the_rest() {
    let near = |number, node| QueueView { node: Some(node), ..queue(number, 0.3) };
    let queues = [near(0, 0), near(1, 1), near(2, 0), near(3, 1)];
    let cores_by_queue = balance(&queues, &[core(3, 0), core(7, 1)], &Layout::default()).cores_by_queue();
    assert_eq!([0, 1, 2, 3].map(|queue| cores_by_queue[&queue]), [Some(3), Some(7), Some(3), Some(7)]);

    let mixed = [bulk(0, 0.3), queue(1, 0.3), bulk(2, 0.25), queue(3, 0.25)];
    let cores_by_queue = balance(&mixed, &[core(3, 0), core(7, 0)], &Layout::default()).cores_by_queue();
    assert_eq!(cores_by_queue[&0], cores_by_queue[&2]);
    assert_eq!(cores_by_queue[&1], cores_by_queue[&3]);
}

#[test]
fn without_a_core_one_worker_has_all() {
    let layout = balance(&[queue(0, 0.1), queue(1, 0.0)], &[], &Layout::default());
    assert_eq!(layout, Layout([(None, [0, 1].into())].into()));
}

proptest! {
    #[test]
    fn every_queue_has_one_worker_and_the_load_is_within_graham_s_bound(
        useful in prop::collection::vec(0.0..1.0f64, 1..60),
        cores in 1u32..12,
    ) {
        let queues: Vec<_> = (0..).zip(useful).map(|(number, useful)| queue(number, useful)).collect();
        let cores: Vec<_> = (0..cores).map(|number| core(number, 0)).collect();
        let layout = balance(&queues, &cores, &Layout::default());
        prop_assert_eq!(layout.cores_by_queue().len(), queues.len());
        prop_assert_eq!(layout.cores(), cores.len());
        let total: f64 = queues.iter().map(|queue| queue.useful).sum();
        let heaviest = queues.iter().map(|queue| queue.useful).fold(0.0, f64::max);
        let bound = total / cores.len() as f64 + heaviest;
        prop_assert!(layout.extremes(&queues).0 <= bound + 1e-9);
    }
}
