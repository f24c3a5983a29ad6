//! `exitless doctor --json`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Fault, Gathered, typed, version};

#[derive(Deserialize)]
struct Document {
    conclusion: Conclusion,
    summary: Summary,
    sections: Vec<Section>,
}

#[derive(Deserialize)]
struct Conclusion {
    outcome: String,
    sentence: String,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Summary {
    fail: i64,
    warn: i64,
    pass: i64,
    skip: i64,
}

#[derive(Deserialize)]
struct Section {
    name: String,
    title: String,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    rule: String,
    title: String,
    state: State,
    reason: Option<String>,
    found: String,
    why: String,
    evidence: Vec<Evidence>,
    fixes: Vec<Value>,
    children: Vec<Finding>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum State {
    Pass,
    Warn,
    Fail,
    Skip,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }

    /// The existence of the checked thing; `None` if the check was skipped.
    fn holds(self) -> Option<bool> {
        match self {
            Self::Pass | Self::Warn => Some(true),
            Self::Fail => Some(false),
            Self::Skip => None,
        }
    }
}

#[derive(Deserialize)]
struct Evidence {
    place: String,
    value: String,
}

/// A fix in one line: the text of a command or an advice; for changes of a definition, JSON.
fn fix(fix: &Value) -> String {
    let Some((kind, what)) = fix.as_object().and_then(|fields| fields.iter().next()) else {
        return fix.to_string();
    };
    match what.as_str() {
        Some(text) => text.to_owned(),
        None => format!("{kind}: {what}"),
    }
}

fn walk<'a>(
    findings: &'a [Finding],
    visit: &mut impl FnMut(&'a Finding) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for finding in findings {
        visit(finding)?;
        walk(&finding.children, visit)?;
    }
    Ok(())
}

/// The module and parameter in a path of sysfs.
pub(super) fn parameter(place: &str) -> Option<(&str, &str)> {
    let (module, parameter) = place.strip_prefix("/sys/module/")?.split_once("/parameters/")?;
    let plain = |name: &str| !name.is_empty() && !name.contains('/');
    (plain(module) && plain(parameter)).then_some((module, parameter))
}

/// The value of a parameter as true or false.
pub(super) fn switch(value: &str) -> Option<bool> {
    match value.trim() {
        "Y" | "y" | "1" => Some(true),
        "N" | "n" | "0" => Some(false),
        _ => None,
    }
}

pub(super) fn gather(value: &Value) -> Result<Gathered, Fault> {
    let version = version(value)?;
    let document: Document = typed(value)?;
    let mut gathered = Gathered { version, ..Gathered::default() };

    let mut facts = Facts::default();
    let mut parameters = std::collections::BTreeMap::new();
    for section in &document.sections {
        walk(&section.findings, &mut |finding| {
            facts.learn(finding);
            for evidence in &finding.evidence {
                if let Some(key) = parameter(&evidence.place)
                    && evidence.value != "not there"
                {
                    parameters.insert(key, evidence.value.as_str());
                }
            }
            gathered.row(
                "findings",
                json!({
                    "section": section.name,
                    "section_title": section.title,
                    "rule": finding.rule,
                    "title": finding.title,
                    "state": finding.state.name(),
                    "reason": finding.reason,
                    "found": finding.found,
                    "why": finding.why,
                    "evidence": finding.evidence.iter()
                        .map(|evidence| format!("{}: {}", evidence.place, evidence.value)).collect::<Vec<_>>(),
                    "fixes": finding.fixes.iter().map(fix).collect::<Vec<_>>(),
                }),
            )
        })?;
    }
    let ipi = parameters.get(&("kvm_intel", "enable_ipiv")).or(parameters.get(&("kvm_amd", "enable_ipiv")));
    let nowhere = document.conclusion.outcome == "no-virtualization";
    gathered.row(
        "hosts",
        json!({
            "outcome": document.conclusion.outcome,
            "sentence": document.conclusion.sentence,
            "next_step": document.conclusion.next,
            "fail": document.summary.fail,
            "warn": document.summary.warn,
            "pass": document.summary.pass,
            "skip": document.summary.skip,
            "kernel": facts.kernel,
            "isa": facts.module.as_deref().and_then(isa_of),
            "module": facts.module,
            "mechanism": facts.mechanism,
            "capable": facts.capable.or(nowhere.then_some(false)),
            "enabled": facts.enabled,
            "ipi_virtualization": ipi.and_then(|value| switch(value)),
        }),
    )?;
    for ((module, parameter), value) in parameters {
        gathered.row("parameters", json!({ "module": module, "parameter": parameter, "value": value }))?;
    }
    Ok(gathered)
}

/// The instruction set of a module of KVM.
pub(super) fn isa_of(module: &str) -> Option<&'static str> {
    match module {
        "kvm_intel" => Some("vmx"),
        "kvm_amd" => Some("svm"),
        _ => None,
    }
}

/// The facts about the host from single checks.
#[derive(Default)]
struct Facts {
    kernel: Option<String>,
    module: Option<String>,
    mechanism: Option<&'static str>,
    capable: Option<bool>,
    enabled: Option<bool>,
}

impl Facts {
    fn learn(&mut self, finding: &Finding) {
        for evidence in &finding.evidence {
            match (evidence.place.as_str(), evidence.place.strip_prefix("/sys/module/")) {
                ("/proc/sys/kernel/osrelease", _) => self.kernel = Some(evidence.value.clone()),
                (_, Some(module)) if finding.rule == "kvm-module" && isa_of(module).is_some() => {
                    self.module = Some(module.to_owned());
                }
                _ => {}
            }
        }
        match (finding.rule.as_str(), finding.state.holds()) {
            ("cpu-avic", Some(capable)) => {
                self.capable = Some(capable);
                self.mechanism = self.mechanism.or(Some("AVIC"));
            }
            ("cpu-x2avic", _) if finding.state == State::Pass => self.mechanism = Some("x2AVIC"),
            ("cpu-apicv", Some(capable)) => {
                self.capable = Some(capable);
                self.mechanism = Some("APICv");
            }
            // A warning says that it is off, and should be.
            ("kvm-interrupt-virtualization", _) if finding.state == State::Warn => self.enabled = Some(false),
            ("kvm-interrupt-virtualization" | "xen-apicv", enabled) => self.enabled = enabled,
            _ => {}
        }
    }
}
