//! Events that the running kernel cannot report, with the reasons.

use super::kind::EventKind;
use crate::{Error, Tracefs};
use std::fmt;

/// A kind of event that cannot be traced here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The kind.
    pub kind: EventKind,
    /// The reason, and the next step if there is one.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.why)
    }
}

impl Missing {
    /// The reason why `tracefs` has none of the tracepoints of `kind`.
    pub(crate) fn why(kind: EventKind, tracefs: &Tracefs) -> Self {
        let event = format!("kvm:{}", kind.tracepoints().first().copied().unwrap_or_default());
        let why = match tracefs.kernel() {
            _ if !tracefs.home().join("events/kvm").exists() => {
                "the module kvm is not loaded; `modprobe kvm_intel` or `modprobe kvm_amd`".to_owned()
            }
            Some(kernel) if kernel < kind.since() => {
                format!("Linux {kernel} has no {event}, which came with {}", kind.since())
            }
            _ => format!("this kernel's KVM has no {event}"),
        };
        Self { kind, why }
    }

    pub(crate) fn unusable(kind: EventKind, error: &Error) -> Self {
        Self { kind, why: error.to_string() }
    }
}

/// The missing kinds, grouped by reason.
#[must_use]
pub fn by_reason(missing: &[Missing]) -> Vec<(&str, Vec<EventKind>)> {
    let mut reasons: Vec<(&str, Vec<EventKind>)> = Vec::new();
    for Missing { kind, why } in missing {
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, kinds)) => kinds.push(*kind),
            None => reasons.push((why, vec![*kind])),
        }
    }
    reasons
}

/// One sentence for all missing kinds.
pub(crate) fn listed(missing: &[Missing]) -> String {
    let reasons = by_reason(missing);
    if let [(why, _)] = reasons[..] {
        return why.to_owned();
    }
    let each = reasons.iter().map(|(why, kinds)| {
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        format!("{}: {why}", kinds.join(", "))
    });
    each.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn why(release: &str, kvm: bool, kind: EventKind) -> String {
        let root = tempfile::tempdir().unwrap();
        let events = root.path().join("sys/kernel/tracing/events");
        fs::create_dir_all(if kvm { events.join("kvm") } else { events }).unwrap();
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(root.path().join("proc/sys/kernel/osrelease"), release).unwrap();
        Missing::why(kind, &Tracefs::find(root.path()).unwrap()).why
    }

    #[test]
    fn the_cause_is_the_module_or_the_kernels_age() {
        assert!(why("6.12.1", false, EventKind::Kick).contains("modprobe kvm_amd"));
        let old = why("5.10.0-8", true, EventKind::Kick);
        assert_eq!(old, "Linux 5.10 has no kvm:kvm_avic_kick_vcpu_slowpath, which came with 5.19");
        assert_eq!(why("6.12.1", true, EventKind::GaLog), "this kernel's KVM has no kvm:kvm_avic_ga_log");
    }

    #[test]
    fn one_reason_is_told_once() {
        let missing = |kind, why: &str| Missing { kind, why: why.to_owned() };
        let both = [missing(EventKind::Kick, "x"), missing(EventKind::GaLog, "x")];
        assert_eq!(listed(&both), "x");
        let three = [both[0].clone(), missing(EventKind::PvEoi, "y"), both[1].clone()];
        assert_eq!(listed(&three), "kick, ga-log: x; pv-eoi: y");
    }
}
