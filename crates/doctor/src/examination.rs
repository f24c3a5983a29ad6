//! The examination of a host: a tree of checks by category, a section per running VM, and a conclusion in one
//! sentence.
//!
//! All functions work on facts that were already read. Only [`examine_below`] accesses the host: it reads the files that
//! command lines of VMs name.

#[cfg(test)]
pub(crate) mod cases;
mod conclusion;
mod contradictions;
mod cpu;
mod host_side;
mod iommu;
mod kernel;
mod kernels;
mod kvm;
mod kvm_features;
mod limits;
mod node_features;
mod placement;
mod release;
mod rule;
mod running;
mod subject;
mod vm;
mod vm_side;
mod xen;

pub use conclusion::{Conclusion, HostState};
pub use kernels::{
    Asked, Build, Has, Judgement, Kind, ROWS as KERNELS, Row as KernelRow, keeps_cr8_intercept,
    passes_served_msrs, without_cr8_intercept,
};
pub(crate) use kernels::{
    BARRED_BY_SNP, WITHOUT_ERRATUM_1235, WITHOUT_SNP, is_barred_by_snp, is_hit_by_erratum_1235,
};
pub use node_features::node_features;
pub use release::{Release, Tree, Vendor};
pub use rule::{Category, Rule};
pub use vm_side::VmSide;

use crate::{Finding, Section, State, Tally};
use host::Inspection;
use rule::Verdict;
use serde::{Deserialize, Serialize};
use std::path::Path;
use subject::Subject;

/// The result of an examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examination {
    /// The conclusion.
    pub conclusion: Conclusion,
    /// The number of findings in each state.
    pub summary: Tally,
    /// The host's categories, followed by the VMs. Sections without findings are omitted.
    pub sections: Vec<Section>,
}

impl Examination {
    /// Adds a section after all others.
    pub fn add(&mut self, section: Section) {
        self.sections.push(section);
        self.summary = Tally::of(self.sections.iter().flat_map(|section| &section.findings));
    }
}

/// All rules, in the order of display: those with their own function, and the rows of [`KERNELS`].
#[must_use]
pub fn rules() -> Vec<Rule> {
    let rows = |category| {
        let rows = KERNELS.iter().filter(move |_| category == Category::Kernel);
        rows.map(kernel::rule_of)
    };
    let categories = Category::OF_HOST.iter().chain(&[Category::Vm]);
    categories.flat_map(|&category| of(category).iter().copied().chain(rows(category))).collect()
}

const fn of(category: Category) -> &'static [Rule] {
    match category {
        Category::Cpu => cpu::RULES,
        Category::Contradictions => contradictions::RULES,
        Category::Kernel => kernel::RULES,
        Category::Kvm => kvm::RULES,
        Category::Iommu => iommu::RULES,
        Category::Limits => limits::RULES,
        Category::Placement => placement::RULES,
        Category::Xen => xen::RULES,
        Category::Vm => vm::RULES,
    }
}

/// Examines a host. `sides` has the facts about running VMs from other sources than files; VMs without a side are
/// examined too. `chosen` restricts the VMs to those of some processes; empty means all.
#[must_use]
pub fn examine(host: &Inspection, sides: &[VmSide], chosen: &[i32]) -> Examination {
    examine_below(host, sides, chosen, None)
}

/// As [`examine`], and reads the files that the command lines of VMs name (`-readconfig`) if the directory that stands for
/// `/` is given. Without those of Incus and LXD nothing is known about the machine.
#[must_use]
pub fn examine_below(
    host: &Inspection,
    sides: &[VmSide],
    chosen: &[i32],
    files: Option<&Path>,
) -> Examination {
    let subject = Subject::new(host);
    let mut sections: Vec<Section> = Category::OF_HOST
        .iter()
        .map(|&category| {
            let mut findings = tree(of(category), &subject);
            if category == Category::Kernel {
                findings.extend(kernel::versions(&subject));
            }
            section(category, findings)
        })
        .collect();
    sections.extend(running::sections(&subject, sides, chosen, files));
    sections.retain(|section| !section.findings.is_empty());
    let summary = Tally::of(sections.iter().flat_map(|section| &section.findings));
    let conclusion = conclusion::conclude(&subject, &sections, sides, chosen);
    Examination { sections, summary, conclusion }
}

fn section(category: Category, findings: Vec<Finding>) -> Section {
    Section { name: category.name().to_owned(), title: category.title().to_owned(), form: None, findings }
}

/// The findings of some rules as a tree. A rule that does not apply to this host is omitted, and its children
/// take its place.
fn tree(rules: &[Rule], subject: &Subject<'_>) -> Vec<Finding> {
    let judged: Vec<(&Rule, Option<Verdict>)> =
        rules.iter().map(|rule| (rule, (rule.check)(subject))).collect();
    let has = |name: &str| judged.iter().any(|(rule, verdict)| rule.name == name && verdict.is_some());
    let roots = judged.iter().filter(|(rule, _)| !has(rule.parent));
    roots.filter_map(|(rule, verdict)| Some(branch(rule, verdict.clone()?, &judged))).collect()
}

fn branch(rule: &Rule, verdict: Verdict, judged: &[(&Rule, Option<Verdict>)]) -> Finding {
    let cause = match &verdict.state {
        State::Fail => Some(format!("{}: {}", rule.title, verdict.found)),
        _ => None,
    };
    let mut finding = rule.finding(verdict);
    let children = judged.iter().filter(|(child, _)| child.parent == rule.name);
    finding.children = children
        .filter_map(|(child, verdict)| {
            let verdict = verdict.clone()?;
            let verdict = match &cause {
                Some(cause) => Verdict::skip(cause.clone()),
                None => verdict,
            };
            Some(match &cause {
                // Skip the child's own children for the same reason.
                Some(cause) => skipped(child, cause, judged),
                None => branch(child, verdict, judged),
            })
        })
        .collect();
    finding
}

fn skipped(rule: &Rule, cause: &str, judged: &[(&Rule, Option<Verdict>)]) -> Finding {
    let mut finding = rule.finding(Verdict::skip(cause));
    let children = judged.iter().filter(|(child, verdict)| child.parent == rule.name && verdict.is_some());
    finding.children = children.map(|(child, _)| skipped(child, cause, judged)).collect();
    finding
}

#[cfg(test)]
#[path = "examination/examination_tests.rs"]
mod tests;
