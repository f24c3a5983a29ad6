//! The VM definition that a command examines: of a file, a process, a running VM, or a libvirt domain.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use doctor::{Section, managed};
use domain::{Definition, FilesBelow, Form, Text};
use host::vms::{Management, Manager, Vmm, Vms};

use crate::status::Usage;

/// The most bytes of a definition, the same as for libvirt's XML.
const MOST_BYTES: usize = 100 << 20;

/// The folders below / in which libvirt keeps its definitions: of domains, and of those that run.
pub(super) const OF_LIBVIRT: [&str; 2] = ["etc/libvirt/qemu", "run/libvirt/qemu"];

/// The definition that is wanted of a libvirt domain. It has two while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one with which it starts next, which `virsh define` changes.
    Next,
    /// The one with which it runs, or else the other one.
    Running,
}

/// The source of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file, which can be written back.
    File(PathBuf),
    /// Standard input.
    Input,
    /// A running process, whose arguments cannot be changed.
    Process(i32),
    /// A libvirt domain by its name, written back with `virsh define`.
    Libvirt(String),
}

/// A definition's text, with its form and source.
#[derive(Debug)]
pub(crate) struct Subject {
    /// The text.
    pub(crate) text: Text,
    /// Its form.
    pub(crate) form: Form,
    /// Its source.
    pub(crate) source: Source,
    /// The running VM's name, and the software that manages it.
    pub(crate) made: Option<(String, Management)>,
    files: FilesBelow,
}

impl Subject {
    /// Finds `wanted`: a file, `-` for standard input, a process ID, a name of a running VM, or
    /// `libvirt:NAME`. Looks for processes and libvirt's files below `root`.
    pub(crate) fn find(root: &Path, wanted: &str, which: Which) -> anyhow::Result<Self> {
        if let Some(name) = wanted.strip_prefix("libvirt:") {
            let mut subject = libvirt(root, name, which)?;
            let vms = Vms::discover(root).unwrap_or_default().vms;
            let running = vms.into_iter().find(|vm| vm.vmm == Vmm::Qemu && vm.name == name);
            subject.made = running.map(|vm| (vm.name, vm.management));
            return Ok(subject);
        }
        if wanted == "-" {
            let bytes = limited(io::stdin().lock()).context("Reading standard input failed")?;
            let files = FilesBelow::new("/", std::env::current_dir().unwrap_or_default());
            return Ok(Self::of_text("standard input", bytes, Source::Input, files));
        }
        if let Ok(pid) = wanted.parse::<i32>() {
            // Prefer a VM with this number as its ID in Proxmox VE or libvirt; otherwise it is a process ID,
            // of any process.
            let vms = Vms::discover(root).unwrap_or_default();
            let of_vm = vms.select(&[wanted.to_owned()]).ok().and_then(|found| Some(found.first()?.pid));
            return process(root, of_vm.unwrap_or(pid));
        }
        let path = Path::new(wanted);
        if path.exists() {
            return file(path);
        }
        let vms = Vms::discover(root)?;
        let is_path = wanted.contains('/') && vms.select(&[wanted.to_owned()]).is_err();
        if is_path {
            return file(path);
        }
        match vms.select(&[wanted.to_owned()]) {
            Ok(found) => match found[..] {
                [vm] => process(root, vm.pid),
                _ => {
                    let pids: Vec<String> = found.iter().map(|vm| vm.pid.to_string()).collect();
                    let pids = pids.join(", ");
                    Err(Usage(format!("Several VMs are called {wanted:?}. Name one by its process: {pids}.")).into())
                }
            },
            Err(missing) => Err(Usage(format!(
                "There is no file {wanted:?}, and no running VM of that name. ({missing}) For a domain of libvirt's \
                 that does not run, say libvirt:{wanted}."
            ))
            .into()),
        }
    }

    fn of_text(name: impl Into<String>, bytes: Vec<u8>, source: Source, files: FilesBelow) -> Self {
        let form = form(&bytes);
        Self { text: Text::new(name, bytes), form, source, made: None, files }
    }

