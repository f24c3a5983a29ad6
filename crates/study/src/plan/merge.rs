//! The guests of an arm.

use serde::Deserialize as _;

use super::{Arm, Plan};
use guests::{GuestPlan, merged};

impl Plan {
    /// The numbers of guests of this arm; those of the plan if the arm's guests are not valid.
    #[must_use]
    pub fn counts_of(&self, arm: &Arm) -> Vec<u32> {
        self.guests_of(arm).map_or_else(|_| self.guests.counts(), |guests| guests.counts())
    }

    /// The guests of this arm: the plan's, with the tables of its levels merged over them.
    ///
    /// # Errors
    /// The field of the level and its fault, if the guests are not valid with it.
    pub fn guests_of(&self, arm: &Arm) -> Result<GuestPlan, (String, String)> {
        let at = |factor: usize, level: usize| format!("factors[{factor}].levels[{level}].guests");
        let mut guests = self.guests.clone();
        for ((factor, &index), level) in arm.levels.iter().enumerate().zip(self.levels(arm)) {
            let over = level.guest_settings();
            if over.is_empty() {
                continue;
            }
            let bad = |what: String| (at(factor, index), what);
            let base = toml::Table::try_from(&guests).map_err(|error| bad(error.to_string()))?;
            guests = GuestPlan::deserialize(merged(&base, [&over]))
                .map_err(|error| bad(error.message().to_owned()))?;
            if let Some(problem) = guests.problems().into_iter().next() {
                return Err(bad(problem));
            }
        }
        Ok(guests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(level: &str) -> Result<Plan, super::super::BadPlan> {
        let text = include_str!("small.toml").replace("name = \"on\"", &format!("name = \"on\"\n{level}"));
        Plan::read(&text, "small.toml")
    }

    #[test]
    fn a_level_changes_the_guests_of_its_arms_only() {
        let plan = plan("guests = { counts = [3] }").unwrap();
        let counts: Vec<_> = plan.arms().iter().map(|arm| plan.guests_of(arm).unwrap().counts()).collect();
        assert_eq!(counts, [vec![1, 2], vec![3]]);
    }

    #[test]
    fn a_level_that_breaks_the_guests_is_named_with_its_line() {
        let bad = plan("guests = { colour = 3 }").unwrap_err().to_string();
        assert!(bad.starts_with("small.toml:19: factors[0].levels[1].guests: "), "{bad}");
        assert!(bad.contains("colour"), "{bad}");
    }
}
