//! The facts about an inspected host by which definitions are judged.

use super::kernels::{Has, ROWS};
use super::limits;
use super::release::Tree;
use super::subject::Subject;
use crate::lint::HostSide;
use exits::KernelVersion;
use host::Inspection;

impl HostSide {
    /// The facts from an inspection.
    #[must_use]
    pub fn of(host: &Inspection) -> Self {
        let subject = Subject::new(host);
        Self {
            kernel: mainline(&subject),
            largest_apic_id: limits::largest_apic_id(&subject).map(|(largest, _)| largest),
            auto_eoi_counted: subject.kernel_has("kernel-autoeoi"),
            ..Self::of_fingerprint(&host.fingerprint)
        }
    }
}

/// The mainline version by which rules over definitions judge. For vendors' trees the release alone does not show
/// it.
fn mainline(subject: &Subject<'_>) -> Option<KernelVersion> {
    let release = subject.release.as_ref()?;
    let own = KernelVersion::new(release.version.0, release.version.1);
    if release.tree == Tree::Stable {
        return Some(own);
    }
    // The rules over definitions only depend on these features, which vendors port deliberately. Nothing here shows whether
    // a kernel has inhibits at all, and those with an older number mostly do.
    for name in ["kernel-x2avic", "kernel-avic-nested"] {
        let row = ROWS.iter().find(|row| row.rule == name)?;
        match row.judge_running(release, &subject.host.kernel).has {
            Has::Yes => return Some(own.max(KernelVersion::new(row.since.0, row.since.1))),
            Has::No => {}
            Has::Unknown => return None,
        }
    }
    Some(own.max(HostSide::INHIBITS))
}

#[cfg(test)]
mod tests {
    use crate::State;
    use crate::lint::{HostSide, lint};
    use domain::{NoFiles, Text};
    use exits::KernelVersion;
    use host::fake;

    const ZEN4: &str = "== /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\nflags : svm avic x2avic npt\n\
        == /sys/module/kvm_amd/parameters/avic\nY\n== /sys/module/kvm_amd/parameters/nested\n1\n";

    /// The side of a Zen 4 host with this kernel and these answers of its type information, and the rules about
    /// kernels that fire for a VM with the host's CPU.
    fn judged(release: &str, types: &str) -> (HostSide, Vec<String>) {
        let types = if types.is_empty() { String::new() } else { format!("== /exitless/types\n{types}") };
        let root = fake::root(&format!("{ZEN4}== /proc/sys/kernel/osrelease\n{release}{types}"));
        let side = HostSide::below(&root).unwrap();
        let line = "qemu-kvm -M q35,kernel-irqchip=split -cpu host -smp 4";
        let vm = domain::qemu::read(&Text::new("vm", line), &NoFiles).unwrap();
        let found = lint(&vm, &side).into_iter().filter(|one| one.state == State::Fail);
        let rules = found.map(|one| one.rule).filter(|rule| rule == "x2apic" || rule == "nested").collect();
        (side, rules)
    }

    #[test]
    fn a_vendors_kernel_is_taken_by_what_is_in_it() {
        let none: [&str; 0] = [];
        let (side, rules) = judged("5.15.0-204.146.1.el8uek.x86_64\n", "");
        assert_eq!((side.kernel, side.largest_apic_id), (Some(KernelVersion::new(6, 0)), Some(511)));
        assert_eq!(rules, none);
        // For an earlier build nothing shows which features it has.
        assert_eq!(judged("5.15.0-105.125.6.2.1.el8uek.x86_64\n", "").0.kernel, None);
        let (side, rules) = judged("5.15.180\n", "");
        assert_eq!((side.kernel, side.largest_apic_id), (Some(KernelVersion::new(5, 15)), Some(254)));
        assert_eq!(rules, ["x2apic", "nested"]);
        let red_hat = |types: &str| judged("5.14.0-162.6.1.el9_1.x86_64\n", types);
        let (x2avic, nested) =
            ("vcpu_svm.x2avic_msrs_intercepted", "kvm_x86_ops.vcpu_get_apicv_inhibit_reasons");
        let both = red_hat(&format!("{x2avic}: yes\n{nested}: yes\n"));
        assert_eq!((both.0.kernel, both.1.len()), (Some(KernelVersion::new(6, 0)), 0));
        let one = red_hat(&format!("{x2avic}: no\n{nested}: yes\n"));
        assert_eq!((one.0.kernel, one.1), (Some(KernelVersion::new(5, 19)), vec!["x2apic".to_owned()]));
        let neither = red_hat(&format!("{x2avic}: no\n{nested}: no\n"));
        assert_eq!((neither.0.kernel, neither.1.len()), (Some(KernelVersion::new(5, 14)), 2));
    }

    #[test]
    fn a_vendors_kernel_with_an_old_number_is_taken_as_one_with_inhibits() {
        let red_hat = "4.18.0-553.el8_10.x86_64\n";
        let types = "vcpu_svm.x2avic_msrs_intercepted: no\nkvm_x86_ops.vcpu_get_apicv_inhibit_reasons: no\n";
        let (side, rules) = judged(red_hat, types);
        assert_eq!((side.kernel, rules.len()), (Some(KernelVersion::new(5, 6)), 2));
        let (side, rules) = judged("5.4.302\n", "");
        assert_eq!((side.kernel, rules.len()), (Some(KernelVersion::new(5, 4)), 0));
    }

    #[test]
    fn a_kernel_is_asked_for_its_count_of_auto_eoi() {
        let counted = |release: &str, types: &str| judged(release, types).0.auto_eoi_counted;
        assert_eq!(counted("5.10.262\n", ""), Some(false));
        assert_eq!(counted("5.15.180\n", ""), Some(true));
        let ubuntu = "5.11.0-49-generic\n";
        assert_eq!(counted(ubuntu, ""), None);
        assert_eq!(counted(ubuntu, "kvm_hv.synic_auto_eoi_used: no\n"), Some(false));
    }
}
