//! `exitless vm fix`: makes the changes that rules require in the definition's own text.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use doctor::fix::{Chosen, Fixed, fix};
use doctor::lint::HostSide;
use domain::Form;
use report::fixed::{FixedView, quoted};

use super::lint::For;
use super::subject::{OF_LIBVIRT, Source, Subject, Which};
use super::write::{self, Written};
use crate::status::Usage;
use crate::{console, status};

/// Arguments of `vm fix`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A file with libvirt's XML or a QEMU command line, - for standard input, a process, a running VM by its
    /// name, UUID, number or NAMESPACE/NAME, or a domain of libvirt.
    #[arg(value_name = "FILE|PID|NAME|libvirt:NAME")]
    subject: String,
    /// Fix only findings of this rule, also if the guest must be changed too; may be given more than once.
    #[arg(long = "rule", value_name = "NAME")]
    rules: Vec<String>,
    /// Also fix findings for which the guest must be changed too (another driver, or without a feature), or whose fix
    /// prevents migration.
    #[arg(long, conflicts_with = "rules")]
    all: bool,
    /// Write the new text back: to a file, or to a domain by `virsh define`.
    #[arg(long)]
    apply: bool,
    /// The host where the VM is to run.
    #[arg(long = "for", value_name = "HOST", value_enum, default_value = "this-host")]
    host: For,
    /// The directory to use as /.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let chosen = if arguments.all {
        Chosen::All
    } else {
        Chosen::rules(&arguments.rules).map_err(|error| Usage(error.to_string()))?
    };
    let subject = Subject::find(&arguments.root, &arguments.subject, Which::Next)?;
    if subject.form == Form::Xl {
        return Err(Usage(format!(
            "{} is for Xen; xl.cfg must be changed by hand: `exitless vm lint {}` says where.",
            subject.text.name, arguments.subject
        ))
        .into());
    }
    if let Some(manager) = subject.manager().filter(|_| matches!(subject.source, Source::Libvirt(_))) {
        tracing::warn!(
            "{} writes this domain anew when it starts it; `exitless vm lint {}` says what to change there",
            manager.name(),
            arguments.subject
        );
    }
    if arguments.apply {
        refuse_what_cannot_be_written(&subject.source, subject.elsewhere(), &arguments.root)?;
    }
    let host = arguments.host.host_side(&arguments.root)?;
    let fixed = fix(&subject.text, subject.form, subject.files(), &host, &chosen)?;
    let written = if arguments.apply && fixed.bytes != subject.text.bytes {
        Some(apply(&subject, &fixed, &host, &chosen)?)
    } else {
        None
    };
    let changed = fixed.bytes != subject.text.bytes;
    let document = || report::fixed::json(&subject.text.name, &subject.text.bytes, &fixed, written.is_some());
    let text = || {
        report::fixed::terminal(FixedView {
            name: &subject.text.name,
            form: subject.form,
            old: &subject.text.bytes,
            fixed: &fixed,
            ending: &ending(&subject, changed, written.as_ref()),
            width: console::width(),
            colour: console::colour(),
        })
    };
    crate::output::print(arguments.json, document, text)?;
    let done = (!changed || written.is_some()) && fixed.refused.is_empty();
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(status::TO_FIX) })
}

/// `elsewhere` says how to change the definition of a VM that another program starts.
fn refuse_what_cannot_be_written(
    source: &Source,
    elsewhere: Option<String>,
    root: &Path,
) -> Result<(), Usage> {
    match source {
        Source::Libvirt(name) if root != Path::new("/") => Err(Usage(format!(
            "The domain {name} was read below {}, and virsh defines domains of this host. Leave --apply or --root out.",
            root.display()
        ))),
        Source::File(path) => match through_libvirt(root, path) {
            Some(instead) => Err(Usage(format!(
                "{} is libvirt's own: libvirt has the definition in memory, and overwrites the file. {instead}",
                path.display()
            ))),
            None => Ok(()),
        },
        Source::Libvirt(_) => Ok(()),
        Source::Input => Err(Usage(
            "Standard input cannot be written back. Name the file, or leave --apply out.".to_owned(),
        )),
        Source::Process(pid) => {
            let next = elsewhere.unwrap_or_else(|| {
                format!(
                    "Leave out --apply: `exitless vm fix {pid}` prints the new one, to start the VM with."
                )
            });
            Err(Usage(format!("The command line of a running process cannot be changed. {next}")))
        }
    }
}

/// A sentence on how to change the definition in this file, if libvirt itself keeps the file.
fn through_libvirt(root: &Path, path: &Path) -> Option<String> {
    let place = path.canonicalize().ok()?;
    let name = place.file_stem().unwrap_or_default().display().to_string();
    let below = |root: &Path| OF_LIBVIRT.map(|folder| root.join(folder));
    let mut folders = [root, Path::new("/")].into_iter().flat_map(below);
    if folders.any(|folder| folder.canonicalize().is_ok_and(|folder| place.starts_with(folder))) {
        let domain = quoted(format!("libvirt:{name}").as_bytes());
        return Some(format!("`exitless vm fix {domain} --apply` gives libvirt the new one."));
    }
    // `libvirt:NAME` is written as root, whose virsh has the system's domains and not those of users.
    let of_user = place.ancestors().any(|above| above.ends_with(".config/libvirt/qemu"));
    let name = quoted(name.as_bytes());
    of_user.then(|| {
        format!(
            "Fix a copy: `virsh dumpxml --inactive --security-info {name} >new.xml`, `exitless vm fix new.xml --apply` and \
             `virsh define new.xml`."
        )
    })
}

