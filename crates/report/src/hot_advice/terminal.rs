//! The functions in which the exits of advised devices spend their time.

use advice::{Advice, Hot, hot};
use hotspots::{Part, Recording};

use crate::advice::AdviceView;
use crate::advice::words::name;
use crate::format::{counted, share};
use crate::terminal::{NARROWEST, wrapped};
use crate::text::{elided, printable};

/// The maximum number of functions shown for a device.
const MOST_FUNCTIONS: usize = 4;
const LONGEST_NAME: usize = 48;

/// The functions in which the host handles exits, for each device that [`crate::advice::terminal()`] shows.
///
/// No line is wider than `width` columns if `width` is at least 80.
#[must_use]
pub fn terminal(advice: &Advice<'_>, recording: &Recording, view: AdviceView) -> String {
    let width = view.width.max(NARROWEST);
    let mut text = "\nWhere the host spends the time of these exits\n\n".to_owned();
    let mut any = false;
    for vm in &advice.vms {
        for (at, row) in vm.rows.iter().take(view.top).enumerate().filter(|(_, row)| !row.sleeps()) {
            let Some(hot) = hot(vm, row, recording) else { continue };
            any = true;
            let title = format!("{}: {}", name(row.of), said(&hot));
            text += &wrapped(&title, width, &format!("{:2}  ", at + 1), "    ");
        }
    }
    if !any {
        text += &wrapped("No sample met the exits of a device above.", width, "", "");
    }
    let note = "A sample has the exit's reason, not its port or address: devices that share a reason share their samples.";
    text + &wrapped(note, width, "\n  - ", "    ")
}

fn said(hot: &Hot) -> String {
    let reasons: Vec<String> = hot.reasons.iter().map(ToString::to_string).collect();
    let part = |&(part, of): &(Part, stats::Estimate)| {
        let place = match part {
            Part::Kvm => "in KVM",
            Part::Kernel => "in the rest of the kernel",
            Part::Monitor => "in the device model's code",
            Part::Guest => "in the guest",
        };
        format!("{} {place}", share(of.value * 100.0))
    };
    let functions = hot.functions.iter().take(MOST_FUNCTIONS).map(|one| {
        let function = elided(&printable(&one.frame.to_string()), LONGEST_NAME);
        format!("{function} {}", share(one.share.value * 100.0))
    });
    format!(
        "{} of {}: {}; {}",
        counted(hot.samples, "sample"),
        reasons.join(", "),
        hot.parts.iter().map(part).collect::<Vec<_>>().join(", "),
        functions.collect::<Vec<_>>().join(", ")
    )
}
