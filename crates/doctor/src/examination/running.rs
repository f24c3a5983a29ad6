//! The running VMs, each with a section of its own: its present state, and the findings in its definition.

use super::rule::Verdict;
use super::subject::{Of, Subject};
use super::vm_side::VmSide;
use super::{tree, vm};
use crate::lint::{HostSide, lint, unread_machine};
use crate::managed::{self, has_words};
use crate::{Finding, Section, State};
use domain::{Accelerator, Definition, Files, FilesBelow, Form, NoFiles, Place, Set, Text};
use exits::counted;
use host::inspection::RunningVm;
use host::vms::Vmm;
use std::path::Path;

/// A section for each selected VM. The files that their command lines name are below `files`, if they may be read.
pub(super) fn sections(
    subject: &Subject<'_>,
    sides: &[VmSide],
    chosen: &[i32],
    files: Option<&Path>,
) -> Vec<Section> {
    let wanted = |vm: &&RunningVm| chosen.is_empty() || chosen.contains(&vm.vm.pid);
    let running = subject.running().iter().filter(wanted);
    running.flat_map(|running| sections_of(subject, running, sides, files)).collect()
}

fn sections_of(
    subject: &Subject<'_>,
    running: &RunningVm,
    sides: &[VmSide],
    files: Option<&Path>,
) -> Vec<Section> {
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
            let (of_definition, written_in) = definition(subject, running, files);
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
fn definition(
    subject: &Subject<'_>,
    running: &RunningVm,
    files: Option<&Path>,
) -> (Vec<Finding>, Option<Form>) {
    let read = match read(running, files) {
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
fn read(running: &RunningVm, files: Option<&Path>) -> Result<Definition, (State, String)> {
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
    let below = files.map(|root| FilesBelow::of_process(root, pid));
    let files: &dyn Files = match &below {
        Some(below) => below,
        None => &NoFiles,
    };
    let mut read = domain::qemu::read(&Text::new(format!("process {pid}"), bytes), files)
        .map_err(|error| (State::Warn, error.to_string()))?;
    if let Some(why) = unread_machine(&read) {
        return Err((State::Skip(why), String::new()));
    }
    // The process has a VM of KVM's, so QEMU does not run on its default, TCG.
    if read.machine.accelerator.is_none() && read.accelerator_in_force() == Accelerator::Tcg {
        if read.machine.kind.is_none() {
            // Android's emulator makes QEMU's arguments within the process.
            let why = "QEMU has its machine from elsewhere than its command line";
            return Err((State::Skip(why.to_owned()), String::new()));
        }
        // KVM is the default of a QEMU that was built without TCG.
        let place = Place { text: "the descriptors of the process".to_owned(), ..Place::default() };
        read.machine.accelerator = Some(Set::new(Accelerator::Kvm, place));
    }
    Ok(read)
}

fn summary(state: State, found: String, running: &RunningVm) -> Finding {
    let place = format!("/proc/{}/cmdline", running.vm.pid);
    let value = counted(running.vm.arguments.len() as u64, "argument");
    vm::DEFINITION.finding(Verdict::of(state, found).seen(place, value))
}
