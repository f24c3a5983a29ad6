//! The tunings that come with the program.

/// A plan of a tuning that is built into the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShippedTuning {
    /// Its name.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(ShippedTuning {
            name: $name,
            text: include_str!(concat!("../../../../plans/tuning/", $name, ".toml")),
        }),*]
    };
}

/// All shipped tunings, each in full size and in a size for laboratories.
pub const SHIPPED_TUNING: [ShippedTuning; 4] =
    shipped!["tune-old-guest", "tune-old-guest-lab", "tune-advised", "tune-advised-lab"];

impl ShippedTuning {
    /// The plan with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        SHIPPED_TUNING.into_iter().find(|shipped| shipped.name == name)
    }
}
