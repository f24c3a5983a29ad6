//! Facts of a host that differ from a saved state of it.

use crate::verdict::Verdict;
use crate::{Finding, Section, State};
use host::Fingerprint;
use host::snapshot::{same_arguments, without_secrets};
use std::collections::BTreeSet;

const SOURCE: &str = "/proc/cpuinfo, /proc/cmdline, /proc/sys/kernel, /sys/module/*/parameters";
const MODULES: &str = "modules.";

/// The differences between the present state of a host and a saved one as failed checks, or one passed check. A fact that is
/// known of only one state is skipped. Memory is not compared, because what is left of it varies between boots.
#[must_use]
pub fn drift(now: &Fingerprint, then: &Fingerprint) -> Section {
    let [mut now, mut then] =
        [now, then].map(|state| Fingerprint { memory_mib: None, ..without_secrets(state) });
    let lines = now.cmdline.as_deref().zip(then.cmdline.as_deref());
    if lines.is_some_and(|(ours, theirs)| same_arguments(ours, theirs)) {
        then.cmdline.clone_from(&now.cmdline);
    }
    let mut findings = Vec::new();
    // All parameters of a module that is not loaded are missing.
    let both: BTreeSet<String> =
        now.modules.keys().filter(|name| then.modules.contains_key(*name)).cloned().collect();
    for name in now.modules.keys().filter(|name| !both.contains(*name)) {
        findings.push(finding(name, Verdict::fail("it is loaded, and was not in the baseline")));
    }
    for name in then.modules.keys().filter(|name| !both.contains(*name)) {
        findings.push(finding(name, Verdict::fail("it is not loaded, and was in the baseline")));
    }
    for state in [&mut now, &mut then] {
        state.modules.retain(|name, _| both.contains(name));
    }
    for (name, ours, theirs) in now.differences(&then) {
        let verdict = match (ours, theirs) {
            (None, _) if is_unknown(&now, &name) => Verdict::skip("not known now"),
            (_, None) if is_unknown(&then, &name) => Verdict::skip("not known in the baseline"),
            (ours, theirs) => {
                let said = |value: Option<String>| value.unwrap_or_else(|| "not there".to_owned());
                Verdict::fail(format!("{}; in the baseline {}", said(ours), said(theirs)))
            }
        };
        findings.push(finding(name.strip_prefix(MODULES).unwrap_or(&name), verdict));
    }
    if findings.iter().all(|one| matches!(one.state, State::Skip(_))) {
        findings.push(finding("Baseline", Verdict::pass("no known fact differs from it")));
    }
    Section {
        name: "baseline".to_owned(),
        title: "Differences from the baseline".to_owned(),
        form: None,
        findings,
    }
}

fn finding(title: &str, verdict: Verdict) -> Finding {
    let verdict = match verdict.state {
        State::Fail => {
            verdict.advice("set it as before, or save a new baseline with `exitless snapshot OUT.tar.zst`")
        }
        _ => verdict,
    };
    verdict.finding("baseline", title, "measurements before and after it are not comparable", SOURCE)
}

/// Tests whether a fact without a value is unknown. A parameter can also be missing in a kernel.
fn is_unknown(state: &Fingerprint, name: &str) -> bool {
    let parameter = name.strip_prefix(MODULES).and_then(|rest| rest.split_once('.'));
    parameter.is_none_or(|(module, name)| {
        state.modules.get(module).is_some_and(|parameters| parameters.get(name) == Some(&None))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Inspection;

    fn state(more: &str) -> Fingerprint {
        let text = "== /proc/cmdline\nro quiet rd.luks.key=/secret\n== /sys/module/kvm_amd/parameters/avic\nY\n\
                    == /proc/sys/kernel/osrelease\n6.12.1\n== /proc/meminfo\nMemTotal: 4096 kB\n";
        Inspection::read(&host::fake::root(&format!("{text}{more}"))).unwrap().fingerprint
    }

    fn told(now: &Fingerprint, then: &Fingerprint) -> Vec<(String, State, String)> {
        let findings = drift(now, then).findings.into_iter();
        findings.map(|one| (one.title, one.state, one.found)).collect()
    }

    #[test]
    fn each_difference_is_a_failure_with_both_values() {
        let then = state("");
        let fails = |title: &str, found: &str| (title.to_owned(), State::Fail, found.to_owned());
        for (more, expected) in [
            ("== /sys/module/kvm_amd/parameters/avic\nN\n", fails("kvm_amd.avic", "N; in the baseline Y")),
            (
                "== /sys/module/kvm_amd/parameters/vnmi\nY\n",
                fails("kvm_amd.vnmi", "Y; in the baseline not there"),
            ),
            (
                "== /proc/sys/kernel/osrelease\n6.12.2\n",
                fails("kernel_release", "6.12.2; in the baseline 6.12.1"),
            ),
            (
                "== /sys/module/kvm/parameters/halt_poll_ns\n0\n",
                fails("kvm", "it is loaded, and was not in the baseline"),
            ),
        ] {
            assert_eq!(told(&state(more), &then), [expected], "{more}");
        }
    }

    #[test]
    fn what_is_unknown_or_varies_is_no_difference() {
        let then = state("");
        let same = [("Baseline".to_owned(), State::Pass, "no known fact differs from it".to_owned())];
        assert_eq!(told(&then, &then), same);
        assert_eq!(told(&state("== /proc/meminfo\nMemTotal: 8192 kB\n"), &then), same);
        // A snapshot lacks the secrets.
        assert_eq!(told(&then, &without_secrets(&then)), same);
        // Another version may have removed more.
        let line = |text: &str| Fingerprint { cmdline: Some(text.to_owned()), ..then.clone() };
        assert_eq!(told(&then, &line("ro REMOVED rd.luks.key=REMOVED")), same);
        let [(title, how, _)] =
            told(&then, &line("ro REMOVED rd.luks.key=REMOVED nosmt")).try_into().unwrap();
        assert_eq!((title.as_str(), how), ("cmdline", State::Fail));
        let denied = told(&state("== /sys/module/kvm_amd/parameters/avic error=13\n"), &then);
        let skipped = State::Skip("not known now".to_owned());
        assert_eq!(denied[0], ("kvm_amd.avic".to_owned(), skipped, String::new()));
        assert_eq!(denied[1..], same);
    }
}
