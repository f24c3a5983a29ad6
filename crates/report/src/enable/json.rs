//! Plans and their results, for programs.

use doctor::enable::{Applied, Plan};
use serde::Serialize;

use crate::json::Document;

#[derive(Serialize)]
struct Fields<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// The reason why steps that are ready are not made; `null` if there is none.
    refused: Option<&'a str>,
    /// `null` if there was nothing to do.
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
