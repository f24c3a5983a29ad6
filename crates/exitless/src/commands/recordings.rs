//! The common part of commands on recordings: the files, the selected part, and reading.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use exits::{Hypervisor, Isa, Selection};
use report::recordings::ExitsWriter;
use traces::{Format, Options, Recordings, Sink, Source};

use super::paths::{is_dash, or_standard_input};
use super::quantity;
use crate::console::{self, Waiting};
use crate::status::{self, Usage};

/// The recordings, and the selected part.
#[derive(Debug, Args)]
pub(crate) struct RecordingArguments {
    /// Recordings of perf, trace-cmd, tracefs, xentrace or exitless, compressed or not; `-` is standard
    /// input. Several are merged into one profile. [default: perf.data, else perf.data.guest, perf.data.kvm or
    /// perf.data.host, the names that `perf kvm` chooses]
    #[arg(value_name = "FILE", default_value = default_name(), hide_default_value = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    part: PartArguments,
}

/// The selected part of recordings.
#[derive(Debug, Args)]
pub(crate) struct PartArguments {
    /// Only this VM, by the number of its process or domain, or by its name; may be given more than once.
    #[arg(long = "vm", value_name = "NUMBER|NAME")]
    vms: Vec<String>,
    /// Only exits from this time after a recording's first event: 1.5s, 200ms.
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    from: Option<u64>,
    /// Only exits before this time after a recording's first event.
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    to: Option<u64>,
    /// The TSC frequency in Hz, for recordings of xentrace: 2.1G.
    #[arg(long, value_name = "FREQUENCY", value_parser = quantity::frequency)]
    tsc_hz: Option<u64>,
    /// The instruction set of the host, vmx or svm, for recordings of xentrace without it.
    #[arg(long, value_name = "ISA")]
    isa: Option<Isa>,
}

/// perf's default file names: of `perf record`, and of `perf kvm` (`tools/perf/Documentation/perf-kvm.txt`).
const DEFAULTS: [&str; 4] = ["perf.data", "perf.data.guest", "perf.data.kvm", "perf.data.host"];

/// The first of perf's default names that exists.
fn default_name() -> &'static str {
    DEFAULTS.into_iter().find(|name| Path::new(name).exists()).unwrap_or(DEFAULTS[0])
}

/// Receives exits as they are read, and the recording that they come from.
pub(crate) trait Destination: Sink {
    fn begin(&mut self, _recording: &str) {}
}

impl Destination for () {}

impl<W: Write + Send> Destination for ExitsWriter<W> {
    fn begin(&mut self, recording: &str) {
        Self::begin(self, recording);
    }
}

impl RecordingArguments {
    /// Checks the arguments, and the files to write, before anything is read or written.
    pub(crate) fn check<'a>(
        &self,
        outputs: impl IntoIterator<Item = &'a Option<PathBuf>>,
    ) -> Result<(), Usage> {
        self.part.check()?;
        self.files.iter().try_for_each(|file| check_file(file))?;
        check_inputs(&self.files)?;
        check_outputs(&self.files, outputs)
    }

    /// Reads all files into one profile. The caller selects VMs afterwards, because their names are known
    /// only at the end.
    pub(crate) fn read(&self, destination: &mut impl Destination) -> anyhow::Result<Recordings> {
        let mut recordings = Recordings::new(self.part.options());
        for file in &self.files {
            add(&mut recordings, file, destination)?;
        }
        self.part.check_formats([&recordings])?;
        Ok(recordings)
    }

    /// The selected VMs, with these vCPUs.
    pub(crate) fn selection(&self, vcpus: &[u32]) -> Selection {
        self.part.selection(vcpus)
    }
}

