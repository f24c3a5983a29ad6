//! Splits the exits of a reason by the accessed register.

use super::Part;
use exits::{Access, Exits, HandlingTime};

/// One part of a reason's exits.
#[derive(Debug)]
pub struct Piece<'a> {
    /// The part of the reason.
    pub part: Part,
    /// The number of its exits.
    pub exits: u64,
    /// Their handling time in nanoseconds; an estimate.
    pub time_ns: u64,
    /// Handling times whose distribution stands for that of the part.
    pub times: &'a HandlingTime,
}

/// Splits `whole` by `accesses`; exits without an access are [`Part::Rest`].
///
/// The exits and times of the pieces add up to those of `whole`. The time of an access starts at its event (see
/// `docs/recordings.md`), so a piece's mean is that of the access plus the difference between the mean exit and the mean
/// access. `timed` is false if the times of accesses must not be used. If there are more accesses than exits (after
/// losses), exits are distributed in proportion.
#[must_use]
pub fn split<'a>(whole: &'a Exits, accesses: &[(Access, &'a Exits)], timed: bool) -> Vec<Piece<'a>> {
    let explained = accesses.iter().fold(0u64, |sum, (_, exits)| sum.saturating_add(exits.count));
    let mean = whole.handling.mean_ns().unwrap_or(0.0);
    let of_access = |exits: &Exits| exits.handling.mean_ns().filter(|_| timed);
    let known = |exits: &Exits| of_access(exits).map(|mean| mean * exits.count as f64);
    let accessing: f64 = accesses.iter().filter_map(|(_, exits)| known(exits)).sum();
    let offset = if explained == 0 { 0.0 } else { (mean - accessing / explained as f64).max(0.0) };

    let rest = whole.count.saturating_sub(explained);
    let mut weights: Vec<(Part, u64, f64, &HandlingTime)> = accesses
        .iter()
        .map(|&(access, exits)| {
            let each = of_access(exits).map_or(mean, |of_access| of_access + offset);
            let times = if exits.handling.count() == 0 { &whole.handling } else { &exits.handling };
            (Part::Access(access), exits.count, each * exits.count as f64, times)
        })
        .collect();
    weights.push((Part::Rest, rest, mean * rest as f64, &whole.handling));

    let mut counts = Dealer::new(whole.count, weights.iter().map(|&(_, count, ..)| count as f64).sum());
    let mut pieces = Vec::new();
    let mut shares = Vec::new();
    for (part, count, weight, times) in weights {
        let exits = counts.deal(count as f64);
        if exits > 0 {
            pieces.push(Piece { part, exits, time_ns: 0, times });
            shares.push(weight);
        }
    }
    if shares.iter().sum::<f64>() <= 0.0 {
        shares = pieces.iter().map(|piece| piece.exits as f64).collect();
    }
    let mut time = Dealer::new(whole.handling.total_ns(), shares.iter().sum());
    for (piece, share) in pieces.iter_mut().zip(shares) {
        piece.time_ns = time.deal(share);
    }
    pieces
}

/// Distributes an integer in proportion to weights, without a remainder.
struct Dealer {
    whole: u64,
    weights: f64,
    seen: f64,
    dealt: u64,
}

impl Dealer {
    fn new(whole: u64, weights: f64) -> Self {
        Self { whole, weights, seen: 0.0, dealt: 0 }
    }

    fn deal(&mut self, weight: f64) -> u64 {
        if self.weights <= 0.0 {
            return 0;
        }
        self.seen += weight;
        let share = (self.seen / self.weights).clamp(0.0, 1.0);
        let until = ((self.whole as f64 * share).round() as u64).clamp(self.dealt, self.whole);
        let given = until - self.dealt;
        self.dealt = until;
        given
    }
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
