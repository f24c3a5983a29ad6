//! Plans and their results, for programs.

use doctor::enable::{Applied, Plan};
use serde::Serialize;

use crate::json::Document;

#[derive(Serialize)]
struct Fields<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// The reason why nothing is done although there are steps; `null` without one.
    refused: Option<&'a str>,
    /// The results of the steps; `null` if nothing was applied.
    applied: Option<&'a Applied>,
}

/// The output of `enable --json` and `disable --json`.
#[must_use]
pub fn json<'a>(
    plan: &'a Plan,
    refused: Option<&'a str>,
    applied: Option<&'a Applied>,
) -> impl Serialize + 'a {
    Document::new(Fields { plan, refused, applied })
}
