//! The kernel's command line.

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
