//! The plan for hosts with Xen: the hypervisor delivers interrupts, and its own command line controls that.

use super::boot::{Boot, Taken, Whose};
use super::files::Files;
use super::persist::title;
use super::plan::{Arm, Effect, Plan, Refusal, Standing, Step, Wish, asked};
use super::words::{self, WordChange};
use crate::xen::apicv_by;
use host::Inspection;

const SOURCE: &str = "Xen docs/misc/xen-command-line.pandoc, apicv";

/// The plan for Xen; `None` if this kernel does not run on Xen.
pub(super) fn plan(files: &Files, boot: &Boot, inspection: &Inspection, wish: Wish) -> Option<Plan> {
    let xen = inspection.xen.as_ref()?;
    let refuse = |why: &str, next: &str| {
        let refusal = Refusal { name: "xen".to_owned(), why: why.to_owned(), next: next.to_owned() };
        Some(Plan::refused(wish, refusal))
    };
    if xen.control.get() != Some(&true) {
        return refuse(
            "this is a guest of Xen, and Xen delivers its interrupts",
            "run exitless in the control domain",
        );
    }
    match inspection.processor.first.get().and_then(|cpu| cpu.vendor.as_deref()) {
        Some("GenuineIntel") => {}
        Some("AuthenticAMD" | "HygonGenuine") => {
            return refuse("Xen has no AVIC, in no release up to 4.22", "use KVM where AVIC is wanted");
        }
        other => {
            let vendor = other.map_or("unknown".to_owned(), |name| format!("{:?}", name.trim()));
            return refuse(
                &format!(
                    "the processor's vendor is {vendor}, and Xen uses interrupt virtualization on Intel only"
                ),
                "see whether Xen lists virtual interrupt delivery: xl dmesg",
            );
        }
    }
    let line = match &xen.info.value {
        Ok(info) => info.field("xen_commandline").unwrap_or_default(),
        Err(absence) => return refuse(&absence.why, "make `xl info` work, then try again"),
    };
    let on = wish.arm == Arm::On;
    let wrong = |line: &str| {
        let words = words::words(line).into_iter().map(|range| line[range].to_owned());
        let wrong = words.filter(|word| apicv_by(word) == Some(!on));
        wrong.map(|word| WordChange { old: Some(word), new: None }).collect::<Vec<_>>()
    };
    // Xen's present arguments count only if the configuration, which the next boot reads, is not known.
    let lines = boot.lines_or(Whose::Xen, line);
    let mut changes: Vec<WordChange> = lines.iter().flat_map(|line| wrong(line)).collect();
    changes.dedup();
    let now =
        words::words(line).into_iter().filter_map(|range| apicv_by(&line[range])).next_back().unwrap_or(true);
    if !on {
        // APICv is on by default.
        changes.push(WordChange::add("apicv=0"));
    }
    let taken = if changes.is_empty() { Taken::Nothing } else { boot.take(Whose::Xen, &changes) };
    let standing = asked(wish.persist, "--persist");
    let step = match taken {
        Taken::Nothing => None,
        Taken::Changes(taken) => Some((standing, taken)),
        Taken::ByHand(why, next) => {
            Some((if wish.persist { Standing::Blocked { why, next } } else { standing }, Vec::new()))
        }
    };
    let step = step.map(|(standing, taken)| {
        let step = Step::of(files, "xen-arguments", Effect::NextBoot, standing, taken);
        step.called(title(&changes), "Xen reads it when it boots").by(SOURCE)
    });
    Some(Plan {
        arm: wish.arm,
        technology: "APICv of Xen".to_owned(),
        place: "xl info, xen_commandline".to_owned(),
        now: Some(if now { "apicv on" } else { "apicv off" }.to_owned()),
        so_already: now == on,
        refusals: Vec::new(),
        steps: step.into_iter().collect(),
        notes: boot.of_this_boot(Whose::Xen, &wrong(line)).into_iter().collect(),
        module: String::new(),
        wanted: on,
    })
}
