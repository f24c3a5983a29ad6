use super::*;
use proptest::prelude::*;

fn exits(count: u64, ns: &[u64]) -> Exits {
    let mut exits = Exits { count, ..Exits::default() };
    ns.iter().for_each(|&ns| exits.handling.add(ns));
    exits
}

fn access(name: &str) -> Access {
    name.parse().unwrap()
}

#[test]
fn a_piece_takes_the_time_of_its_access_and_its_share_of_the_rest() {
    // Each event comes 100 ns after its exit: 4 exits of 300 and 700 ns, with accesses of 200 and 600 ns.
    let whole = exits(4, &[300, 300, 700, 700]);
    let (eoi, icr) = (exits(2, &[200, 200]), exits(2, &[600, 600]));
    let pieces = split(&whole, &[(access("EOI:W"), &eoi), (access("ICR:W"), &icr)], true);
    let seen: Vec<_> = pieces.iter().map(|piece| (piece.part, piece.exits, piece.time_ns)).collect();
    assert_eq!(seen, [(Part::Access(access("EOI:W")), 2, 600), (Part::Access(access("ICR:W")), 2, 1400)]);
    let untimed = split(&whole, &[(access("EOI:W"), &eoi), (access("ICR:W"), &icr)], false);
    assert!(untimed.iter().all(|piece| piece.time_ns == 1000));
}

#[test]
fn what_is_not_explained_is_the_rest() {
    let whole = exits(10, &[100; 10]);
    let eoi = exits(4, &[50; 4]);
    let pieces = split(&whole, &[(access("EOI:W"), &eoi)], true);
    assert_eq!(pieces.iter().map(|piece| piece.exits).collect::<Vec<_>>(), [4, 6]);
    assert_eq!(pieces[1].part, Part::Rest);
    assert_eq!(pieces.iter().map(|piece| piece.time_ns).sum::<u64>(), 1000);
    assert_eq!(split(&whole, &[], true)[0].exits, 10);
}

proptest! {
    #[test]
    fn pieces_sum_up_to_the_whole(
        whole in 0..5000u64,
        ns in proptest::collection::vec(0..1_000_000u64, 0..8),
        counts in proptest::collection::vec((0..3000u64, proptest::collection::vec(0..1_000_000u64, 0..4)), 0..6),
    ) {
        let whole = exits(whole.max(ns.len() as u64), &ns);
        let parts: Vec<Exits> = counts.iter().map(|(count, ns)| exits((*count).max(ns.len() as u64), ns)).collect();
        let names = ["EOI:W", "ICR:W", "TPR:W", "TMICT:W", "ID:R", "SPIV:W"];
        let accesses: Vec<_> = names.iter().map(|name| access(name)).zip(&parts).collect();
        let pieces = split(&whole, &accesses, true);
        prop_assert_eq!(pieces.iter().map(|piece| piece.exits).sum::<u64>(), whole.count);
        let time: u64 = pieces.iter().map(|piece| piece.time_ns).sum();
        prop_assert_eq!(time, if whole.count == 0 { 0 } else { whole.handling.total_ns() });
    }
}