    /// Reads the definition.
    ///
    /// # Errors
    ///
    /// As [`domain::qemu::read`] and [`domain::libvirt::read`].
    pub(crate) fn definition(&self) -> Result<Definition, domain::Error> {
        match self.form {
            Form::Libvirt => domain::libvirt::read(&self.text, &self.files),
            Form::Xl => domain::xl::read(&self.text),
            _ => domain::qemu::read(&self.text, &self.files),
        }
    }

    /// Rewords the findings of these sections for the software that manages the VM.
    pub(crate) fn translate(&self, sections: &mut [Section], definition: &Definition) {
        let Some((name, management)) = &self.made else { return };
        for section in sections {
            managed::translate(&mut section.findings, Some(definition), name, management);
        }
    }

    /// The VM's manager, if its users edit neither QEMU's arguments nor libvirt's XML.
    pub(crate) fn manager(&self) -> Option<Manager> {
        let (_, management) = self.made.as_ref()?;
        Some(management.manager).filter(|manager| managed::has_words(*manager))
    }

    /// A sentence for the user of a running VM that libvirt starts: how to change its definition.
    pub(crate) fn in_libvirt(&self) -> Option<String> {
        let (name, management) = self.made.as_ref()?;
        let is_domain = matches!(self.source, Source::Process(_)) && management.manager == Manager::Libvirt;
        if !is_domain || name.is_empty() {
            return None;
        }
        let domain = report::fixed::quoted(format!("libvirt:{name}").as_bytes());
        Some(format!("libvirt starts this VM. `exitless vm fix {domain}` changes its definition."))
    }

    /// A sentence for the user of a running VM that a known program starts: how to change its definition.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        let Source::Process(pid) = self.source else { return None };
        let in_program = |manager: Manager| {
            let name = manager.name();
            format!("{name} starts this VM. `exitless vm lint {pid}` says what to change there.")
        };
        self.manager().map(in_program).or_else(|| self.in_libvirt())
    }

    /// The files that the definition may refer to.
    pub(crate) fn files(&self) -> &FilesBelow {
        &self.files
    }
}

/// Guesses the format: XML begins with `<`, in any encoding; xl.cfg has a setting on a line of its own;
/// everything else counts as QEMU's arguments.
fn form(bytes: &[u8]) -> Form {
    let first = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start().first();
    let utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    if first == Some(&b'<') || utf16 {
        Form::Libvirt
    } else if domain::xl::is(bytes) {
        Form::Xl
    } else {
        Form::Qemu
    }
}

fn limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MOST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it has more than 100 MiB, which no definition has",
        ));
    }
    Ok(bytes)
}

fn file(path: &Path) -> anyhow::Result<Subject> {
    let opened = match File::open(path) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            return Err(
                Usage(format!("There is no file {}. Give one with a definition.", path.display())).into()
            );
        }
        opened => opened,
    };
    if path.is_dir() {
        let next = "Give a file with a definition.";
        return Err(Usage(format!("{} is a directory. {next}", path.display())).into());
    }
    let bytes = opened.and_then(limited).with_context(|| format!("Reading {} failed", path.display()))?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let files = FilesBelow::new("/", folder);
    Ok(Subject::of_text(path.display().to_string(), bytes, Source::File(path.to_owned()), files))
}

fn process(root: &Path, pid: i32) -> anyhow::Result<Subject> {
    let folder = root.join(format!("proc/{pid}"));
    let path = folder.join("cmdline");
    let place = path.clone();
    let look = move || File::open(&place).and_then(limited);
    let bytes = match files::look(&folder, look).and_then(|read| read) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            let hint = if Path::new(&pid.to_string()).exists() {
                format!(" For the file of that name, say ./{pid}.")
            } else {
                String::new()
            };
            return Err(Usage(format!("There is no process {pid}.{hint}")).into());
        }
        Err(problem) if problem.kind() == io::ErrorKind::TimedOut => {
            return Err(anyhow!(
                "Process {pid} blocks inspection: reading {} waits in the kernel for a file system that does not \
                 answer. Give the VM's definition as a file.",
                path.display()
            ));
        }
        read => read.with_context(|| format!("Reading {} failed", path.display()))?,
    };
    if bytes.is_empty() {
        return Err(anyhow!("Process {pid} has no arguments: it belongs to the kernel, or has ended."));
    }
    let text = Text::new(format!("process {pid}"), bytes);
    let files = FilesBelow::of_process(root, pid);
    let made = host::vms::names_of(root, pid).map(|(name, made)| (name.unwrap_or_default(), made));
    if let Some(manager) = made.as_ref().map(|(_, made)| made.manager)
        && manager.is_vmm()
        && managed::has_words(manager)
    {
        let name = manager.name();
        return Err(Usage(format!(
            "Process {pid} is {name}, and only command lines of QEMU are read. `exitless verify --vm {pid}` says what to \
             change in {name}."
        ))
        .into());
    }
    Ok(Subject { text, form: Form::Qemu, source: Source::Process(pid), made, files })
}

