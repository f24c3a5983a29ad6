//! Evidence that interrupt virtualization was in fact on and off in the arms, in a sentence or two.

use probe::Arms;
use prove::Proof;

use crate::format::{self, NONE, counted};

/// The mechanism of the arms and the kernel's reports, or the reason why there is only one arm.
pub(crate) fn evidence(outcome: &Proof) -> String {
    match &outcome.arms {
        Arms::Both { mechanism } => {
            let evidence = &outcome.evidence;
            let seen = match evidence.inhibit_events {
                Some(changes) => format!("the kernel reported {} of it", counted(changes, "change")),
                None => "the kernel's reports of it could not be read".to_owned(),
            };
            let rate = |exits: Option<f64>| exits.map_or_else(|| NONE.to_owned(), format::per_operation);
            let made = format!(
                "Off by inhibit reason {}, set and lifted for this VM alone; {seen}.",
                mechanism.reason()
            );
            let exits = &evidence.exits_per_eoi;
            // Without the measure of EOIs there is no evidence from exits.
            match (exits.off, exits.on) {
                (None, None) => made,
                (off, on) => format!("{made} Exits an EOI: {} off, {} on.", rate(off), rate(on)),
            }
        }
        Arms::OnlyOff { why } => format!("Interrupt virtualization is off on this host: {why}."),
        Arms::OnlyOn { why } => format!("Interrupt virtualization cannot be inhibited here: {why}."),
    }
}
