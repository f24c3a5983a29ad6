//! Findings of rules.

use domain::DefinitionChange;
use host::vms::Manager;
use serde::{Deserialize, Serialize};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum State {
    /// No problem was found.
    Pass,
    /// It works, but could work better, or will stop working after the next change.
    Warn,
    /// It prevents interrupt virtualization, or the VM, from working.
    Fail,
    /// It was not checked, for this reason.
    Skip(String),
}

/// The evidence for a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The exact file (`/sys/module/kvm_amd/parameters/avic`), instruction (`CPUID 8000000Ah EDX`), command, or place
    /// in a definition (`line 12`).
    pub place: String,
    /// The value, as the source prints it.
    pub value: String,
}

/// A way to fix a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fix {
    /// A command to type on the host.
    Command(String),
    /// A change of a VM's definition, which `exitless vm fix` makes.
    Definition(Vec<DefinitionChange>),
    /// A step that only people can take: firmware settings, another kernel, a change inside the guest.
    Advice(String),
    /// The equivalent setting in the program that manages the VM. It replaces the changes of the definition.
    Managed(Managed),
}

/// A fix by the settings of the program that manages the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managed {
    /// The program.
    pub manager: Manager,
    /// The settings to change, in the program's syntax.
    pub changes: Vec<String>,
    /// The reasons why the program has no setting, with the step to take instead.
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
    /// The fixes, the least invasive first; each is sufficient alone.
    pub fixes: Vec<Fix>,
    /// The source: manual and section, kernel file and version, specification.
    pub source: String,
    /// Checks that make sense only if this one did not fail.
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
