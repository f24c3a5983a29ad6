//! The origin and version of a kernel's code, by its release.

use host::inspection::Kernel;
use std::cmp::Ordering;

/// The tree that a release is built from. The version of a vendor's tree shows only its base, not the changes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tree {
    /// Mainline or stable, or a distribution's tree that follows the stable releases.
    Stable,
    /// Oracle's Unbreakable Enterprise Kernel.
    Uek,
    /// A vendor's tree with backports under its own numbers: Red Hat's and its derivatives, SUSE's, Ubuntu's.
    Vendor,
}

/// A vendor that backports changes under its own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// Red Hat, and distributions that build its tree: CentOS Stream, Rocky, Alma.
    RedHat,
    /// SUSE.
    Suse,
    /// Canonical.
    Ubuntu,
    /// Proxmox, which builds Ubuntu's tree.
    Proxmox,
    /// Oracle.
    Oracle,
    /// OpenAnolis (Alibaba).
    Anolis,
    /// openEuler (Huawei).
    OpenEuler,
    /// Another vendor, known only by the form of its releases.
    Other,
}

impl Vendor {
    /// The vendor's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RedHat => "Red Hat",
            Self::Suse => "SUSE",
            Self::Ubuntu => "Ubuntu",
            Self::Proxmox => "Proxmox",
            Self::Oracle => "Oracle",
            Self::Anolis => "Anolis",
            Self::OpenEuler => "openEuler",
            Self::Other => "this vendor",
        }
    }

    /// The place where the vendor lists the changes in its kernel, for people.
    #[must_use]
    pub const fn changes(self) -> &'static str {
        match self {
            Self::RedHat | Self::Oracle | Self::Anolis | Self::OpenEuler => {
                "`rpm -qf --changelog /lib/modules/$(uname -r)/vmlinuz`"
            }
            Self::Suse => "`rpm -q --changelog kernel-default`",
            Self::Ubuntu => "`apt-get changelog linux-modules-$(uname -r)`",
            Self::Other => "the change log of the kernel's package",
            Self::Proxmox => "the change log of the Ubuntu kernel that Proxmox's change log names",
        }
    }
}

/// A release, with the parts that rules compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The output of `uname -r`.
    pub text: String,
    /// Major and minor version.
    pub version: (u16, u16),
    /// The stable release (`49` of 6.12.49); `None` if the text does not contain it.
    pub patch: Option<u16>,
    /// The release candidate (`2` of 5.6.0-rc2); `None` for a release.
    pub candidate: Option<u16>,
    /// The tree that it is built from.
    pub tree: Tree,
    /// The vendor; `None` for stable trees.
    pub vendor: Option<Vendor>,
    /// The numbers after the dash in releases of vendors' trees (`[204, 146, 1]` of
    /// 5.15.0-204.146.1.el8uek.x86_64).
    pub build: Vec<u32>,
}

impl Release {
    /// The release of an inspected kernel; `None` if it is not known.
    #[must_use]
    pub fn of(kernel: &Kernel) -> Option<Self> {
        Self::parse(kernel.release.get()?, kernel.version.get().map(String::as_str))
    }

    /// Parses a release (`uname -r`). The build (`uname -v`) helps, because Debian's contains the stable release.
    /// `None` if the release does not start with two numbers.
    #[must_use]
    pub fn parse(text: &str, build: Option<&str>) -> Option<Self> {
        let text = text.trim();
        let (base, rest) = text.split_once('-').unwrap_or((text, ""));
        let mut numbers = base.split('.').map(leading);
        let version = (numbers.next()??, numbers.next()??);
        let own = numbers.next().flatten();
        let vendor = match own {
            Some(patch) if is_of_kernel_org(version, patch, rest) => None,
            _ => vendor(text, build).or_else(|| vendor_by_form(own, rest)),
        };
        let tree = match vendor {
            None => Tree::Stable,
            Some(Vendor::Oracle) => Tree::Uek,
            Some(_) => Tree::Vendor,
        };
        let patch = match tree {
            Tree::Stable => build.and_then(|build| debian_patch(build, version)).or(own),
            Tree::Uek | Tree::Vendor => None,
        };
        // Fedora's release has a number before it.
        let candidate = rest.split(['-', '.', '+']).find_map(|word| leading(word.strip_prefix("rc")?));
        let build = rest.split(['.', '-']).map_while(|word| word.parse().ok()).collect();
        Some(Self { text: text.to_owned(), version, patch, candidate, tree, vendor, build })
    }

    /// Tests whether its version is at least this mainline version.
    #[must_use]
    pub fn reaches(&self, major: u16, minor: u16) -> bool {
        self.version >= (major, minor)
    }

    /// Compares its build with another one of the same tree; `None` if the versions differ.
    #[must_use]
    pub fn compare_build(&self, version: (u16, u16), build: &[u32]) -> Option<Ordering> {
        (self.version == version).then(|| self.build.as_slice().cmp(build))
    }
}