fn apply(subject: &Subject, fixed: &Fixed, host: &HostSide, chosen: &Chosen) -> anyhow::Result<Written> {
    match &subject.source {
        Source::File(path) => write::file(path, &subject.text.bytes, &fixed.bytes),
        Source::Libvirt(name) => {
            write::domain(name, |text| Ok(fix(text, subject.form, subject.files(), host, chosen)?.bytes))
        }
        Source::Input | Source::Process(_) => unreachable!("refused before the text was fixed"),
    }
}

fn ending(subject: &Subject, changed: bool, written: Option<&Written>) -> String {
    match (written, &subject.source) {
        (Some(Written::Journalled), Source::Libvirt(name)) => format!(
            "libvirt has the new definition; {name} uses it from its next start. `exitless restore` undoes it."
        ),
        (Some(Written::Journalled), _) => "Written; `exitless restore` undoes it.".to_owned(),
        (Some(Written::KeptBeside { new, old }), _) => kept_beside(new, old),
        (None, _) if !changed => "There is nothing to change.".to_owned(),
        (None, Source::Process(_)) => match subject.elsewhere() {
            Some(elsewhere) => format!("Nothing was changed: {elsewhere}"),
            None => {
                "Nothing was changed: the command line of a running process cannot be changed. Start the VM \
                     with the new one."
                    .to_owned()
            }
        },
        (None, Source::Input) => "Nothing was written.".to_owned(),
        (None, _) => "Nothing was written; --apply writes it.".to_owned(),
    }
}

/// A sentence on a file that was replaced, and the command that undoes it on a line of its own. Both paths are absolute.
fn kept_beside(new: &Path, old: &Path) -> String {
    let [from, to] = [old, new].map(|path| quoted(path.as_os_str().as_bytes()));
    format!("Written. This brings the old text back:\n  mv {from} {to}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_undoes_a_change_moves_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("web 1;exit.xml");
        let old = folder.path().join("web 1;exit.xml.orig");
        std::fs::write(&new, "new").unwrap();
        std::fs::write(&old, "old").unwrap();
        let said = kept_beside(&new, &old);
        let (_, command) = said.split_once('\n').unwrap();
        let status = std::process::Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(status.success() && !old.exists(), "{said}");
        assert_eq!(std::fs::read_to_string(&new).unwrap(), "old");
    }

    #[test]
    fn files_that_libvirt_keeps_are_left_to_libvirt() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("etc/libvirt/qemu");
        let user = root.path().join("home/.config/libvirt/qemu");
        let own = root.path().join("vms");
        for folder in [&kept, &user, &own] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("web 1.xml"), "").unwrap();
        }
        let link = own.join("link.xml");
        std::os::unix::fs::symlink(kept.join("web 1.xml"), &link).unwrap();
        let refused = |path: PathBuf| {
            refuse_what_cannot_be_written(&Source::File(path), None, root.path()).map_err(|Usage(why)| why)
        };
        for (folder, command) in [
            (&kept, "`exitless vm fix 'libvirt:web 1' --apply`"),
            (&user, "`virsh dumpxml --inactive --security-info 'web 1' >new.xml`"),
        ] {
            let why = refused(folder.join("web 1.xml")).unwrap_err();
            assert!(why.contains(command), "{why}");
        }
        assert!(refused(link).unwrap_err().contains("libvirt:web 1"), "the name is not the link's");
        assert_eq!(refused(own.join("web 1.xml")), Ok(()));
    }

    #[test]
    fn a_domain_of_another_host_is_not_defined_here() {
        let refused = |source: &Source, root: &str| {
            refuse_what_cannot_be_written(source, None, Path::new(root)).map_err(|Usage(why)| why)
        };
        let domain = Source::Libvirt("web".to_owned());
        assert_eq!(refused(&domain, "/"), Ok(()));
        assert!(
            refused(&domain, "/mnt/other").unwrap_err().starts_with("The domain web was read below /mnt")
        );
        assert_eq!(refused(&Source::File("web.xml".into()), "/mnt/other"), Ok(()));
        assert!(
            refused(&Source::Process(17), "/")
                .unwrap_err()
                .contains("`exitless vm fix 17` prints the new one")
        );
        let elsewhere = Some("libvirt starts this VM.".to_owned());
        let Usage(why) =
            refuse_what_cannot_be_written(&Source::Process(17), elsewhere, Path::new("/")).unwrap_err();
        assert!(why.ends_with("cannot be changed. libvirt starts this VM."), "{why}");
    }
}
