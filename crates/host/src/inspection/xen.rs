//! Xen, if it is the hypervisor below this kernel.

mod frequency;
mod log;
mod processors;

use crate::xen_control::XenInfo;
use crate::xen_domains::{self, XenDomain};
use crate::{AbsenceKind, Evidence, Fact, PciFunction, Root};
use std::cell::RefCell;

pub use frequency::{XenFrequency, xen_frequencies};
pub use log::XenLog;
pub use processors::{XenPool, XenVcpu};

/// Xen, as seen from a guest, and from the control domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Xen {
    /// This is the control domain: `/proc/xen/capabilities` contains `control_d`.
    pub control: Fact<bool>,
    /// `/sys/hypervisor/guest_type`: `PV`, `PVH`, `HVM`.
    pub guest_type: Fact<String>,
    /// `/sys/hypervisor/version/{major,minor,extra}`, joined: `4.17.5`.
    pub version: Fact<String>,
    /// `xl info`.
    pub info: Fact<XenInfo>,
    /// `xl dmesg`.
    pub log: Fact<XenLog>,
    /// `xl list`, with the types of guests from `xl list -l` if that is available.
    pub domains: Fact<Vec<XenDomain>>,
    /// `xl vcpu-list`.
    pub vcpus: Fact<Vec<XenVcpu>>,
    /// `xl cpupool-list`.
    pub pools: Fact<Vec<XenPool>>,
    /// Devices that can be assigned to a guest, by address: `xl pci-assignable-list`.
    pub assignable: Fact<Vec<String>>,
    /// Functions that can be assigned to a guest, and virtual functions that could be, from sysfs.
    pub functions: Vec<PciFunction>,
    /// `xenpm get-cpufreq-para`.
    pub frequencies: Fact<Vec<XenFrequency>>,
}

impl Xen {
    /// Reads the facts; `None` if this kernel does not run on Xen.
    pub(super) fn read(root: &Root, hypervisor: &Fact<Option<String>>) -> Option<Self> {
        let named = root.text("/sys/hypervisor/type", "a hypervisor's name").is_ok_and(|name| name == "xen");
        let by_cpuid = matches!(hypervisor.get(), Some(Some(name)) if name == "XenVMMXenVMM");
        let control = root.line("/proc/xen/capabilities", "control_d in the control domain");
        if !named && !by_cpuid && control.value.is_err() {
            return None;
        }
        let control = control.map(|text| text.split_whitespace().any(|word| word == "control_d"));
        let asked = Asked { root, control: control.get() == Some(&true), silent: RefCell::default() };
        let info = asked.command("xl info").map(|text| XenInfo::parse(&text));
        let log = asked.command("xl dmesg").map(|text| XenLog::parse(&text));
        let types = asked.in_part("xl list -l", xen_domains::types_alone);
        let types = types.get().map(|text| xen_domains::types(text)).unwrap_or_default();
        let domains = asked.command("xl list").map(|text| xen_domains::domains(&text, &types));
        let assignable = asked.command("xl pci-assignable-list").map(|text| addresses(&text));
        let ready = assignable.get().cloned().unwrap_or_default();
        let mut functions = if asked.control { PciFunction::all(root) } else { Vec::new() };
        functions.retain(|function| function.is_virtual() || ready.contains(&function.address));
        Some(Self {
            guest_type: root.line("/sys/hypervisor/guest_type", "a kind such as PV"),
            version: version(root),
            info,
            log,
            domains,
            vcpus: asked.command("xl vcpu-list").map(|text| processors::vcpus(&text)),
            pools: asked.command("xl cpupool-list").map(|text| processors::pools(&text)),
            assignable,
            functions,
            frequencies: asked.command("xenpm get-cpufreq-para").map(|text| xen_frequencies(&text)),
            control,
        })
    }
}

/// Runs commands that only the control domain can run.
struct Asked<'a> {
    root: &'a Root,
    control: bool,
    /// The reason not to run any more commands: an earlier one timed out, as all do without xenstored.
    silent: RefCell<Option<String>>,
}

impl Asked<'_> {
    fn command(&self, line: &str) -> Fact<String> {
        self.in_part(line, str::to_owned)
    }

    fn in_part(&self, line: &str, part: impl Fn(&str) -> String) -> Fact<String> {
        if !self.control {
            return Fact::absent(
                AbsenceKind::NotApplicable,
                format!("`{line}` works in Xen's control domain alone"),
            );
        }
        if let Some(why) = self.silent.borrow().as_ref() {
            return Fact::absent(AbsenceKind::Unreadable, format!("`{line}` was not asked, for {why}"));
        }
        let said = self.root.command_in_part(line, part);
        let unanswered = said.absence().is_some_and(|absence| absence.why.contains(TIMED_OUT));
        // After a timeout do not try the other commands.
        if self.root.is_live() && unanswered {
            *self.silent.borrow_mut() = Some(format!("`{line}` gave no answer"));
        }
        said
    }
}

/// The system's message for a timeout.
const TIMED_OUT: &str = "timed out";

/// The addresses in lines of `xl pci-assignable-list`: `0000:03:10.0`, optionally followed by a name.
pub(crate) fn addresses(text: &str) -> Vec<String> {
    let first = text.lines().filter_map(|line| line.split_whitespace().next());
    first.filter(|word| word.matches(':').count() == 2 && word.contains('.')).map(str::to_owned).collect()
}

fn version(root: &Root) -> Fact<String> {
    let home = "/sys/hypervisor/version";
    let part = |name: &str| root.line(&format!("{home}/{name}"), "a number");
    let major = part("major");
    let (minor, extra) = (part("minor"), part("extra"));
    let mut found = major.map(|major| {
        let minor = minor.get().map(|minor| format!(".{minor}")).unwrap_or_default();
        format!("{major}{minor}{}", extra.get().map_or("", String::as_str))
    });
    if let Ok(text) = &found.value {
        found.evidence = vec![Evidence::new(home, text.clone())];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_addresses() {
        let info =
            XenInfo::parse("xen_version : 4.17.5\nxen_commandline : placeholder apicv=0 iommu=no-intpost\n");
        assert_eq!(info.field("xen_version"), Some("4.17.5"));
        assert_eq!(info.field("xen_commandline"), Some("placeholder apicv=0 iommu=no-intpost"));
        // RELEASE-4.20.0, tools/xl/xl_pci.c, pciassignable_list: the name follows, empty if there is none.
        assert_eq!(
            addresses("0000:03:10.0 \n0000:03:10.2 vf2\nlibxl: error\n"),
            ["0000:03:10.0", "0000:03:10.2"]
        );
    }

    #[test]
    fn a_host_that_does_not_answer_is_asked_once() {
        let root = Root::live();
        let asked = Asked { root: &root, control: true, silent: RefCell::default() };
        *asked.silent.borrow_mut() = Some("`xl info` gave no answer".to_owned());
        let why = asked.command("xl list").absence().unwrap().why.clone();
        assert_eq!(why, "`xl list` was not asked, for `xl info` gave no answer");
        let guest = Asked { control: false, silent: RefCell::default(), ..asked };
        assert_eq!(guest.command("xl list").absence().unwrap().kind, AbsenceKind::NotApplicable);
    }
}
