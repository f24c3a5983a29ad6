//! Kernel arguments that prevent the delivery of interrupts in hardware.

use super::words::{self, WordChange};

struct Harmful {
    name: &'static str,
    /// One of the comma-separated words of the value; empty for an argument without a value.
    word: &'static str,
    why: &'static str,
    source: &'static str,
    /// True if it disables only the posting of interrupts.
    posting: bool,
}

const PARAMETERS: &str = "Linux Documentation/admin-guide/kernel-parameters.txt";

const HARMFUL: [Harmful; 5] = [
    Harmful {
        name: "amd_iommu_intr",
        word: "legacy",
        why: "interrupts of assigned devices are not delivered to vCPUs by the IOMMU",
        source: PARAMETERS,
        posting: true,
    },
    Harmful {
        name: "amd_iommu",
        word: "off",
        why: "without an IOMMU no device's interrupt is delivered to a vCPU, and none can be assigned",
        source: PARAMETERS,
        posting: false,
    },
    Harmful {
        name: "intremap",
        word: "nopost",
        why: "interrupts of assigned devices are remapped but not posted to vCPUs",
        source: "Linux drivers/iommu/irq_remapping.c, irq_remapping_cap",
        posting: true,
    },
    Harmful {
        name: "intremap",
        word: "off",
        why: "without interrupt remapping no device's interrupt is posted to a vCPU",
        source: PARAMETERS,
        posting: false,
    },
    Harmful {
        name: "nointremap",
        word: "",
        why: "without interrupt remapping no device's interrupt is posted to a vCPU",
        source: "Linux drivers/iommu/irq_remapping.c, setup_nointremap",
        posting: false,
    },
];

/// A harmful argument in a command line, with the change that removes it.
pub(super) struct Found {
    pub(super) change: WordChange,
    pub(super) why: &'static str,
    pub(super) source: &'static str,
    /// True if it disables only the posting of interrupts.
    pub(super) posting: bool,
}

/// The harmful words of an argument.
fn of_argument(name: &str) -> impl DoubleEndedIterator<Item = &'static Harmful> {
    let name = name.replace('-', "_");
    HARMFUL.iter().filter(move |one| one.name == name)
}

/// Tests whether a word of an argument's value is harmful.
pub(crate) fn is_harmful(name: &str, word: &str) -> bool {
    of_argument(name).any(|one| one.word == word)
}

/// The changes that let the IOMMU post again.
pub(super) fn of_posting(lines: &[String]) -> Vec<WordChange> {
    // Without remapping the IOMMU cannot post either.
    let remapping = |found: &Found| found.change.old.as_ref().is_some_and(|old| old.contains("intremap"));
    let against = find(lines).into_iter().filter(|found| found.posting || remapping(found));
    against.map(|found| found.change).collect()
}

/// The harmful arguments in these command lines, each once.
pub(super) fn find(lines: &[String]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for one in lines.iter().flat_map(|line| in_line(line)) {
        if !found.iter().any(|other| other.change == one.change) {
            found.push(one);
        }
    }
    found
}

fn in_line(command_line: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for range in words::words(command_line) {
        let word = &command_line[range];
        if word == "--" {
            break;
        }
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let parts: Vec<&str> = value.split(',').collect();
        // Of an argument's words, the last one in the table does the most harm.
        if let Some(worst) = of_argument(name).rev().find(|one| parts.contains(&one.word)) {
            let rest: Vec<&str> = parts.iter().copied().filter(|part| !is_harmful(name, part)).collect();
            let new = (!rest.is_empty()).then(|| format!("{name}={}", rest.join(",")));
            let change = WordChange { old: Some(word.to_owned()), new };
            found.push(Found { change, why: worst.why, source: worst.source, posting: worst.posting });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_and_the_rest_of_its_words_kept() {
        let found = in_line(
            "ro amd_iommu_intr=legacy intremap=nosid,nopost amd-iommu=off intremap=off,nopost nointremap -- \
             intremap=off",
        );
        let told: Vec<_> =
            found.iter().map(|one| (one.change.old.as_deref().unwrap(), one.change.new.as_deref())).collect();
        let expected = [
            ("amd_iommu_intr=legacy", None),
            ("intremap=nosid,nopost", Some("intremap=nosid")),
            ("amd-iommu=off", None),
            ("intremap=off,nopost", None),
            ("nointremap", None),
        ];
        assert_eq!(told, expected);
        assert!(found[1].posting && !found[3].posting);
    }

    #[test]
    fn what_does_no_harm_is_left() {
        assert!(in_line("amd_iommu=on amd_iommu_intr=vapic iommu=pt intremap=on intel_iommu=off").is_empty());
    }
}