fn leading(text: &str) -> Option<u16> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Tests for a build of kernel.org's release whose name has the marks of a vendor. `rest` is the part after the first
/// dash.
fn is_of_kernel_org((major, minor): (u16, u16), patch: u16, rest: &str) -> bool {
    let number = rest.split(['.', '-']).next().unwrap_or_default();
    // 6.1.110-1.el9.elrepo.x86_64: kernel-lt and kernel-ml for Red Hat's distributions.
    rest.split(['.', '-']).any(|word| word == "elrepo")
        // 6.16.7-061607-generic: Ubuntu's builds of mainline.
        || number == format!("{major:02}{minor:02}{patch:02}")
        // 7.2.7-1-default: openSUSE Tumbleweed. SUSE's own trees have no patch level or larger numbers
        // (6.4.0-150600.21-default), but in 5.3.18-57-default.
        || rest.ends_with("-default")
            && (major, minor) >= (6, 0)
            && patch > 0
            && number.parse().is_ok_and(|number: u32| number < 1000)
}

/// The vendor, by marks in a release and its build.
fn vendor(text: &str, build: Option<&str>) -> Option<Vendor> {
    /// Ubuntu's flavours, the only mark if the build is not known.
    const UBUNTU: [&str; 4] = ["generic", "lowlatency", "aws", "gcp"];
    let words = text.split(['.', '-', '_', '+']);
    let any = |test: &dyn Fn(&str) -> bool| words.clone().any(test);
    let begins = |start: &'static str| {
        move |one: &str| {
            one.strip_prefix(start).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        }
    };
    if text.contains("uek") {
        return Some(Vendor::Oracle);
    }
    // Proxmox builds Ubuntu's tree, but without Ubuntu's marks.
    if any(&|one| one == "pve") {
        return Some(Vendor::Proxmox);
    }
    if build.is_some_and(|build| build.contains("-Ubuntu ")) || any(&|one| UBUNTU.contains(&one)) {
        return Some(Vendor::Ubuntu);
    }
    [
        (any(&begins("el")), Vendor::RedHat),
        (any(&begins("an")) || any(&begins("al")), Vendor::Anolis),
        (any(&begins("oe")), Vendor::OpenEuler),
        (any(&|one| one == "default"), Vendor::Suse),
    ]
    .into_iter()
    .find_map(|(is, vendor)| is.then_some(vendor))
}

/// The vendor by the form of a release, of which `rest` is the part after the first dash.
fn vendor_by_form(patch: Option<u16>, rest: &str) -> Option<Vendor> {
    /// Marks of distributions that build stable releases, and of release candidates.
    const STABLE: [&str; 4] = ["deb", "fc", "mga", "rc"];
    /// Ubuntu's flavours that others could have too.
    const UBUNTU: [&str; 8] = ["azure", "oracle", "kvm", "nvidia", "raspi", "oem", "intel", "ibm"];
    /// Ends of releases of Debian, and of other distributions that build stable releases.
    const FOLLOWERS: [&str; 5] = ["amd64", "686", "pae", "lts", "MANJARO"];
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_mark = |word: &str| {
        let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_short = (2..4).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase());
        is_short && name.len() < word.len() && !STABLE.contains(&name)
    };
    let mut dashes = rest.split('-');
    let number = dashes.next().unwrap_or_default();
    let mut words = number.split('.');
    if !words.next().is_some_and(is_number) {
        return None;
    }
    // 5.14.0-427.31.1.vz9.80.31
    if words.any(is_mark) {
        return Some(Vendor::Other);
    }
    // 6.8.0-1015-azure
    let flavour = dashes.next_back().filter(|_| patch == Some(0))?;
    if is_number(number) && UBUNTU.contains(&flavour) {
        return Some(Vendor::Ubuntu);
    }
    (!FOLLOWERS.contains(&flavour) && !is_number(flavour)).then_some(Vendor::Other)
}

