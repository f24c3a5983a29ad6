//! Findings of rules.

use domain::DefinitionChange;
use host::vms::Manager;
use serde::{Deserialize, Serialize};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum State {
    /// All is as it should be.
    Pass,
    /// It works, and could work better; or it will not after the next change.
    Warn,
    /// It stands in the way.
    Fail,
    /// It was not looked at, for this reason.
    Skip(String),
}

/// The evidence for a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The very file (`/sys/module/kvm_amd/parameters/avic`), instruction (`CPUID 8000000Ah EDX`), command, or place in
    /// a definition (`line 12`).
    pub place: String,
    /// The value, in the source's own words.
    pub value: String,
}

/// A way to fix a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fix {
    /// A command, as it is typed on the host.
    Command(String),
    /// A change of a VM's definition, which `exitless vm fix` makes.
    Definition(Vec<DefinitionChange>),
    /// A step for people alone: firmware settings, another kernel, a change inside the guest.
    Advice(String),
    /// The setting that the user of the program that made the VM changes there; it stands for the definition's changes.
    Managed(Managed),
}

/// A fix in the words of the program that made the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managed {
    /// The program.
    pub manager: Manager,
    /// The setting that its user changes, in its syntax.
    pub changes: Vec<String>,
    /// The reason why there is no setting there, and the step to take instead.
    pub without: Vec<String>,
    /// The sources.
    pub sources: Vec<String>,
}

/// A finding of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's stable name in lower case with dashes: `cpu-avic`, `irqchip-split`.
    pub rule: String,
    /// The subject, in a few words.
    pub title: String,
    /// The result.
    #[serde(flatten)]
    pub state: State,
    /// The finding, in one line.
    pub found: String,
    /// The reason why it matters, in one line.
    pub why: String,
    /// The evidence.
    pub evidence: Vec<Evidence>,
    /// The ways to fix it, the least invasive first; each is enough alone.
    pub fixes: Vec<Fix>,
    /// The source: manual and section, kernel file and version, specification.
    pub source: String,
    /// Checks that have a meaning only when this one did not fail.
    pub children: Vec<Finding>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_finding_is_whole_in_json() {
        let finding = Finding {
            rule: "pit".to_owned(),
            title: "PIT".to_owned(),
            state: State::Skip("no KVM".to_owned()),
            found: String::new(),
            why: "it matters".to_owned(),
            evidence: Vec::new(),
            fixes: Vec::new(),
            source: "Linux".to_owned(),
            children: Vec::new(),
        };
        let text = serde_json::to_string(&finding).unwrap();
        assert!(text.contains(r#""state":"skip","reason":"no KVM""#), "{text}");
        assert_eq!(serde_json::from_str::<Finding>(&text).unwrap(), finding);
    }
}
