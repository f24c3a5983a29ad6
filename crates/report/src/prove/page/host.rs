//! The machine, in a collapsed section.

use host::Fingerprint;
use maud::{Markup, html};
use prove::Proof;

use crate::format::counted;
use crate::page::table;

pub(crate) fn render(outcome: &Proof) -> Markup {
    let fingerprint = &outcome.fingerprint;
    // All known fields differ from an empty fingerprint.
    let facts = Fingerprint::default().differences(fingerprint);
    html! {
        section {
            h2 { "The host" }
            details {
                summary { (counted(facts.len() as u64, "fact")) " about virtual interrupts" }
                (table::facts(facts.iter().map(|(name, _, value)| (html! { code { (name) } }, value.as_deref().unwrap_or_default())), Some("text")))
                @if !fingerprint.missing.is_empty() {
                    h3 { "Not known" }
                    ul { @for missing in &fingerprint.missing { li { (missing) } } }
                }
            }
        }
    }
}
