//! The kernel, its configuration, and its arguments.

use super::arguments::Arguments;
use super::config::KernelConfig;
use super::kernel_types::KernelTypes;
use super::modprobe::ModprobeLine;
use crate::fingerprint::bracketed;
use crate::root::kind_of;
use crate::{AbsenceKind, Evidence, Fact, Parameters, Root, modules};
use std::collections::{BTreeMap, BTreeSet};

/// The kernel. Release, build and lockdown are also in the [`Fingerprint`](crate::Fingerprint), but without
/// evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// `/proc/sys/kernel/osrelease`.
    pub release: Fact<String>,
    /// `/proc/sys/kernel/version`.
    pub version: Fact<String>,
    /// The distribution, from `/etc/os-release`.
    pub distribution: Fact<Distribution>,
    /// Its configuration.
    pub config: Fact<KernelConfig>,
    /// Its boot arguments.
    pub arguments: Fact<Arguments>,
    /// The lockdown mode: `none`, `integrity`, `confidentiality`.
    pub lockdown: Fact<String>,
    /// `/proc/sys/kernel/tainted`, a set of bits (Documentation/admin-guide/tainted-kernels.rst).
    pub tainted: Fact<u64>,
    /// Loaded modules (`/proc/modules`).
    pub loaded: Fact<BTreeSet<String>>,
    /// Modules that are built in (`/lib/modules/RELEASE/modules.builtin`).
    pub built_in: Fact<BuiltIn>,
    /// Parameters of `kvm`, `kvm_amd`, `kvm_intel`, `vfio_iommu_type1`, `iommufd`, `vhost` and `irqbypass`, if loaded or
    /// built in, from `/sys/module/NAME/parameters`.
    pub parameters: BTreeMap<String, Parameters>,
    /// The features of its KVM, by its type information (BTF).
    pub types: Fact<KernelTypes>,
    /// The lines of modprobe.d about these modules, in the order in which modprobe reads the files.
    pub modprobe: Vec<ModprobeLine>,
    /// `/sys/devices/system/cpu/vulnerabilities`: the kernel's mitigation of each.
    pub vulnerabilities: BTreeMap<String, String>,
}

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// `ID`: `debian`, `ol`, `rhel`, `ubuntu`.
    pub id: String,
    /// `ID_LIKE`, its words.
    pub like: Vec<String>,
    /// `VERSION_ID`.
    pub version: Option<String>,
    /// `PRETTY_NAME`, else `NAME`.
    pub name: Option<String>,
}

/// Modules in the kernel's image; only those that concern virtualization are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuiltIn(pub BTreeSet<String>);

/// Modules whose parameters and lines in modprobe.d are read.
const MODULES: &[&str] = &[
    "kvm",
    "kvm_amd",
    "kvm_intel",
    "vfio_iommu_type1",
    "iommufd",
    "vfio_pci",
    "vhost",
    "vhost_net",
    "irqbypass",
];
/// Prefixes of the built-in modules that are kept.
const KEPT: &[&str] =
    &["kvm", "vfio", "vhost", "irqbypass", "iommufd", "msr", "cpuid", "haltpoll", "xen", "tun", "tap"];

impl Kernel {
    /// Tests whether a module is built into the kernel's image: it cannot be reloaded, and modprobe.d does not affect it.
    #[must_use]
    pub fn has_built_in(&self, module: &str) -> bool {
        self.built_in.get().is_some_and(|built_in| built_in.0.contains(module))
    }