/// The answer of virsh, in English. Has a time limit, because virsh waits forever for a daemon that hangs.
pub(super) fn virsh(words: &[&str]) -> Result<programs::Answer, programs::Error> {
    programs::answer(
        Command::new("virsh").args(words).env("LC_ALL", "C"),
        Duration::from_secs(60),
        MOST_BYTES,
    )
}

/// A domain's XML as virsh prints it. The error is the message of virsh; there is none without virsh, and if it lists
/// no such domain.
fn printed(name: &str, which: Which) -> Result<Vec<u8>, Option<String>> {
    let ask = |words: &[&str]| match virsh(words) {
        Ok(answer) => answer.output().map_err(Some),
        // The file may still exist.
        Err(error) if error.is_missing() => Err(None),
        Err(error) => Err(Some(error.to_string())),
    };
    let list = |words: &[&str]| {
        let listed = ask(&[&["--readonly"][..], words].concat());
        listed.map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let Some(domain) = programs::virsh::domain(name, list)? else { return Err(None) };
    let mut words = vec!["--readonly", "dumpxml", "--domain", &domain];
    words.extend((which == Which::Next).then_some("--inactive"));
    ask(&words)
}

/// A domain's XML, from libvirt or else from its file.
fn libvirt(root: &Path, name: &str, which: Which) -> anyhow::Result<Subject> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Usage(format!("No domain is called {name:?}. `virsh list --all` lists them.")).into());
    }
    let mut said = None;
    if root == Path::new("/") {
        match printed(name, which) {
            Ok(xml) => {
                let (source, files) = (Source::Libvirt(name.to_owned()), FilesBelow::new(root, "/"));
                return Ok(Subject::of_text(format!("libvirt domain {name}"), xml, source, files));
            }
            Err(why) => said = why,
        }
    }
    file_of_libvirt(root, name, which, said)
}

/// A domain's XML from its file. `said` is the message of virsh, if it was asked.
fn file_of_libvirt(root: &Path, name: &str, which: Which, said: Option<String>) -> anyhow::Result<Subject> {
    let kept = OF_LIBVIRT.map(|folder| root.join(folder).join(format!("{name}.xml")));
    let [defined, running] = &kept;
    let order = if which == Which::Next { [defined, running] } else { [running, defined] };
    let mut denied = None;
    for path in order {
        match File::open(path).and_then(limited) {
            Ok(bytes) => {
                let (source, files) = (Source::Libvirt(name.to_owned()), FilesBelow::new(root, "/"));
                return Ok(Subject::of_text(path.display().to_string(), bytes, source, files));
            }
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => {}
            Err(problem) => {
                denied.get_or_insert((path, problem));
            }
        }
    }
    // virshLookupDomainInternal in tools/virsh-util.c prints the error VIR_ERR_NO_DOMAIN.
    let is_unknown = said.as_ref().is_some_and(|said| said.contains("Domain not found"));
    let of_files = match denied {
        Some((path, problem)) if is_unknown => format!("{} cannot be read ({problem})", path.display()),
        Some((path, problem)) => {
            let reading = format!("Reading {} failed", path.display());
            let context =
                said.map_or_else(|| reading.clone(), |said| format!("{reading}, and virsh says: {said}"));
            return Err(anyhow!(problem).context(context));
        }
        None => format!("neither {} nor {} is there", defined.display(), running.display()),
    };
    let said = said.map(|said| format!(" virsh says: {said}.")).unwrap_or_default();
    Err(Usage(format!(
        "libvirt has no domain {name:?} here: {of_files}.{said} `virsh list --all` lists its domains."
    ))
    .into())
}

#[cfg(test)]
#[path = "subject_tests.rs"]
mod tests;
