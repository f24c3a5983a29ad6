use super::*;

fn plan() -> Plan {
    Plan::read(include_str!("plan/small.toml"), "small.toml").unwrap()
}

#[test]
fn each_block_has_every_arm_count_and_workload_once() {
    let plan = plan();
    let schedule = Schedule::new(&plan, 7);
    assert_eq!((schedule.runs_per_block(), schedule.guest_starts_per_block()), (8, 4));
    for block in 0..5 {
        let slots: Vec<Slot> = schedule.block(block).into_iter().flat_map(|arm| arm.slots).collect();
        let positions: Vec<u32> = slots.iter().map(|slot| slot.position).collect();
        assert_eq!(positions, (block * 8..block * 8 + 8).collect::<Vec<_>>());
        let mut cells: Vec<_> = slots.into_iter().map(|slot| slot.cell).collect();
        cells.sort();
        cells.dedup();
        assert_eq!(cells.len(), 8);
        assert!(cells.iter().all(|cell| cell.block == block));
    }
}

#[test]
fn guests_are_added_and_never_taken_away_within_an_arm() {
    let schedule = Schedule::new(&plan(), 7);
    for arm in schedule.block(0) {
        assert!(arm.slots.is_sorted_by_key(|slot| slot.cell.guests));
    }
}

#[test]
fn the_order_comes_from_the_seed_and_differs_between_blocks() {
    let order = |seed| -> Vec<Vec<usize>> {
        let schedule = Schedule::new(&plan(), seed);
        (0..16).map(|block| schedule.order(block)).collect()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let first = order(1).into_iter().filter(|order| order[0] == 0).count();
    assert!((3..=13).contains(&first), "one arm is first in {first} of 16 blocks");
}

#[test]
fn no_arm_is_before_another_in_every_block() {
    for seed in 0..100 {
        let mut schedule = Schedule::new(&plan(), seed);
        let another = schedule.visits[0].clone();
        schedule.visits.extend(vec![another; 3]);
        for block in [0, 2, 8] {
            let mut reversed = schedule.order(block + 1);
            reversed.reverse();
            assert_eq!(schedule.order(block), reversed, "seed {seed}, block {block}");
        }
    }
}

#[test]
fn the_order_of_a_seed_never_changes() {
    // Later versions must keep it for studies that they resume.
    let schedule = Schedule::new(&plan(), 2026);
    let first: Vec<usize> = (0..12).map(|block| schedule.order(block)[0]).collect();
    assert_eq!(first, [0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0]);
}
