//! The arms: every combination of the factors' levels.

use std::collections::BTreeMap;

use super::Plan;
use crate::factor::Level;

/// One combination of levels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arm {
    /// The level of each factor, by index, in the plan's order of factors.
    pub levels: Vec<usize>,
}

impl Plan {
    /// All arms, the last factor's level changing fastest.
    pub fn arms(&self) -> Vec<Arm> {
        self.factors.iter().fold(vec![Arm { levels: Vec::new() }], |arms, factor| {
            let longer =
                |arm: &Arm, level| Arm { levels: arm.levels.iter().copied().chain([level]).collect() };
            arms.iter()
                .flat_map(|arm| (0..factor.levels.len()).map(move |level| longer(arm, level)))
                .collect()
        })
    }

    /// The levels of an arm, in the plan's order of factors.
    pub fn levels<'a>(&'a self, arm: &'a Arm) -> impl Iterator<Item = &'a Level> {
        self.factors.iter().zip(&arm.levels).filter_map(|(factor, &level)| factor.levels.get(level))
    }

    /// The names of the arm's levels, by factor.
    pub(crate) fn arm_names(&self, arm: &Arm) -> BTreeMap<String, String> {
        let names = self.levels(arm).map(|level| level.name.clone());
        self.factors.iter().map(|factor| factor.name.clone()).zip(names).collect()
    }

    /// The names of the arm's levels in the plan's order of factors, for file names and progress: `on+split`.
    pub(crate) fn arm_label(&self, arm: &Arm) -> String {
        self.levels(arm).map(|level| level.name.as_str()).collect::<Vec<_>>().join("+")
    }

    /// Tests whether the arm has the baseline level of every factor.
    pub fn is_baseline(&self, arm: &Arm) -> bool {
        self.levels(arm).zip(&self.factors).all(|(level, factor)| level.name == factor.baseline)
    }
}
