//! The kernel's command line.

use exits::Isa;

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
    /// `next_arg`). Words after `--` are for init and left out.
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

    /// All values of an argument, in order: `None` for one without `=`. `-` and `_` are equal, as in the
    /// kernel.
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

    /// The argument in force that keeps the IOMMU from posting interrupts to vCPUs. The last word counts: `intremap=on`
    /// revokes an earlier `nopost` or `off`, for AMD's IOMMU as well (`drivers/iommu/irq_remapping.c`, `setup_irqremap`
    /// and `irq_remapping_cap`; `drivers/iommu/amd/init.c`, `parse_amd_iommu_intr`).
    #[must_use]
    pub fn against_posting(&self, isa: Isa) -> Option<&'static str> {
        let words = |name| self.all(name).flatten().flat_map(|value| value.split(','));
        let remapping = words("intremap").fold(None, |before, word| match word {
            "on" => None,
            "off" => Some("intremap=off"),
            "nopost" => Some("intremap=nopost"),
            _ => before,
        });
        let amd = words("amd_iommu_intr").filter(|_| isa == Isa::Svm);
        let legacy = amd.fold(None, |before, word| match word {
            "legacy" => Some("amd_iommu_intr=legacy"),
            "vapic" => None,
            _ => before,
        });
        remapping.or(legacy)
    }
}

impl Argument {
    fn of(word: &str) -> Self {
        match word.split_once('=') {
            Some((name, value)) => Self { name: name.to_owned(), value: Some(value.to_owned()) },
            None => Self { name: word.to_owned(), value: None },
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
        for (line, amd, intel) in [
            ("ro quiet", None, None),
            ("amd_iommu_intr=legacy", legacy, None),
            ("amd_iommu_intr=legacy amd_iommu_intr=vapic", None, None),
            ("amd_iommu_intr=legacy intremap=on", legacy, None),
            ("amd-iommu-intr=legacy", legacy, None),
            ("intremap=nosid,nopost", nopost, nopost),
            ("intremap=nopost amd_iommu_intr=vapic", nopost, nopost),
            ("intremap=nopost intremap=on", None, None),
            ("intremap=nopost,on,off", off, off),
            ("intremap=off", off, off),
            ("ro -- intremap=nopost", None, None),
        ] {
            let arguments = Arguments::parse(line);
            let told = (arguments.against_posting(Isa::Svm), arguments.against_posting(Isa::Vmx));
            assert_eq!(told, (amd, intel), "{line}");
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