impl PartArguments {
    pub(crate) fn check(&self) -> Result<(), Usage> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if from >= to => {
                Err(Usage("--from is not before --to, so there is no time between them".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses the options about recordings, for commands that observe this host.
    pub(crate) fn check_live(&self) -> Result<(), Usage> {
        let given = [
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--tsc-hz", self.tsc_hz.is_some()),
            ("--isa", self.isa.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Usage(format!("{option} is for recordings; name one, or leave it out"))),
            None => Ok(()),
        }
    }

    /// Refuses the options for recordings of xentrace if none of those that were read is one.
    pub(crate) fn check_formats<'r>(
        &self,
        recordings: impl IntoIterator<Item = &'r Recordings>,
    ) -> Result<(), Usage> {
        let is_given = self.tsc_hz.is_some() || self.isa.is_some();
        let mut files = recordings.into_iter().flat_map(|one| &one.files);
        if is_given && !files.any(|file| file.origin.format == Format::Xentrace) {
            let what =
                "--isa and --tsc-hz are for recordings of xentrace, and none was given; leave them out";
            return Err(Usage(what.to_owned()));
        }
        Ok(())
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            from_ns: self.from,
            to_ns: self.to,
            tsc_hz: self.tsc_hz,
            isa: self.isa,
            ..Options::default()
        }
    }

    pub(crate) fn selection(&self, vcpus: &[u32]) -> Selection {
        Selection { vms: self.vms.clone(), vcpus: vcpus.to_vec() }
    }
}

/// Reports a missing file before any long recording is read.
pub(crate) fn check_file(file: &Path) -> Result<(), Usage> {
    if is_dash(file) {
        return Ok(());
    }
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound && file == Path::new(DEFAULTS[0]) => Err(Usage(
            "There is no perf.data here; name a recording, or make one with `perf kvm stat record -a -o perf.data`"
                .to_owned(),
        )),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Usage(format!("{}: no such recording", file.display())))
        }
        Ok(one) if one.is_dir() && !file.join("data").exists() => Err(Usage(format!(
            "{} is a directory without `data`, so not a recording of `perf record --threads`; name a file",
            file.display()
        ))),
        // The reader will report the error.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses a recording that is given twice, by whatever paths: its exits would count twice, or as those of another run.
pub(crate) fn check_inputs<'i>(files: impl IntoIterator<Item = &'i PathBuf>) -> Result<(), Usage> {
    let mut known: Vec<(Identity, Source)> = Vec::new();
    for file in files {
        let Some(own) = Identity::of_input(file) else { continue };
        let again = Source::from(file.as_path());
        if let Some((_, first)) = known.iter().find(|(other, _)| *other == own) {
            let first = if *first == again { String::new() } else { format!(", first as {first}") };
            let what = "and its exits would count twice; name each recording once";
            return Err(Usage(format!("{again} is given twice{first}, {what}")));
        }
        known.push((own, again));
    }
    Ok(())
}

/// Refuses to write a file that is also read, or written by another option: it would be replaced.
pub(crate) fn check_outputs<'i, 'o>(
    inputs: impl IntoIterator<Item = &'i PathBuf>,
    outputs: impl IntoIterator<Item = &'o Option<PathBuf>>,
) -> Result<(), Usage> {
    let mut taken: Vec<Identity> = inputs.into_iter().filter_map(|file| Identity::of_input(file)).collect();
    for file in outputs.into_iter().flatten() {
        let Some(own) = Identity::of(file) else { continue };
        if taken.contains(&own) {
            let what = "is also read, or written by another option, and would be replaced; name another file";
            return Err(Usage(format!("{} {what}", file.display())));
        }
        taken.push(own);
    }
    Ok(())
}

/// A file, or a recording that is a folder, by whatever path it is named.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Its device and inode.
    There(u64, u64),
    /// The place of one that is not there yet.
    New(PathBuf),
}

impl Identity {
    /// The file that is read, where `-` is standard input.
    fn of_input(path: &Path) -> Option<Self> {
        Self::of(&or_standard_input(path))
    }

    /// `None` for pipes and devices, which are not replaced, and which give other bytes each time.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(about) = fs::metadata(path) {
            let is_kept = about.is_file() || about.is_dir();
            return is_kept.then(|| Self::There(about.dev(), about.ino()));
        }
        let name = path.file_name()?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(Self::New(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(name)))
    }
}

