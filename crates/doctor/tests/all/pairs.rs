//! A definition in libvirt's XML and the arguments that libvirt generates from it have the same findings.
//!
//! `DEFINITION_PAIRS=DIR cargo nextest run -p doctor pairs --no-capture` compares each `NAME.args` and
//! `NAME.ARCH-VERSION.args` below DIR with its `NAME.xml`, such as `tests/qemuxmlconfdata` of libvirt's source.

use doctor::lint::{HostSide, lint};
use doctor::{Finding, State};
use domain::{Accelerator, Definition, NoFiles, Place, Set, Text};
use exits::Isa;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The smallest accepted share of verdicts that agree.
const LEAST: f64 = 0.99;

/// The XML of a file of arguments.
fn xml_of(arguments: &Path) -> Option<PathBuf> {
    let stem = arguments.file_stem()?.to_str()?;
    let names = std::iter::successors(Some(stem), |name| Some(name.rsplit_once('.')?.0));
    names.map(|name| arguments.with_file_name(format!("{name}.xml"))).find(|path| path.is_file())
}

fn name(state: &State) -> &str {
    match state {
        State::Pass => "pass",
        State::Warn => "warn",
        State::Fail => "fail",
        State::Skip(_) => "skip",
    }
}

fn told(finding: &Finding) -> String {
    match &finding.state {
        State::Skip(why) => format!("skip {why}"),
        state => format!("{} {}", name(state), finding.found),
    }
}

#[test]
fn pairs_of_xml_and_arguments_have_the_same_findings() {
    let Some(folder) = std::env::var_os("DEFINITION_PAIRS") else {
        return println!("not tested: DEFINITION_PAIRS names no folder of NAME.xml and NAME.args");
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("it is a folder")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "args"));
    files.sort();
    let hosts = [HostSide::of_vendor(Isa::Svm), HostSide::of_vendor(Isa::Vmx), HostSide::default()];
    let (mut pairs, mut judged) = (0, 0);
    let mut rules: BTreeMap<String, Agreement> = BTreeMap::new();
    for arguments in &files {
        let Some(xml) = xml_of(arguments) else { continue };
        let read = |path: &Path| Text::new("a file", std::fs::read(path).expect("it can be read"));
        let xml = domain::libvirt::read(&read(&xml), &NoFiles);
        let (Ok(xml), Ok(given)) = (xml, domain::qemu::read(&read(arguments), &NoFiles)) else {
            println!("{}: not read", arguments.display());
            continue;
        };
        pairs += 1;
        let (xml, given) = (on_kvm(xml), on_kvm(given));
        for host in &hosts {
            for (one, other) in lint(&xml, host).iter().zip(lint(&given, host)) {
                if name(&one.state) == "skip" && name(&other.state) == "skip" {
                    continue;
                }
                judged += 1;
                let same = name(&one.state) == name(&other.state);
                rules.entry(one.rule.clone()).or_default().add(same, is_finding(one) || is_finding(&other));
                if !same {
                    let file = arguments.file_stem().unwrap_or_default().to_string_lossy();
                    println!("{}: {file}: XML {}; arguments {}", one.rule, told(one), told(&other));
                }
            }
        }
    }
    let mut whole = Agreement::default();
    for (rule, one) in &rules {
        println!("{rule}: {one}");
        whole.verdicts.iter_mut().zip(one.verdicts).for_each(|(sum, one)| *sum += one);
        whole.findings.iter_mut().zip(one.findings).for_each(|(sum, one)| *sum += one);
    }
    println!("{pairs} pairs, {} hosts, {judged} verdicts: {whole}", hosts.len());
    let [agree, all] = whole.verdicts;
    assert!(agree as f64 >= LEAST * all as f64, "{whole}");
}

/// The numbers of verdicts that agree, and of all verdicts.
#[derive(Debug, Clone, Copy, Default)]
struct Agreement {
    verdicts: [usize; 2],
    /// The same for verdicts of which one is a warning or failure.
    findings: [usize; 2],
}

impl Agreement {
    fn add(&mut self, same: bool, finding: bool) {
        let one = [usize::from(same), 1];
        self.verdicts.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        if finding {
            self.findings.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        }
    }
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ([agree, all], [found, findings]) = (self.verdicts, self.findings);
        write!(f, "{agree} of {all} verdicts agree, {found} of {findings} with a finding")
    }
}

fn is_finding(finding: &Finding) -> bool {
    matches!(finding.state, State::Warn | State::Fail)
}

/// Changes TCG to KVM: most of libvirt's tests do not ask for KVM, but most rules judge only VMs on KVM.
fn on_kvm(mut definition: Definition) -> Definition {
    let accelerator = &mut definition.machine.accelerator;
    if accelerator.as_ref().is_none_or(|set| set.value == Accelerator::Tcg) {
        *accelerator = Some(Set::new(Accelerator::Kvm, Place::default()));
    }
    definition
}
