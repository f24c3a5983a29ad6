//! Reasons not to change anything.

use super::files::Files;
use super::plan::{Arm, Refusal};
use super::target::Target;
use crate::examination::{
    BARRED_BY_SNP, WITHOUT_ERRATUM_1235, WITHOUT_SNP, is_barred_by_snp, is_hit_by_erratum_1235,
};
use host::{CONTAINER_MARKS, Inspection, Lack, kvm, switch};

pub(super) fn all(files: &Files, inspection: &Inspection, target: &Target) -> Vec<Refusal> {
    let mut found = Vec::new();
    found.extend(of_container(files));
    let mut refuse = |name: &str, why: String, next: &str| {
        found.push(Refusal { name: name.to_owned(), why, next: next.to_owned() });
    };
    if target.arm == Arm::Off {
        return found;
    }
    let lack = kvm::isa_of(target.module).and_then(|isa| inspection.processor.lack(isa));
    let believed = target.loaded && target.switch().now.as_deref().and_then(switch) == Some(true);
    match lack {
        Some(Lack { why, .. }) if believed => {
            let forced =
                inspection.kernel.parameters.get(target.module).and_then(|all| all.get("force_avic"));
            let forced = forced.and_then(Option::as_deref).and_then(switch) == Some(true);
            let cause = if forced { "force_avic overrules the CPU" } else { "the two contradict each other" };
            let why = format!("{why}, and yet {} has {} on: {cause}", target.module, target.switch().name);
            refuse(
                "contradiction",
                why,
                "see `exitless doctor`; VMs with it can hang where the CPU has none",
            );
        }
        Some(Lack { why, next }) => refuse("cpu", why, &next),
        None if is_hit_by_erratum_1235(inspection) => {
            let why = "this CPU has erratum 1235, by which guests can hang with AVIC, and nothing shows that this kernel \
                       handles it";
            let first =
                if target.loaded { "" } else { "load kvm_amd first, whose parameters can show it; or " };
            refuse("erratum", why.to_owned(), &format!("{first}{WITHOUT_ERRATUM_1235}"));
        }
        None if is_barred_by_snp(inspection) => {
            let why = format!(
                "{BARRED_BY_SNP}: KVM leaves AVIC off, or, before Linux 6.13 and 6.12.26, the first interrupt of a guest is \
                 a page fault of the host"
            );
            refuse("snp", why, WITHOUT_SNP);
        }
        None => {}
    }
    found
}

/// The refusal in a container, from which the host must not be changed.
pub(super) fn of_container(files: &Files) -> Option<Refusal> {
    let file = CONTAINER_MARKS.iter().find(|file| files.has(file))?;
    Some(Refusal {
        name: "container".to_owned(),
        why: format!("this is a container ({file} exists), whose kernel is the host's"),
        next: "run exitless on the host".to_owned(),
    })
}