/// Reads another recording into `recordings`.
pub(crate) fn add(
    recordings: &mut Recordings,
    file: &Path,
    destination: &mut impl Destination,
) -> anyhow::Result<()> {
    let source = Source::from(file);
    let name = source.to_string();
    destination.begin(&name);
    let waiting = Waiting::new(format!("Reading {name}"));
    let reading = traces::read(&source, &recordings.options, destination)?;
    drop(waiting);
    recordings.add(name, reading);
    Ok(())
}

/// The hypervisor that handled these exits.
pub(crate) fn hypervisor(recordings: &Recordings) -> Result<Hypervisor, Usage> {
    let all: BTreeSet<_> = recordings.files.iter().map(|file| file.origin.hypervisor).collect();
    match all.len() {
        0 | 1 => Ok(all.first().copied().unwrap_or_default()),
        _ => Err(Usage("Some of the recordings are of KVM and some of Xen; name those of one".to_owned())),
    }
}

/// Writes a requested page.
pub(crate) fn write_page(file: &Path, page: &str) -> anyhow::Result<()> {
    files::write(file, page.as_bytes()).with_context(|| format!("Could not write {}", file.display()))
}

/// Logs doubts, for outputs that have no room for them.
pub(crate) fn warn_of_doubts(recordings: &Recordings) {
    for doubt in report::recordings::doubts(recordings) {
        tracing::warn!("{doubt}");
    }
}

/// The exit status of a command that has read these recordings. If none could be read, says why on standard
/// error.
pub(crate) fn exit_code(recordings: &Recordings) -> ExitCode {
    if let Some(why) = report::recordings::nothing_read(recordings) {
        console::say(format_args!("exitless: {why}"));
        return ExitCode::from(status::FAILED);
    }
    ExitCode::from(if recordings.is_damaged() { status::DAMAGED } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_read_or_written_otherwise_is_not_replaced_by_whatever_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("data"), "").unwrap();
        fs::write(path("page"), "").unwrap();
        std::os::unix::fs::symlink(path("data"), path("link")).unwrap();
        let refused = |outputs: [&str; 2]| {
            check_outputs(&[path("data"), "-".into()], &outputs.map(|name| Some(path(name)))).is_err()
        };
        for outputs in [["page", "new"], ["/dev/null", "/dev/null"], ["none/x", "new"]] {
            assert!(!refused(outputs), "{outputs:?}");
        }
        for outputs in
            [["data", "new"], ["new", "./data"], ["link", "new"], ["page", "page"], ["new", "./new"]]
        {
            assert!(refused(outputs), "{outputs:?}");
        }
        let dash = PathBuf::from("-");
        assert!(
            check_outputs([&dash], [&Some(dash.clone())]).is_ok(),
            "standard input is no file of that name"
        );
    }

    #[test]
    fn a_recording_is_read_once_by_whatever_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "").unwrap();
        fs::write(path("b"), "").unwrap();
        fs::create_dir(path("threads")).unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        fs::hard_link(path("b"), path("hard")).unwrap();
        let check = |names: &[&str]| {
            let files: Vec<PathBuf> = names.iter().map(|name| path(name)).collect();
            check_inputs(&files)
        };
        for names in [&["a", "b"][..], &["/dev/null", "/dev/null"], &["threads", "b", "link"]] {
            assert!(check(names).is_ok(), "{names:?}");
        }
        let twice: [(&[&str], Option<&str>); 5] = [
            (&["b", "a", "a"], None),
            (&["a", "b", "./a"], None),
            (&["a", "link"], Some("a")),
            (&["b", "hard"], Some("b")),
            (&["threads", "threads/../threads"], Some("threads")),
        ];
        for (names, first) in twice {
            let Usage(said) = check(names).unwrap_err();
            let again = path(names[names.len() - 1]);
            let first =
                first.map_or_else(String::new, |first| format!(", first as {}", path(first).display()));
            assert!(said.starts_with(&format!("{} is given twice{first}, and", again.display())), "{said}");
        }
    }
}
