//! The arms of a page, with their marks.

use maud::{Markup, html};
use probe::run::Arm;
use prove::Proof;

use crate::prove::words;

/// The available arms, in the order of the tables.
pub(crate) fn arms(outcome: &Proof) -> Vec<Arm> {
    match words::only_arm(&outcome.arms) {
        None => vec![Arm::Off, Arm::On],
        Some(arm) => vec![arm],
    }
}

/// The legend of colours and shapes of the arms.
pub(crate) fn legend(outcome: &Proof) -> Markup {
    html! {
        p.legend {
            @for arm in arms(outcome) {
                span.(words::arm(arm)) {
                    svg width="12" height="12" aria-hidden="true" { (mark(arm, "6", 6.0)) }
                    "interrupt virtualization " (words::arm(arm))
                }
            }
        }
    }
}

/// A round mark for off, a square one for on: not everyone can distinguish the colours.
pub(crate) fn mark(arm: Arm, x: &str, y: f64) -> Markup {
    let y = format!("{y:.1}");
    match arm {
        Arm::Off => html! { circle.off cx=(x) cy=(y) r="4" {} },
        Arm::On => html! { rect.on x=(x) y=(y) width="7" height="7" transform="translate(-3.5 -3.5)" {} },
    }
}
