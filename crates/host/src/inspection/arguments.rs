//! The kernel's command line.

use exits::Isa;
use std::fmt;

/// One argument of the kernel's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its name, as written.
    pub name: String,
    /// The text after the `=`, without quotes.
    pub value: Option<String>,
}

/// The kernel's command line, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(pub Vec<Argument>);

impl Arguments {
    /// Parses a command line: words separated by blanks, except inside double quotes (`lib/cmdline.c`,
    /// `next_arg`). Words after `--` are for init and are omitted.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        let mut found = Vec::new();
        let mut word = String::new();
        let mut quoted = false;
        for character in line.chars().chain([' ']) {
            match character {
                '"' => quoted = !quoted,
                blank if blank.is_whitespace() && !quoted => {
                    let word = std::mem::take(&mut word);
                    if word == "--" {
                        break;
                    }
                    if !word.is_empty() {
                        found.push(Argument::of(&word));
                    }
                }
                other => word.push(other),
            }
        }
        if !word.is_empty() {
            // The quote is not closed.
            found.push(Argument::of(word.trim_end()));
        }
        Self(found)
    }

    /// The value of each occurrence of an argument, in order; `None` for one without `=`. `-` and `_` are
    /// equal, as in the kernel.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
        let name = name.replace('-', "_");
        let same = move |one: &&Argument| one.name.replace('-', "_") == name;
        self.0.iter().filter(same).map(|one| one.value.as_deref())
    }

    /// The last value, which is the effective one for most arguments.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<Option<&str>> {
        self.all(name).last()
    }

    /// Tests whether this is one of the comma-separated words of an argument: `amd_iommu_intr=legacy`,
    /// `iommu=pt,force`.
    #[must_use]
    pub fn has_word(&self, name: &str, word: &str) -> bool {
        self.all(name).flatten().any(|value| value.split(',').any(|one| one == word))
    }

    /// The effective argument that disables interrupt remapping. The last word counts, and `intremap=on` revokes
    /// `nointremap` as well (`drivers/iommu/irq_remapping.c`, `setup_nointremap` and `setup_irqremap`).
    #[must_use]
    pub fn against_remapping(&self) -> Option<&Argument> {
        self.remapping().0
    }

    /// The effective argument that stops the IOMMU from posting interrupts to vCPUs. The last word counts:
    /// `intremap=on` revokes an earlier `nopost` or `off`, for AMD's IOMMU as well (`drivers/iommu/irq_remapping.c`,
    /// `setup_irqremap` and `irq_remapping_cap`; `drivers/iommu/amd/init.c`, `parse_amd_iommu_intr`).
    #[must_use]
    pub fn against_posting(&self, isa: Isa) -> Option<&Argument> {
        let (remapping, posting) = self.remapping();
        let amd = self.words("amd_iommu_intr").filter(|_| isa == Isa::Svm);
        let legacy = amd.fold(None, |before, (argument, word)| match word {
            "legacy" => Some(argument),
            "vapic" => None,
            _ => before,
        });
        remapping.or(posting).or(legacy)
    }

    /// The effective arguments that disable remapping and posting.
    fn remapping(&self) -> (Option<&Argument>, Option<&Argument>) {
        let (mut remapping, mut posting) = (None, None);
        for (argument, word) in self.0.iter().flat_map(Argument::words) {
            match (argument.name.as_str(), word) {
                ("nointremap", _) => remapping = Some(argument),
                ("intremap", "on") => (remapping, posting) = (None, None),
                ("intremap", "off") => (remapping, posting) = (Some(argument), Some(argument)),
                ("intremap", "nopost") => posting = Some(argument),
                _ => {}
            }
        }
        (remapping, posting)
    }

    /// The comma-separated words of all occurrences of an argument, each with its occurrence.
    fn words<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Argument, &'a str)> {
        let same = move |one: &&Argument| one.name.replace('-', "_") == name;
        self.0.iter().filter(same).flat_map(Argument::words)
    }
}

impl Argument {
    fn of(word: &str) -> Self {
        match word.split_once('=') {
            Some((name, value)) => Self { name: name.to_owned(), value: Some(value.to_owned()) },
            None => Self { name: word.to_owned(), value: None },
        }
    }

    /// The comma-separated words of its value, each with this argument; one empty word if it has no value.
    fn words(&self) -> impl Iterator<Item = (&Self, &str)> {
        self.value.as_deref().unwrap_or_default().split(',').map(move |word| (self, word))
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_word_decides_on_posting() {
        let (nopost, off, legacy) =
            (Some("intremap=nopost"), Some("intremap=off"), Some("amd_iommu_intr=legacy"));
        let (nosid, last) = (Some("intremap=nosid,nopost"), Some("intremap=nopost,on,off"));
        for (line, amd, intel) in [
            ("ro quiet", None, None),
            ("amd_iommu_intr=legacy", legacy, None),
            ("amd_iommu_intr=legacy amd_iommu_intr=vapic", None, None),
            ("amd_iommu_intr=legacy intremap=on", legacy, None),
            ("amd-iommu-intr=legacy", Some("amd-iommu-intr=legacy"), None),
            ("intremap=nosid,nopost", nosid, nosid),
            ("intremap=nopost amd_iommu_intr=vapic", nopost, nopost),
            ("intremap=nopost intremap=on", None, None),
            ("intremap=nopost,on,off", last, last),
            ("intremap=off", off, off),
            ("ro nointremap", Some("nointremap"), Some("nointremap")),
            ("nointremap intremap=on", None, None),
            ("ro -- intremap=nopost", None, None),
        ] {
            let arguments = Arguments::parse(line);
            let told =
                [Isa::Svm, Isa::Vmx].map(|isa| arguments.against_posting(isa).map(Argument::to_string));
            assert_eq!(told, [amd, intel].map(|argument| argument.map(str::to_owned)), "{line}");
        }
    }

    #[test]
    fn the_last_word_decides_on_remapping() {
        for (line, argument) in [
            ("ro quiet intremap=nopost", None),
            ("ro nointremap", Some("nointremap")),
            ("intremap=off,nosid", Some("intremap=off,nosid")),
            ("intremap=off intremap=nosid", Some("intremap=off")),
            ("nointremap intremap=nosid,on", None),
        ] {
            let arguments = Arguments::parse(line);
            let told = arguments.against_remapping().map(Argument::to_string);
            assert_eq!(told.as_deref(), argument, "{line}");
        }
    }

    #[test]
    fn words_quotes_and_the_end() {
        let line = "BOOT_IMAGE=/vmlinuz ro intel_iommu=on,sm_on kvm-amd.avic=0 kvm_amd.avic=1 quiet dyndbg=\"file a +p\" -- x=1";
        let arguments = Arguments::parse(line);
        assert_eq!(arguments.last("kvm_amd.avic"), Some(Some("1")));
        assert_eq!(arguments.all("kvm_amd.avic").collect::<Vec<_>>(), [Some("0"), Some("1")]);
        assert_eq!(arguments.last("quiet"), Some(None));
        assert_eq!(arguments.last("dyndbg"), Some(Some("file a +p")));
        assert_eq!(arguments.last("x"), None);
        assert!(arguments.has_word("intel_iommu", "sm_on") && !arguments.has_word("intel_iommu", "off"));
        assert_eq!(Arguments::parse("a=\"b c").last("a"), Some(Some("b c")));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "[a-z=\" ,\\-]{0,60}") {
            let _ = Arguments::parse(&line);
        }
    }
}
