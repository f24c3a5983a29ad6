//! Changes of KVM's reasons to inhibit interrupt virtualization, as its tracepoint reports them.

use crate::collector::layout::{kernel_types, module_types};
use crate::{Error, EventFormat, Field, Tracefs};
use exits::{InhibitNumbering, InhibitReason, Inhibits, KernelVersion};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The event since Linux 5.18, with the mask.
pub(crate) const CHANGED: &str = "kvm_apicv_inhibit_changed";
/// The event before Linux 5.18, which has only the reason's number.
pub(crate) const UPDATE_REQUEST: &str = "kvm_apicv_update_request";

/// The setting or clearing of a reason. The kernel also reports requests that change nothing, such as clearing a
/// reason that is not set; only the mask says which reasons are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InhibitChange {
    /// Time in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The thread that made the change.
    pub thread: i32,
    /// True if the reason was set, false if it was cleared.
    pub set: bool,
    /// The reason's number in this kernel.
    pub number: u32,
    /// The reason, if this kernel's numbering is known.
    pub reason: Option<InhibitReason>,
    /// All reasons in force after the change; `None` before Linux 5.18.
    pub mask: Option<Inhibits>,
}

/// The offsets of the fields that are read from the event.
#[derive(Debug)]
pub(crate) struct InhibitFields {
    pub(crate) id: u16,
    number: Field,
    flag: Field,
    /// The old event has "activate", the new one "set": they are opposites.
    flag_means_set: bool,
    mask: Option<Field>,
    pub(crate) numbering: InhibitNumbering,
}

impl InhibitFields {
    /// `host` is the one whose format this is; without it, only the format is used.
    pub(crate) fn new(format: &EventFormat, host: Option<&Tracefs>) -> Result<Self, Error> {
        let changed = format.name == CHANGED;
        let [number, flag] = if changed { ["reason", "set"] } else { ["bit", "activate"] };
        Ok(Self {
            id: format.id,
            number: number_field(format, number)?,
            flag: number_field(format, flag)?,
            flag_means_set: changed,
            mask: changed.then(|| number_field(format, "inhibits")).transpose()?,
            numbering: numbering(format, host),
        })
    }

    pub(crate) fn decode(&self, thread: i32, time_ns: u64, raw: &[u8]) -> Option<InhibitChange> {
        let number = u32::try_from(self.number.read(raw)?).ok()?;
        let flag = self.flag.read(raw)? != 0;
        Some(InhibitChange {
            time_ns,
            thread,
            set: flag == self.flag_means_set,
            number,
            reason: self.numbering.reason(number),
            mask: self.mask.as_ref().and_then(|mask| mask.read(raw)).map(Inhibits),
        })
    }
}

/// The kernel's own information has priority: first the event's (since Linux 6.11), then the type information, which
/// is available in distribution kernels whose KVM is newer than their version (Red Hat's 5.14). A kernel before 5.18
/// that has the event of 5.18 but no type information is assumed to use the numbering of Linux 6.0: Oracle's UEK 7
/// (5.15).
fn numbering(format: &EventFormat, host: Option<&Tracefs>) -> InhibitNumbering {
    let is_since_5_18 = format.name == CHANGED;
    let version = match host.and_then(Tracefs::kernel) {
        Some(version) if is_since_5_18 && version < KernelVersion::new(5, 18) => KernelVersion::new(6, 0),
        Some(version) => version,
        None => KernelVersion::new(0, 0),
    };
    InhibitNumbering::from_print_fmt(&format.print_fmt)
        .or_else(|| of_types(host.filter(|_| is_since_5_18)?.root()))
        .unwrap_or_else(|| InhibitNumbering::of_kernel(version))
}

/// The numbering in KVM's type information, which has the reasons as an enumeration since Linux 5.18.
fn of_types(root: &Path) -> Option<InhibitNumbering> {
    let kernel = kernel_types(root).ok()?;
    let kvm = module_types(root, &kernel, "kvm").ok()?;
    InhibitNumbering::from_values(kvm.values("kvm_apicv_inhibit")?)
}

/// The numbering of inhibit reasons in the kernel of the host below `root`: from the kernel itself, or else that of
/// the mainline kernel of its version. Empty if the version is not known. Type information is readable by all users,
/// and in a container without tracefs.
#[must_use]
pub fn inhibit_numbering(root: &Path) -> InhibitNumbering {
    let tracefs = Tracefs::find(root).ok();
    let format = tracefs.as_ref().and_then(|tracefs| {
        let name = [CHANGED, UPDATE_REQUEST].into_iter().find(|name| tracefs.has("kvm", name))?;
        tracefs.format("kvm", name).ok()
    });
    if let Some(format) = format {
        return numbering(&format, tracefs.as_ref());
    }
    of_types(root).unwrap_or_else(|| {
        let release = std::fs::read_to_string(root.join("proc/sys/kernel/osrelease"));
        let version = release.ok().and_then(|text| text.trim().parse().ok());
        InhibitNumbering::of_kernel(version.unwrap_or(KernelVersion::new(0, 0)))
    })
}