    pub(super) fn read(root: &Root) -> Self {
        let line = |name: &str, expected| root.line(&format!("/proc/sys/kernel/{name}"), expected);
        let release = line("osrelease", "a release");
        let config = KernelConfig::read(root, release.get().map(String::as_str));
        let built_in = built_in(root, release.get().map(String::as_str));
        let parameters =
            MODULES.iter().filter_map(|&name| Some((name.to_owned(), modules::parameters(root, name)?)));
        Self {
            version: line("version", "a build"),
            distribution: distribution(root),
            config,
            arguments: root
                .fact("/proc/cmdline", "the kernel's arguments", |text| Some(Arguments::parse(text))),
            lockdown: root.fact("/sys/kernel/security/lockdown", "modes with one in brackets", bracketed),
            tainted: root.fact("/proc/sys/kernel/tainted", "a number", |text| text.parse().ok()),
            loaded: loaded(root),
            built_in,
            parameters: parameters.collect(),
            types: KernelTypes::read(root),
            modprobe: ModprobeLine::read(root, MODULES),
            vulnerabilities: vulnerabilities(root),
            release,
        }
    }
}

fn distribution(root: &Root) -> Fact<Distribution> {
    let parse = |text: &str| {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
        };
        Some(Distribution {
            id: field("ID")?,
            like: field("ID_LIKE").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            version: field("VERSION_ID"),
            name: field("PRETTY_NAME").or_else(|| field("NAME")),
        })
    };
    let of = |path| root.fact(path, "lines such as ID=debian", parse);
    let found = of("/etc/os-release").or(|| of("/usr/lib/os-release"));
    let text = found.get().map(|found| found.name.clone().unwrap_or_else(|| found.id.clone()));
    let evidence = found.evidence.first().zip(text).map(|(seen, text)| Evidence::new(&seen.place, text));
    Fact { evidence: evidence.into_iter().collect(), ..found }
}

fn loaded(root: &Root) -> Fact<BTreeSet<String>> {
    let path = "/proc/modules";
    let mut found = root.fact(path, "a line for each module", |text| {
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        Some(names.map(str::to_owned).collect::<BTreeSet<_>>())
    });
    let count = found.get().map(BTreeSet::len);
    found.evidence = count.map(|count| Evidence::new(path, format!("{count} modules"))).into_iter().collect();
    found
}

fn built_in(root: &Root, release: Option<&str>) -> Fact<BuiltIn> {
    let Some(release) = release.filter(|release| !release.contains('/')) else {
        let why = "the kernel's release is unknown, by which its modules.builtin is found";
        return Fact::absent(AbsenceKind::NotThere, why);
    };
    let path = format!("/lib/modules/{release}/modules.builtin");
    let text = match root.read(&path) {
        Ok(bytes) => bytes,
        Err(error) => return Fact::absent(kind_of(&error), format!("{path} cannot be read: {error}")),
    };
    let text = String::from_utf8_lossy(&text);
    let name = |line: &str| {
        let name = line.rsplit('/').next()?.split('.').next()?.replace('-', "_");
        KEPT.iter().any(|kept| name.starts_with(kept)).then_some(name)
    };
    let names: BTreeSet<String> = text.lines().filter_map(name).collect();
    let told = names.iter().cloned().collect::<Vec<_>>().join(" ");
    Fact::known(BuiltIn(names), path, told)
}

fn vulnerabilities(root: &Root) -> BTreeMap<String, String> {
    let home = "/sys/devices/system/cpu/vulnerabilities";
    let names = root.entries(home, |_| true).unwrap_or_default();
    let read = |name: String| Some((root.text(&format!("{home}/{name}"), "a state").ok()?, name));
    names.into_iter().filter_map(read).map(|(text, name)| (name, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_names_what_was_read_and_nothing_else() {
        let root = crate::fake::root("== /usr/lib/os-release\nID=debian\nNAME=Debian\n");
        let place = "/usr/lib/os-release";
        assert_eq!(distribution(&root).evidence, [Evidence::new(place, "Debian")]);
        assert!(loaded(&root).evidence.is_empty());
        assert_eq!(built_in(&root, None).absence().unwrap().kind, AbsenceKind::NotThere);
        assert!(!built_in(&root, None).absence().unwrap().why.contains("//"));
        let root = crate::fake::root("== /proc/modules\nkvm 1 0\nvhost 1 0\n");
        assert_eq!(loaded(&root).evidence, [Evidence::new("/proc/modules", "2 modules")]);
    }
}
