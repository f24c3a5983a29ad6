//! Interrupts of assigned devices that the IOMMU posts. On both vendors, a kernel argument switches this part
//! independently of the CPU's.

use super::boot::{Boot, Whose};
use super::files::Files;
use super::harmful;
use super::persist::{by_boot_loader, title};
use super::plan::{Arm, Effect, Plan, Refusal, Standing, Step, Wish};
use super::refusal;
use super::words::{self, WordChange};
use exits::Isa;
use host::Inspection;
use host::inspection::Arguments;

const SOURCE: &str = "Linux Documentation/admin-guide/kernel-parameters.txt, amd_iommu_intr; \
                      drivers/iommu/irq_remapping.c, setup_irqremap";

/// The vendor of the IOMMU, on which the kernel argument depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Iommu {
    Amd,
    Intel,
}

impl Iommu {
    /// The argument, and the word in it that disables posting.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Amd => ("amd_iommu_intr", "legacy"),
            Self::Intel => ("intremap", "nopost"),
        }
    }

    const fn technology(self) -> &'static str {
        match self {
            Self::Amd => "Device interrupts by the IOMMU (AVIC's part of it)",
            Self::Intel => "Posted interrupts of devices (the IOMMU's part of APICv)",
        }
    }

    /// Tests whether a command line disables posting.
    fn is_off(self, line: &str) -> bool {
        let isa = if self == Self::Amd { Isa::Svm } else { Isa::Vmx };
        Arguments::parse(line).against_posting(isa).is_some()
    }

    /// The changes of words that disable posting in these command lines.
    fn off(self, lines: &[String]) -> Vec<WordChange> {
        let (argument, word) = self.words();
        let mut changes = Vec::new();
        for line in lines.iter().filter(|line| !self.is_off(line)) {
            let said = values(line, argument).last().map(|(old, value)| WordChange {
                old: Some(old.to_owned()),
                new: Some(match self {
                    Self::Amd => format!("{argument}={word}"),
                    Self::Intel => format!("{argument}={value},{word}"),
                }),
            });
            let change = said.unwrap_or_else(|| WordChange::add(format!("{argument}={word}")));
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
        changes
    }
}

/// The words of a command line that set an argument, each with its value; `-` and `_` are equal.
fn values<'a>(line: &'a str, argument: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let all = words::words(line).into_iter().map(move |range| &line[range]);
    all.take_while(|word| *word != "--").filter_map(move |word| {
        let (name, value) = word.split_once('=')?;
        (name.replace('-', "_") == argument).then_some((word, value))
    })
}

/// The plan for the IOMMU's part alone.
pub(super) fn plan(files: &Files, boot: &Boot, inspection: &Inspection, wish: Wish) -> Plan {
    if inspection.xen.is_some() {
        return Plan::refused(
            wish,
            Refusal {
                name: "xen".to_owned(),
                why: "Xen controls the IOMMU, by its own command line (iommu=intpost)".to_owned(),
                next: "change iommu= of Xen's command line by hand".to_owned(),
            },
        );
    }
    let flags = inspection.processor.flags.get();
    let vendor = inspection.processor.first.get().and_then(|cpu| cpu.vendor.as_deref());
    let amd = flags.is_some_and(|flags| flags.contains("svm"))
        || matches!(vendor, Some("AuthenticAMD" | "HygonGenuine"));
    let iommu = if amd { Iommu::Amd } else { Iommu::Intel };
    let now = inspection.fingerprint.cmdline.clone().unwrap_or_default();
    let on = wish.arm == Arm::On;
    let lines = boot.lines_or(Whose::Linux, &now);
    let changes = if on { harmful::of_posting(&lines) } else { iommu.off(&lines) };
    let so_already = iommu.is_off(&now) != on;
    let mut steps = Vec::new();
    if !changes.is_empty() {
        let why = if on {
            "so that the IOMMU delivers interrupts of assigned devices to running vCPUs"
        } else {
            "the host then takes the interrupts of assigned devices; guests' IPIs and timers are not affected"
        };
        let step = by_boot_loader(files, boot, &changes, wish);
        steps.extend(step.map(|step| step.called(title(&changes), why).by(SOURCE)));
    }
    if wish.reload && !so_already {
        let standing = Standing::Blocked {
            why: "the IOMMU is set up once, when the kernel boots".to_owned(),
            next: "use --persist, and reboot".to_owned(),
        };
        let step = Step::of(files, "reload", Effect::Now, standing, Vec::new());
        steps.push(step.called("Reinitialize the IOMMU", "the argument is read while the kernel boots"));
    }
    let word = if on { "enable" } else { "disable" };
    let other = if on { "disable" } else { "enable" };
    let mut notes = vec![format!(
        "This {word}s only the IOMMU's part; `exitless {other} --device-interrupts` does the opposite. `exitless doctor` \
         says whether the IOMMUs can post."
    )];
    if on {
        notes.extend(boot.of_this_boot(Whose::Linux, &harmful::of_posting(std::slice::from_ref(&now))));
    }
    Plan {
        arm: wish.arm,
        technology: iommu.technology().to_owned(),
        place: "/proc/cmdline".to_owned(),
        now: Some(
            if iommu.is_off(&now) { "what disables it" } else { "free of arguments that disable it" }
                .to_owned(),
        ),
        so_already,
        refusals: refusal::of_container(files).into_iter().collect(),
        steps,
        notes,
        module: String::new(),
        wanted: on,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        for (line, amd, intel) in [
            ("ro quiet", false, false),
            ("amd_iommu_intr=legacy", true, false),
            ("amd_iommu_intr=legacy amd_iommu_intr=vapic", false, false),
            ("amd-iommu-intr=legacy", true, false),
            ("intremap=nosid,nopost", true, true),
            ("intremap=nopost intremap=on", false, false),
            ("intremap=off", true, true),
            ("ro -- intremap=nopost", false, false),
        ] {
            assert_eq!((Iommu::Amd.is_off(line), Iommu::Intel.is_off(line)), (amd, intel), "{line}");
        }
    }

    #[test]
    fn what_is_said_is_changed_where_it_stands() {
        let off = |iommu: Iommu, line: &str| {
            let changes = iommu.off(&[line.to_owned()]);
            let new = words::changed(line, &changes);
            assert!(iommu.is_off(&new), "{new}");
            assert!(iommu.off(std::slice::from_ref(&new)).is_empty(), "{new}");
            new
        };
        assert_eq!(off(Iommu::Amd, "ro quiet"), "ro quiet amd_iommu_intr=legacy");
        assert_eq!(off(Iommu::Amd, "ro amd_iommu_intr=vapic quiet"), "ro amd_iommu_intr=legacy quiet");
        assert_eq!(off(Iommu::Intel, "ro quiet -- single"), "ro quiet intremap=nopost -- single");
        assert_eq!(off(Iommu::Intel, "intremap=on ro"), "intremap=on,nopost ro");
        assert_eq!(off(Iommu::Intel, "intremap=nosid ro"), "intremap=nosid,nopost ro");
    }
}
