//! The tunings that come with the program.

/// A plan of a tuning that is part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShippedTuning {
    /// Its name.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(ShippedTuning {
            name: $name,
            text: include_str!(concat!("../../../../../plans/tuning/", $name, ".toml")),
        }),*]
    };
}

/// All of them, each in its full size and in one for laboratories.
pub const SHIPPED_TUNING: [ShippedTuning; 4] =
    shipped!["tune-old-guest", "tune-old-guest-lab", "tune-advised", "tune-advised-lab"];

impl ShippedTuning {
    /// The plan with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        SHIPPED_TUNING.into_iter().find(|shipped| shipped.name == name)
    }
}
