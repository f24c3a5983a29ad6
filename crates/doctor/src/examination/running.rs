//! The running VMs, each with a section of its own: its present state, and the findings in its definition.

use super::rule::Verdict;
use super::subject::{Of, Subject};
use super::vm_side::VmSide;
use super::{tree, vm};
use crate::lint::{HostSide, lint};
use crate::managed::{self, has_words};
use crate::{Finding, Section, State};
use domain::{Definition, Form, NoFiles, Text};
use exits::counted;
use host::inspection::RunningVm;
use host::vms::Vmm;

/// A section for each selected VM.
pub(super) fn sections(subject: &Subject<'_>, sides: &[VmSide], chosen: &[i32]) -> Vec<Section> {
    let wanted = |vm: &&RunningVm| chosen.is_empty() || chosen.contains(&vm.vm.pid);
    subject.running().iter().filter(wanted).flat_map(|running| sections_of(subject, running, sides)).collect()
}

fn sections_of(subject: &Subject<'_>, running: &RunningVm, sides: &[VmSide]) -> Vec<Section> {
    // A process can have several VMs, each with a state of its own.
    let mut of_it: Vec<Option<&VmSide>> =
        sides.iter().filter(|side| side.pid == running.vm.pid).map(Some).collect();
    if of_it.is_empty() {
        of_it.push(None);
    }
    let several = of_it.len() > 1;
    let section = |(at, side): (usize, Option<&VmSide>)| {
        let mut findings = tree(vm::RULES, &subject.with_vm(Of { running, side }));
        let mut form = None;
        if at == 0 {
            let (of_definition, written_in) = definition(subject, running);
            findings.extend(of_definition);
            form = written_in;
        }
        let which = if several { format!(", VM {}", at + 1) } else { String::new() };
        Section {
            name: name(running).to_owned(),
            title: format!("VM {} ({}process {}{which})", name(running), of_manager(running), running.vm.pid),
            form,
            findings,
        }
    };
    of_it.into_iter().enumerate().map(section).collect()
}

/// The name of the VM for its owner.
pub(super) fn name(running: &RunningVm) -> &str {
    running.libvirt.as_ref().map_or(running.vm.name.as_str(), |libvirt| libvirt.name.as_str())
}

/// The manager of the VM, if it has settings of its own; for the section's title.
fn of_manager(running: &RunningVm) -> String {
    let management = &running.vm.management;
    if !has_words(management.manager) || management.manager.is_vmm() {
        return String::new();
    }
    let number = management.vmid.map_or(String::new(), |vmid| format!(" {vmid}"));
    format!("{}{number}, ", management.manager.name())
}

/// The findings of the rules over definitions that need a fix, and one line about the others.
fn definition(subject: &Subject<'_>, running: &RunningVm) -> (Vec<Finding>, Option<Form>) {
    let read = match read(running) {
        Ok(read) => read,
        Err((state, found)) => return (vec![summary(state, found, running)], None),
    };
    let mut found = lint(&read, &HostSide::of(subject.host));
    managed::translate(&mut found, Some(&read), &running.vm.name, &running.vm.management);
    let fixes = |finding: &Finding| matches!(finding.state, State::Fail | State::Warn);
    let judged = found.iter().filter(|one| !matches!(one.state, State::Skip(_))).count();
    let count = found.iter().filter(|one| fixes(one)).count();
    let told = match count {
        0 => format!("{judged} rules found no problem"),
        1 => format!("1 of {judged} rules found a problem"),
        some => format!("{some} of {judged} rules found problems"),
    };
    let mut findings = vec![summary(State::Pass, told, running)];
    findings.extend(found.into_iter().filter(fixes));
    (findings, Some(read.form))
}

/// The definition of the VM; the error is the state and text of the finding instead.
fn read(running: &RunningVm) -> Result<Definition, (State, String)> {
    if running.vm.vmm != Vmm::Qemu {
        return Err((State::Skip("the rules over definitions are about QEMU".to_owned()), String::new()));
    }
    let pid = running.vm.pid;
    if let Some(libvirt) = &running.libvirt {
        for fact in [&libvirt.definition, &libvirt.status] {
            let (Some(text), Some(place)) = (fact.get(), fact.evidence.first()) else { continue };
            let read = domain::libvirt::read(&Text::new(place.place.clone(), text.as_bytes()), &NoFiles);
            // A domain always has a type. If none was found, the XML was not understood.
            if let Some(read) = read.ok().filter(|read| read.machine.accelerator.is_some()) {
                return Ok(read);
            }
        }
    }
    let mut bytes = running.vm.arguments.join("\0").into_bytes();
    bytes.push(0);
    domain::qemu::read(&Text::new(format!("process {pid}"), bytes), &NoFiles)
        .map_err(|error| (State::Warn, error.to_string()))
}

fn summary(state: State, found: String, running: &RunningVm) -> Finding {
    let place = format!("/proc/{}/cmdline", running.vm.pid);
    let value = counted(running.vm.arguments.len() as u64, "argument");
    vm::DEFINITION.finding(Verdict::of(state, found).seen(place, value))
}
