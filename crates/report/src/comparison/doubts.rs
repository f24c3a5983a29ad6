//! Doubts about a comparison, in sentences.

use conclusions::profile_comparison::{Doubt, SideSummary, Which};

use super::compared::Compared;
use crate::format::{count, counted, share, time};
use crate::recordings::words::{lost_percent, not_attributed};

fn side(which: Which) -> &'static str {
    match which {
        Which::Before => "before",
        Which::After => "after",
    }
}

/// A sentence or two for each doubt: first differences between the sides, then faults of recordings.
#[must_use]
pub fn doubts(compared: &Compared<'_>) -> Vec<String> {
    let mut said: Vec<String> =
        compared.unlike.iter().map(|unlike| format!("The sides differ in their {unlike}.")).collect();
    for (name, recordings) in compared.sides() {
        for file in recordings.iter().flat_map(|recordings| &recordings.files) {
            if let Some(damage) = &file.damage {
                said.push(format!("{name}: {} is {damage}.", file.name));
            }
            said.extend(file.warnings.iter().map(|warning| format!("{name}: {}: {warning}", file.name)));
        }
    }
    said.extend(compared.comparison.doubts.iter().map(|doubt| sentence(doubt, compared)));
    said
}

fn sentence(doubt: &Doubt, compared: &Compared<'_>) -> String {
    match *doubt {
        Doubt::Lost { side: which, lost, unread } => {
            let mut what = Vec::new();
            if lost > 0 {
                what.push(format!("{} lost{}", counted(lost, "event"), lost_share(which, compared)));
            }
            if unread > 0 {
                what.push(format!("{} unreadable or too late to be put in order", counted(unread, "event")));
            }
            format!("{}: {}. Its counts are lower bounds.", side(which), what.join(", "))
        }
        Doubt::WithoutVcpu { side: which, exits } => format!("{}: {}.", side(which), not_attributed(exits)),
        Doubt::Vcpus { vms, vcpus } => format!(
            "There are exits of {} with {} before, and of {} with {} after: rates are of all of them together.",
            counted(vms.0 as u64, "VM"),
            counted(vcpus.0 as u64, "vCPU"),
            counted(vms.1 as u64, "VM"),
            counted(vcpus.1 as u64, "vCPU"),
        ),
        Doubt::NoCommonVm => {
            "No VM is known to be on both sides: their numbers differ, and their names are missing or \
             not their own. Leave `vm` and `vcpu` out of --by to compare all VMs together."
                .to_owned()
        }
        Doubt::NoTime { side: which } => format!(
            "{}: how long a recording lasted is not known, or none of its time is selected, so exits are counted by \
             recording.",
            side(which)
        ),
        Doubt::Durations => {
            let [before, after] =
                [&compared.comparison.before, &compared.comparison.after].map(SideSummary::mean_seconds);
            format!(
                "A recording is {} long before, and {} after: if one ended early, or the work took another time, rates \
                 are not comparable. Give the operations of each side instead.",
                time(before * 1e9),
                time(after * 1e9)
            )
        }
        Doubt::Short { side: which } => format!(
            "{}: a recording is too short to tell how exits are clumped, so intervals are likely too narrow.",
            side(which)
        ),
        Doubt::Unsorted { side: which, accesses } => format!(
            "{}: {} of any kind are in no row, as a recording has more different ones than are kept apart.",
            side(which),
            counted_accesses(accesses)
        ),
        Doubt::Empty { side: which } => format!("{}: there is no exit at all.", side(which)),
        // `Doubt` is non-exhaustive: show new variants as they are.
        ref other => format!("{other:?}"),
    }
}

fn counted_accesses(accesses: u64) -> String {
    if accesses == 1 { "1 access".to_owned() } else { format!("{} accesses", count(accesses)) }
}

fn lost_share(which: Which, compared: &Compared<'_>) -> String {
    let recordings = match which {
        Which::Before => compared.before,
        Which::After => compared.after,
    };
    let has_events = recordings.iter().any(|one| one.profile.events.values().any(|&count| count > 0));
    lost_percent(recordings.iter().map(|one| &one.profile))
        .filter(|_| has_events)
        .map_or_else(String::new, |percent| format!(" ({} of all)", share(percent)))
}
