//! The damaged places of a file.

use std::collections::BTreeMap;

use super::file::Flaw;
use crate::Damage;

/// The most places that are kept: a corrupt file may have millions.
const MOST: usize = 1000;

/// The first places in the order of the file, each with the flaw that was found first.
#[derive(Debug)]
pub(super) struct Flaws {
    /// The length of the file.
    length: u64,
    places: BTreeMap<u64, String>,
    /// There are more than [`MOST`].
    more: bool,
}

impl Flaws {
    pub(super) fn new(length: u64) -> Self {
        Self { length, places: BTreeMap::new(), more: false }
    }

    pub(super) fn add(&mut self, flaw: Flaw) {
        // An offset in the file may be beyond its end; then the damage is at the end.
        self.places.entry(flaw.offset.min(self.length)).or_insert(flaw.what);
        if self.places.len() > MOST {
            self.places.pop_last();
            self.more = true;
        }
    }

    /// The first place; a warning has their number.
    pub(super) fn damage(self, warnings: &mut Vec<String>) -> Option<Damage> {
        let (number, more) = (self.places.len(), if self.more { "more than " } else { "" });
        if number > 1 {
            warnings.push(format!(
                "{more}{number} places are damaged; what is whole behind them was read too, and no time was taken \
                 across them"
            ));
        }
        let (offset, what) = self.places.into_iter().next()?;
        Some(Damage { offset, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_is_told_and_all_are_counted_once() {
        let mut flaws = Flaws::new(100);
        for (what, offset) in [("last", 100), ("first", 7), ("again", 7), ("behind", 300)] {
            flaws.add(Flaw::new(what, offset));
        }
        let mut warnings = Vec::new();
        assert_eq!(flaws.damage(&mut warnings), Some(Damage { offset: 7, what: "first".to_owned() }));
        assert!(warnings[0].starts_with("2 places are damaged"), "{warnings:?}");
        assert_eq!(Flaws::new(100).damage(&mut warnings), None);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn any_number_of_them_takes_little_memory() {
        let mut flaws = Flaws::new(u64::MAX);
        (0..10_000).rev().for_each(|offset| flaws.add(Flaw::new("bad", offset)));
        assert_eq!(flaws.places.len(), MOST);
        let mut warnings = Vec::new();
        assert_eq!(flaws.damage(&mut warnings).map(|damage| damage.offset), Some(0));
        assert!(warnings[0].starts_with("more than 1000 places are damaged"), "{warnings:?}");
    }
}