/// The patch level in Debian's build, such as `#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1 (2024-11-22)`, whose
/// release is `6.1.0-28-amd64`.
fn debian_patch(build: &str, version: (u16, u16)) -> Option<u16> {
    let mut numbers = build.split("Debian ").nth(1)?.split(['.', '-', '~', '+', ' ']).map(leading);
    let told = (numbers.next()??, numbers.next()??);
    (told == version).then(|| numbers.next().flatten()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn releases_of_many_houses() {
        let read = |text: &str| {
            let found = Release::parse(text, None).unwrap();
            (found.version, found.patch, found.tree)
        };
        assert_eq!(read("6.12.49+deb13-amd64"), ((6, 12), Some(49), Tree::Stable));
        assert_eq!(read("6.12.49-1-lts"), ((6, 12), Some(49), Tree::Stable));
        assert_eq!(read("5.14.0-427.13.1.el9_4.x86_64"), ((5, 14), None, Tree::Vendor));
        assert_eq!(read("6.8.0-45-generic"), ((6, 8), None, Tree::Vendor));
        assert_eq!(read("6.4.0-150600.21-default"), ((6, 4), None, Tree::Vendor));
        assert_eq!(read("6.8.12-4-pve"), ((6, 8), None, Tree::Vendor));
        assert_eq!(read("6.15.4-200.fc42.x86_64"), ((6, 15), Some(4), Tree::Stable));
        assert_eq!(read("6.1.110-1.el9.elrepo.x86_64"), ((6, 1), Some(110), Tree::Stable));
        assert_eq!(read("6.16.7-061607-generic"), ((6, 16), Some(7), Tree::Stable));
        assert_eq!(read("7.2.7-1-default"), ((7, 2), Some(7), Tree::Stable));
        let uek = Release::parse("5.15.0-204.146.1.el8uek.x86_64", None).unwrap();
        assert_eq!((uek.tree, uek.build.as_slice()), (Tree::Uek, &[204, 146, 1][..]));
        assert_eq!(uek.compare_build((5, 15), &[204, 147]), Some(Ordering::Less));
        assert_eq!(uek.compare_build((5, 4), &[1]), None);
        assert_eq!(Release::parse("linux", None), None);
    }

    #[test]
    fn vendors_are_known_by_their_marks() {
        let vendor = |text: &str, build: Option<&str>| Release::parse(text, build).unwrap().vendor;
        for (text, expected) in [
            ("4.18.0-553.22.1.el8_10.x86_64", Some(Vendor::RedHat)),
            ("5.14.0-611.el9.x86_64", Some(Vendor::RedHat)),
            ("6.12.0-124.8.1.el10_1.x86_64", Some(Vendor::RedHat)),
            ("6.4.0-150700.53.3-default", Some(Vendor::Suse)),
            ("6.12.0-160000.5-default", Some(Vendor::Suse)),
            ("5.3.18-57-default", Some(Vendor::Suse)),
            ("6.8.0-45-generic", Some(Vendor::Ubuntu)),
            ("6.14.0-1013-aws", Some(Vendor::Ubuntu)),
            ("6.8.12-4-pve", Some(Vendor::Proxmox)),
            ("6.12.0-101.33.4.3.el10uek.x86_64", Some(Vendor::Oracle)),
            ("5.10.134-17.2.an8.x86_64", Some(Vendor::Anolis)),
            ("5.10.134-18.al8.x86_64", Some(Vendor::Anolis)),
            ("5.14.0-427.31.1.vz9.80.31", Some(Vendor::Other)),
            ("5.4.119-19.0009.44.tl3.x86_64", Some(Vendor::Other)),
            ("6.8.0-1015-azure", Some(Vendor::Ubuntu)),
            ("6.4.0-150600.8.5-azure", Some(Vendor::Other)),
            ("6.6.0-72.0.0.76.oe2403sp1.x86_64", Some(Vendor::OpenEuler)),
            ("6.12.49+deb13-amd64", None),
            ("6.15.4-200.fc42.x86_64", None),
            ("6.16.9-arch1-1", None),
            ("6.12.49-1-lts", None),
            ("6.1.110-1.el9.elrepo.x86_64", None),
            ("6.17.4-1.el9.elrepo.x86_64", None),
            ("6.16.7-061607-generic", None),
            ("6.16.0-061600-generic", None),
            ("6.14.4-1-default", None),
            ("7.2.7-1-default", None),
            ("6.1.0-28-cloud-amd64", None),
            ("6.1.0-0.deb11.25-amd64", None),
            ("5.10.0-0.deb10.16-cloud-amd64", None),
            ("6.6.22-desktop-1.mga9", None),
            ("7.0.0-0.rc1.20260301git.5.fc45.x86_64", None),
            ("6.1.112-122.189.amzn2023.x86_64", None),
            ("6.18.0", None),
            ("6.18.0-custom", None),
        ] {
            assert_eq!(vendor(text, None), expected, "{text}");
        }
        let build = Some("#48-Ubuntu SMP PREEMPT_DYNAMIC Fri Sep 27 14:04:52 UTC 2024");
        assert_eq!(vendor("6.8.0-1018-intel", build), Some(Vendor::Ubuntu));
    }

    #[test]
    fn debian_tells_its_stable_release_in_the_build() {
        let build = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1 (2024-11-22)";
        assert_eq!(Release::parse("6.1.0-28-amd64", Some(build)).unwrap().patch, Some(119));
        assert_eq!(Release::parse("6.2.0-28-amd64", Some(build)).unwrap().patch, Some(0));
        let backport = Some("#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1~deb11u1 (2024-12-05)");
        let backport = Release::parse("6.1.0-0.deb11.28-amd64", backport).unwrap();
        assert_eq!((backport.tree, backport.patch), (Tree::Stable, Some(119)));
        let candidate = Release::parse("5.6.0-rc2-custom", None).unwrap();
        assert_eq!((candidate.candidate, candidate.patch), (Some(2), Some(0)));
        let candidate = |text: &str| Release::parse(text, None).unwrap().candidate;
        assert_eq!(candidate("7.0-rc1"), Some(1));
        assert_eq!(candidate("7.0.0-0.rc1.20260301git.5.fc45.x86_64"), Some(1));
        assert_eq!(candidate("6.15.4-200.fc42.x86_64"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,30}", build in "\\PC{0,30}") {
            let _ = Release::parse(&text, Some(&build));
            let _ = Release::parse(&format!("6.1.0-{text}"), Some(&format!("Debian {build}")));
        }
    }
}