/// A mandatory numeric field.
pub(crate) fn number_field(format: &EventFormat, name: &'static str) -> Result<Field, Error> {
    let field = format.field(name).filter(|field| field.is_number());
    field.cloned().ok_or_else(|| Error::Field { event: format.name.clone(), field: name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old_format() -> EventFormat {
        EventFormat::parse(
            "name: kvm_apicv_update_request\nID: 7\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:bool activate;\toffset:8;\tsize:1;\tsigned:0;\n\
             \tfield:unsigned long bit;\toffset:16;\tsize:8;\tsigned:0;\n\n\
             print fmt: \"%s bit=%lu\", REC->activate ? \"activate\" : \"deactivate\", REC->bit\n",
        )
        .unwrap()
    }

    /// A host with this kernel release and no type information.
    fn host(release: &str) -> (tempfile::TempDir, Tracefs) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/kernel/tracing/events")).unwrap();
        std::fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        std::fs::write(root.path().join("proc/sys/kernel/osrelease"), release).unwrap();
        let tracefs = Tracefs::find(root.path()).unwrap();
        (root, tracefs)
    }

    /// Adds this type information to a host.
    fn add_types(root: &Path, types: &[u8]) {
        let home = root.join("sys/kernel/btf");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("vmlinux"), types).unwrap();
    }

    /// Type information with one enumeration (`Documentation/bpf/btf.rst`, "BTF Type and String Encoding").
    fn enumeration(name: &str, values: &[(&str, u32)]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut text = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let mut types = vec![text(name), 6 << 24 | values.len() as u32, 4];
        types.extend(values.iter().flat_map(|(name, value)| [text(name), *value]));
        let length = 4 * types.len() as u32;
        let words = [[24, 0, length, length, strings.len() as u32].to_vec(), types].concat();
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        [0x9f, 0xeb, 1, 0].into_iter().chain(words).chain(strings).collect()
    }

    #[test]
    fn the_old_event_counts_the_other_way_round() {
        let fields = InhibitFields::new(&old_format(), Some(&host("5.15.0").1)).unwrap();
        let mut raw = [0; 24];
        raw[16] = 3;
        let change = fields.decode(5, 100, &raw).unwrap();
        assert!(change.set);
        assert_eq!(change.reason, Some(InhibitReason::IrqWindow));
        assert_eq!(change.mask, None);
        raw[8] = 1;
        assert!(!fields.decode(5, 100, &raw).unwrap().set);
    }

    #[test]
    fn a_backported_event_brings_its_numbering() {
        let text = "name: kvm_apicv_inhibit_changed\nID: 7\nformat:\n\
             \tfield:int reason;\toffset:8;\tsize:4;\tsigned:1;\n\
             \tfield:bool set;\toffset:12;\tsize:1;\tsigned:0;\n\
             \tfield:unsigned long inhibits;\toffset:16;\tsize:8;\tsigned:0;\n\n\
             print fmt: \"%s reason=%u, inhibits=0x%lx\", REC->set ? \"set\" : \"cleared\", REC->reason\n";
        let format = EventFormat::parse(text).unwrap();
        let (root, host) = host("5.15.0-204.146.1.el8uek.x86_64\n");
        let fields = InhibitFields::new(&format, Some(&host)).unwrap();
        assert_eq!(fields.numbering.reason(7), Some(InhibitReason::IrqWindow));
        assert!(!fields.numbering.is_stated());
        // Type information has priority over the version. This kernel uses the numbering of Linux 6.3.
        let values = [("APICV_INHIBIT_REASON_DISABLE", 0), ("APICV_INHIBIT_REASON_IRQWIN", 8)];
        add_types(root.path(), &enumeration("kvm_apicv_inhibit", &values));
        let fields = InhibitFields::new(&format, Some(&host)).unwrap();
        assert_eq!(fields.numbering.reason(8), Some(InhibitReason::IrqWindow));
        assert_eq!((fields.numbering.reason(7), fields.numbering.is_stated()), (None, true));
        let unknown = InhibitFields::new(&format, None).unwrap();
        assert_eq!(unknown.numbering.reason(7), None);
    }

    #[test]
    fn type_information_has_priority_over_the_version_also_without_tracefs() {
        let (root, _) = host("5.14.0-503.11.1.el9_5.x86_64\n");
        std::fs::remove_dir_all(root.path().join("sys")).unwrap();
        let of_version = inhibit_numbering(root.path());
        assert_eq!((of_version.reason(9), of_version.is_stated()), (None, false));
        let values = [("APICV_INHIBIT_REASON_DISABLE", 0), ("APICV_INHIBIT_REASON_PIT_REINJ", 9)];
        add_types(root.path(), &enumeration("kvm_apicv_inhibit", &values));
        let of_types = inhibit_numbering(root.path());
        assert_eq!((of_types.reason(9), of_types.is_stated()), (Some(InhibitReason::PitReinject), true));
    }
}
