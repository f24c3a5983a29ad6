//! Debian packages, downloaded by the host's apt with settings, lists and storage of our own. This needs no
//! root and changes nothing on the host. apt verifies signatures; interrupted downloads continue.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cache::Cache;
use crate::child;
use crate::error::Error;
use crate::progress::{OnProgress, Progress, Step};
use crate::recipe::{COMPONENTS, RELEASE};
use crate::tree::remove;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR_VARIABLE: &str = "EXITLESS_DEBIAN_MIRROR";
/// A mirror of the suites with other kernels alone: an archive of old suites does not have the laboratories'
/// release.
const KERNEL_MIRROR_VARIABLE: &str = "EXITLESS_KERNEL_MIRROR";
/// By default apt only warns if it cannot reach a mirror: packages would then seem to be gone.
const UPDATE: [&str; 4] = ["update", "-q", "-o", "APT::Update::Error-Mode=any"];

/// A fetched package file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) file: PathBuf,
}

/// Fetches the requested packages and all their dependencies.
pub(crate) fn fetch(
    cache: &Cache,
    names: &[&str],
    on_progress: OnProgress<'_>,
) -> Result<Vec<Package>, Error> {
    require_programs()?;
    let apt = Apt::prepare(cache, &cache.packages(), &own_sources("deb")?)?;
    on_progress(Progress { step: Step::Lists, done: 0, total: 0 });
    let wanted = apt.with_lists(|| {
        let wanted = simulated(&apt.checked(&install("--simulate", names))?);
        let total = to_download(&apt.checked(&install("--print-uris", names))?);
        apt.download(names, total, on_progress)?;
        Ok(wanted)
    })?;
    wanted
        .into_iter()
        .map(|(name, version, architecture)| {
            let file_name = format!("{name}_{}_{architecture}.deb", version.replace(':', "%3a"));
            let file = apt.archives().join(file_name);
            if !file.exists() {
                let problem = "apt did not leave this package file".to_owned();
                return Err(Error::Damaged { path: file, problem });
            }
            Ok(Package { name, version, file })
        })
        .collect()
}

/// Fetches packages without dependencies.
pub(crate) fn fetch_alone(
    cache: &Cache,
    names: &[&str],
    on_progress: OnProgress<'_>,
) -> Result<Vec<PathBuf>, Error> {
    require_programs()?;
    let apt = Apt::prepare(cache, &cache.packages().join("alone"), &own_sources("deb")?)?;
    on_progress(Progress { step: Step::Lists, done: 0, total: 0 });
    apt.with_lists(|| apt.download_alone(names))
}

/// Selects packages among the names of all; `None` if it selects nothing.
type Choose<'a> = &'a dyn Fn(&[&str]) -> Option<Vec<String>>;

/// Fetches packages without dependencies into a new folder, from suites some of which may have reached their
/// end of life. `None` if `choose` selects nothing.
///
/// # Errors
/// [`Error::SuitesAreGone`] if it selects nothing, and the mirror lacks some of the suites.
pub(crate) fn fetch_chosen(
    cache: &Cache,
    folder: &Path,
    suites: &[&str],
    choose: Choose<'_>,
    on_progress: OnProgress<'_>,
) -> Result<Option<Vec<Package>>, Error> {
    require_programs()?;
    let [given, for_kernels] = [MIRROR_VARIABLE, KERNEL_MIRROR_VARIABLE].map(|name| std::env::var(name).ok());
    let sources = kernel_sources(&configured()?, given.as_deref(), for_kernels.as_deref(), suites)?;
    fetch_chosen_from(cache, folder, &sources, choose, on_progress)
}

fn fetch_chosen_from(
    cache: &Cache,
    folder: &Path,
    sources: &str,
    choose: Choose<'_>,
    on_progress: OnProgress<'_>,
) -> Result<Option<Vec<Package>>, Error> {
    let apt = Apt::prepare(cache, folder, sources)?;
    on_progress(Progress { step: Step::Lists, done: 0, total: 0 });
    let update = child::output(apt.command("apt-get", &UPDATE), &apt.stop)?;
    let printed = printed(&update);
    let gone = match succeeded("apt-get", &update) {
        Ok(_) => Vec::new(),
        Err(error) => {
            suites_not_found(&printed).ok_or_else(|| without_lists(error, KERNEL_MIRROR_VARIABLE))?
        }
    };
    let all = apt.run("apt-cache", &["pkgnames"])?;
    let Some(wanted) = choose(&all.lines().collect::<Vec<_>>()) else {
        return match gone[..] {
            [] => Ok(None),
            _ => Err(Error::SuitesAreGone { suites: gone.join(", ") }),
        };
    };
    on_progress(Progress { step: Step::Download, done: 0, total: 0 });
    let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let files = apt.download_alone(&names)?;
    files.into_iter().map(|file| package_in(file).map(Some)).collect()
}

/// The suites that the mirrors do not have, if `apt-get update` failed for this reason alone.
fn suites_not_found(printed: &str) -> Option<Vec<&str>> {
    let lines: Vec<&str> = printed.lines().collect();
    let mut errors = lines.iter().filter(|line| line.starts_with("E: "));
    if !errors.all(|error| error.ends_with("does not have a Release file.")) {
        return None;
    }
    // apt prints that error also for a mirror that it could not reach any more.
    let failed =
        lines.windows(2).filter_map(|pair| Some((pair[0].strip_prefix("Err:")?, pair[1].trim_start())));
    let suites = failed.map(|(item, reason)| {
        let is_missing = reason.starts_with("404 ") || reason.starts_with("File not found");
        match item.split_whitespace().collect::<Vec<_>>()[..] {
            [_number, _uri, suite, "Release"] if is_missing => Some(suite),
            _ => None,
        }
    });
    suites.collect::<Option<Vec<_>>>().filter(|suites| !suites.is_empty())
}

/// The package in a file that apt named: `NAME_VERSION_ARCHITECTURE.deb`.
fn package_in(file: PathBuf) -> Result<Package, Error> {
    let text = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match text.split('_').collect::<Vec<_>>()[..] {
        [name, version, _] => {
            Ok(Package { name: name.to_owned(), version: version.replace("%3a", ":"), file })
        }
        _ => Err(Error::Damaged { path: file, problem: "not the name of a package file".to_owned() }),
    }
}

/// Fetches the upstream tarball of a source package of the laboratories' release.
pub(crate) fn fetch_source(cache: &Cache, name: &str, on_progress: OnProgress<'_>) -> Result<PathBuf, Error> {
    require_programs()?;
    let folder = cache.packages().join("source").join(name);
    let apt = Apt::prepare(cache, &folder, &own_sources("deb-src")?)?;
    on_progress(Progress { step: Step::Lists, done: 0, total: 0 });
    apt.with_lists(|| {
        on_progress(Progress { step: Step::Download, done: 0, total: 0 });
        // Run this in a folder without the tarball, because apt omits files that exist.
        let mut ask = apt.command("apt-get", &["source", "-q", "--print-uris", "--tar-only", name]);
        ask.current_dir(folder.join("etc"));
        let offered = succeeded("apt-get", &child::output(ask, &apt.stop)?)?;
        let file = source_file(&offered).ok_or_else(|| Error::Damaged {
            path: folder.clone(),
            problem: format!("apt offers no tarball of the source package {name}"),
        })?;
        apt.checked(&["source", "-q", "--download-only", "--tar-only", name])?;
        Ok(folder.join(file))
    })
}

/// The file name in a `'URI' FILE SIZE HASH` line, unless it is a path.
fn source_file(output: &str) -> Option<&str> {
    let lines = output.lines().filter(|line| line.starts_with('\''));
    let names = lines.filter_map(|line| line.split(' ').nth(1));
    names.filter(|name| !name.contains('/')).find(|name| name.contains(".orig.tar"))
}

fn install<'a>(option: &'a str, names: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["install", "-y", "-q", option];
    arguments.extend(names);
    arguments
}

/// Tests whether a program is in one of the folders of PATH.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The programs that building needs, each with its purpose and the next step if it is missing.
const PROGRAMS: [(&str, &str, &str); 4] = [
    (
        "apt-get",
        "fetch Debian packages",
        "make the first build on a machine with Debian or Ubuntu, or in a container of it",
    ),
    ("dpkg-deb", "unpack Debian packages", "install it with: apt-get install dpkg"),
    ("unshare", "give the emulator a network of its own", "install it with: apt-get install util-linux"),
    ("setpriv", "end the emulator when this program ends", "install it with: apt-get install util-linux"),
];

fn require_programs() -> Result<(), Error> {
    for (program, purpose, next) in PROGRAMS {
        if !on_path(program) {
            return Err(Error::MissingProgram { program, purpose, next });
        }
    }
    if Path::new(KEYRING).exists() { Ok(()) } else { Err(Error::MissingKeyring { path: KEYRING }) }
}

/// Parses `Inst NAME (VERSION ... [ARCHITECTURE])` lines of a simulated installation.
fn simulated(output: &str) -> Vec<(String, String, String)> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("Inst "))
        .filter_map(|line| {
            // Brackets may follow the parentheses, for packages that are not configured yet.
            let (name, rest) = line.split_once(" (")?;
            let (rest, _) = rest.split_once(')')?;
            let version = rest.split_whitespace().next()?;
            let architecture = rest.rsplit_once('[')?.1.trim_end_matches(']');
            Some((name.trim().to_owned(), version.to_owned(), architecture.to_owned()))
        })
        .collect()
}

/// The sum of the sizes in `'URI' FILE SIZE HASH` lines.
fn to_download(output: &str) -> u64 {
    let sizes =
        output.lines().filter(|line| line.starts_with('\'')).filter_map(|line| line.split(' ').nth(2));
    sizes.filter_map(|size| size.parse::<u64>().ok()).sum()
}

struct Apt {
    folder: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Apt {
    /// Prepares apt in `folder`, with settings of its own and these lines in sources.list.
    fn prepare(cache: &Cache, folder: &Path, sources: &str) -> Result<Self, Error> {
        let apt = Self { folder: folder.to_owned(), stop: Arc::clone(cache.stop()) };
        for below in ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"]
        {
            let path = folder.join(below);
            fs::create_dir_all(&path).map_err(Error::file("Could not make", &path))?;
        }
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Error::file("Could not write", &path))
        };
        // The status file is empty: no package counts as installed, so all are downloaded.
        write("state/status", "")?;
        write("etc/sources.list", sources)?;
        let of_host = Command::new("apt-config")
            .arg("dump")
            .output()
            .map_err(Error::file("Could not start", "apt-config"))?;
        write("apt.conf", &apt.settings(&String::from_utf8_lossy(&of_host.stdout)))?;
        Ok(apt)
    }

    /// Our settings, plus the host's for connections, taken from the output of `apt-config dump`.
    fn settings(&self, of_host: &str) -> String {
        let folder = self.folder.display();
        let connections = connections(of_host);
        format!(
            "{connections}Dir \"{folder}\";\nDir::State \"{folder}/state\";\nDir::State::status \"{folder}/state/status\";\n\
             Dir::Cache \"{folder}/cache\";\nDir::Etc \"{folder}/etc\";\n\
             Dir::Etc::SourceList \"{folder}/etc/sources.list\";\nDir::Etc::SourceParts \"-\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\nAPT::Install-Recommends \"false\";\n\
             APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n\
             APT::Keep-Downloaded-Packages \"true\";\n"
        )
    }

    /// Updates the lists of packages, and calls `get`, which may succeed without: with lists of before, and packages that
    /// were downloaded before. If apt fails in both, the first failure is the cause of the second.
    fn with_lists<T>(&self, get: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        match self.checked(&UPDATE) {
            Ok(_) => get(),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(failed) => get().map_err(|error| match error {
                Error::ProgramFailed { .. } => without_lists(failed, MIRROR_VARIABLE),
                other => other,
            }),
        }
    }

    fn archives(&self) -> PathBuf {
        self.folder.join("cache/archives")
    }

    /// Downloads packages without dependencies into a new folder.
    fn download_alone(&self, names: &[&str]) -> Result<Vec<PathBuf>, Error> {
        let wanted = self.folder.join("wanted");
        remove(&wanted)?;
        fs::create_dir(&wanted).map_err(Error::file("Could not make", &wanted))?;
        let download: Vec<&str> = ["download", "-q"].iter().chain(names).copied().collect();
        let mut command = self.command("apt-get", &download);
        command.current_dir(&wanted);
        succeeded("apt-get", &child::output(command, &self.stop)?)?;
        let entries = fs::read_dir(&wanted).map_err(Error::file("Could not read", &wanted))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = child::command(program);
        // apt-get source writes to the working directory.
        command.current_dir(&self.folder);
        command.args(arguments).env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C.UTF-8");
        command.stdin(Stdio::null());
        command
    }

    fn checked(&self, arguments: &[&str]) -> Result<String, Error> {
        self.run("apt-get", arguments)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        succeeded(program, &child::output(self.command(program, arguments), &self.stop)?)
    }

    fn download(&self, names: &[&str], total: u64, on_progress: OnProgress<'_>) -> Result<(), Error> {
        let before = self.archive_bytes();
        let log = self.folder.join("download.log");
        let file = fs::File::create(&log).map_err(Error::file("Could not write", &log))?;
        let errors = file.try_clone().map_err(Error::file("Could not write", &log))?;
        let mut child = self
            .command("apt-get", &install("--download-only", names))
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(Error::file("Could not start", "apt-get"))?;
        let status = loop {
            let waited = child.try_wait().map_err(Error::file("Could not wait for", "apt-get"))?;
            let done = self.archive_bytes().saturating_sub(before).min(total);
            on_progress(Progress { step: Step::Download, done, total });
            if let Some(status) = waited {
                break status;
            }
            if self.stop.load(Ordering::Relaxed) {
                child::end(&mut child);
                return Err(Error::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        let printed = fs::read(&log).unwrap_or_default();
        succeeded("apt-get", &Output { status, stdout: Vec::new(), stderr: printed }).map(drop)
    }

    fn archive_bytes(&self) -> u64 {
        let sizes = |folder: PathBuf| {
            let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            entries
                .filter_map(|entry| entry.metadata().ok())
                .filter(fs::Metadata::is_file)
                .map(|m| m.len())
                .sum::<u64>()
        };
        sizes(self.archives()) + sizes(self.archives().join("partial"))
    }
}

/// The host's settings of proxies and the like, and the files with passwords for them.
fn connections(of_host: &str) -> String {
    const WANTED: [&str; 4] = ["Acquire::http", "Acquire::ftp", "Acquire::ForceIPv", "Acquire::Proxy"];
    let is_wanted = |line: &&str| WANTED.iter().any(|wanted| line.starts_with(wanted));
    let mut settings: String = of_host.lines().filter(is_wanted).flat_map(|line| [line, "\n"]).collect();
    let value = |name: &str| {
        let mut lines = of_host.lines().filter_map(|line| line.strip_prefix(name));
        lines.find_map(|rest| rest.strip_prefix(" \"")?.strip_suffix("\";"))
    };
    let etc = Path::new(value("Dir").unwrap_or("/")).join(value("Dir::Etc").unwrap_or("etc/apt"));
    for name in ["Dir::Etc::netrc", "Dir::Etc::netrcparts"] {
        if let Some(file) = value(name).filter(|file| !file.is_empty()) {
            settings += &format!("{name} \"{}\";\n", etc.join(file).display());
        }
    }
    settings
}

/// The standard output of a program that succeeded; otherwise an error with the last lines of all its output.
pub(crate) fn succeeded(program: &str, output: &Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::ProgramFailed {
        program: program.to_owned(),
        status: output.status.to_string(),
        output: programs::last_lines(&printed(output), 12).join("\n"),
    })
}

/// Adds the next step to the failure of updating the lists of packages. `variable` names their mirror.
fn without_lists(error: Error, variable: &str) -> Error {
    match error {
        Error::ProgramFailed { program, status, output } => Error::ProgramFailed {
            program,
            status,
            output: format!(
                "{output}\nThe lists of Debian's packages could not be fetched; see this machine's network and its proxy for \
                 apt (Acquire::http::Proxy), or name another mirror by {variable}"
            ),
        },
        other => other,
    }
}

/// A program's standard output, and then its standard error.
fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The lines of sources.list for the laboratories' release: packages (`deb`) or sources (`deb-src`).
fn own_sources(kind: &str) -> Result<String, Error> {
    release_sources(kind, &configured()?, std::env::var(MIRROR_VARIABLE).ok().as_deref())
}

/// The same, if the host has these sources ([`configured`]) and the user gave this mirror.
fn release_sources(kind: &str, configured: &str, given: Option<&str>) -> Result<String, Error> {
    let suites = ["", "-updates", "-security"].map(|pocket| format!("{RELEASE}{pocket}"));
    // The emulators' sources are in main; lists of sources are long, so get no others.
    let components = if kind == "deb" { COMPONENTS } else { "main" };
    // The user chose the mirror's age, which may be a snapshot of the archive.
    let may_be_old = given.is_some();
    let suites = suites.each_ref().map(String::as_str);
    sources(kind, may_be_old, &suites, components, mirrors(configured, given))
}

/// The lines of sources.list for the suites of other kernels, if the user also gave a mirror for them.
fn kernel_sources(
    configured: &str,
    given: Option<&str>,
    for_kernels: Option<&str>,
    suites: &[&str],
) -> Result<String, Error> {
    let mirrors = match for_kernels {
        // Security suites of an archive are in another one, and may be gone from the host's mirror.
        Some(mirror) => Mirrors { main: Some(mirror.to_owned()), security: None },
        None => mirrors(configured, given),
    };
    sources("deb", true, suites, "main", mirrors)
}

/// The host's sources, each as a line `URI RELEASE COMPONENT ORIGIN`.
fn configured() -> Result<String, Error> {
    let configured = Command::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)",
            "Created-By: Packages",
        ])
        .output()
        .map_err(Error::file("Could not start", "apt-get"))?;
    Ok(String::from_utf8_lossy(&configured.stdout).into_owned())
}

/// The lines of sources.list for suites on these mirrors. A security suite is left out if there is no mirror
/// for it. Lists that `may_be_old` are used even if they have expired, as those of old suites have; signatures
/// are verified nevertheless.
fn sources(
    kind: &str,
    may_be_old: bool,
    suites: &[&str],
    components: &str,
    mirrors: Mirrors,
) -> Result<String, Error> {
    let Some(main) = mirrors.main else {
        return Err(Error::ProgramFailed {
            program: "Looking for a Debian mirror in this machine's apt sources".to_owned(),
            status: "none found".to_owned(),
            output: format!(
                "give one by the environment variable, as in {MIRROR_VARIABLE}=http://deb.debian.org/debian"
            ),
        });
    };
    let option = if may_be_old { " check-valid-until=no" } else { "" };
    let line = |suite: &&str| {
        let uri = if suite.ends_with("-security") { mirrors.security.as_ref()? } else { &main };
        Some(format!("{kind} [signed-by={KEYRING}{option}] {uri} {suite} {components}\n"))
    };
    Ok(suites.iter().filter_map(line).collect())
}

#[derive(Debug, PartialEq, Eq)]
struct Mirrors {
    main: Option<String>,
    security: Option<String>,
}

/// Finds the host's mirrors of Debian. They are recognised by their origin, because other repositories have
/// suites of the same names.
fn mirrors(configured: &str, given: Option<&str>) -> Mirrors {
    // apt prints this instead of the origin until it has downloaded a repository's lists.
    const UNKNOWN: &str = "$(ORIGIN)";
    const RELEASES: [&str; 6] = ["bookworm", "trixie", "forky", "sid", "stable", "testing"];
    let found = |security: bool| {
        let from = |wanted: &'static str| {
            configured.lines().find_map(move |line| {
                let mut words = line.split_whitespace();
                let (uri, release, component) = (words.next()?, words.next()?, words.next()?);
                // Other repositories of Debian, which need not be on the same mirror or have the same
                // packages.
                let is_other =
                    release.ends_with("-debug") || release.contains('/') || release.starts_with("buildd-");
                let base = release.strip_suffix("-security");
                let is_known = wanted != UNKNOWN || RELEASES.contains(&base.unwrap_or(release));
                let is_wanted = component == "main" && base.is_some() == security && is_known && !is_other;
                (is_wanted && words.eq(wanted.split(' '))).then(|| uri.to_owned())
            })
        };
        from("Debian").or_else(|| from(UNKNOWN))
    };
    Mirrors { main: given.map(str::to_owned).or_else(|| found(false)), security: found(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_gives_names_versions_and_architectures() {
        let output = "NOTE: simulation\nInst base-files (13.8+deb13u7 Debian:13.8/stable [amd64])\n\
                      Inst qemu-system-x86 (1:10.0.13+ds-0+deb13u1 Debian-Security:13/stable-security [amd64]) []\n\
                      Conf base-files (13.8+deb13u7 Debian:13.8/stable [amd64])\n";
        let wanted = simulated(output);
        assert_eq!(wanted.len(), 2);
        assert_eq!(wanted[1].1, "1:10.0.13+ds-0+deb13u1");
        assert_eq!(wanted[1].2, "amd64");
    }

    #[test]
    fn what_is_missing_comes_with_a_step_that_can_be_taken() {
        for (program, purpose, next) in PROGRAMS {
            let error = Error::MissingProgram { program, purpose, next }.to_string();
            assert!(
                error.contains("on PATH; make the ") || error.contains("with: apt-get install "),
                "{error}"
            );
        }
        let keyring = Error::MissingKeyring { path: KEYRING }.to_string();
        assert!(keyring.starts_with(KEYRING) && !keyring.contains("PATH"), "{keyring}");
        // An Ubuntu has mirrors of its own alone.
        let none = Mirrors { main: None, security: None };
        let error = sources("deb", false, &["trixie"], "main", none).unwrap_err().to_string();
        assert!(error.contains("EXITLESS_DEBIAN_MIRROR=http://deb.debian.org/debian"), "{error}");
    }

    #[test]
    fn sizes_are_summed_from_uri_lines_only() {
        assert_eq!(
            to_download(
                "Reading lists...\n'http://m/a.deb' a_1_amd64.deb 300 SHA256:00\n'http://m/b' b 45 x\n"
            ),
            345
        );
    }

    #[test]
    fn the_tarball_of_a_source_is_named_without_a_path() {
        let line = |file: &str| format!("Reading lists...\n'http://m/p' {file} 38 SHA256:00\n");
        assert_eq!(source_file(&line("qemu_10.0.13+ds.orig.tar.xz")), Some("qemu_10.0.13+ds.orig.tar.xz"));
        assert_eq!(source_file(&line("../qemu_10.orig.tar.xz")), None);
        assert_eq!(source_file(&line("qemu_10.dsc")), None);
    }

    #[test]
    fn the_hosts_mirror_is_used_and_can_be_overridden() {
        let configured = "http://third.party/repo stable main Third Party\nhttp://m/debian bookworm contrib Debian\n\
                          http://m/debian bookworm main Debian\nhttp://m/security bookworm-security main Debian\n";
        let expected =
            Mirrors { main: Some("http://m/debian".into()), security: Some("http://m/security".into()) };
        assert_eq!(mirrors(configured, None), expected);
        assert_eq!(mirrors(configured, Some("http://own")).main.as_deref(), Some("http://own"));
        let others = ["bookworm-debug", "buildd-sid", "buster/updates"]
            .map(|of| format!("http://o/x {of} main Debian\n"));
        assert_eq!(mirrors(&(others.concat() + configured), None), expected);
        let none = Mirrors { main: None, security: None };
        assert_eq!(mirrors("http://u/ubuntu noble main Ubuntu\nhttp://t/repo stable main\n", None), none);
    }

    const CONFIGURED: &str =
        "http://m/debian trixie main Debian\nhttp://m/security trixie-security main Debian\n";

    #[test]
    fn a_mirror_that_is_given_may_be_old() {
        let own = |given| release_sources("deb", CONFIGURED, given).unwrap();
        assert!(!own(None).contains("check-valid-until"), "{}", own(None));
        let given = own(Some("http://snapshot/2026"));
        assert_eq!(given.lines().filter(|line| line.contains(" check-valid-until=no] ")).count(), 3);
        assert!(given.contains("] http://snapshot/2026 trixie-updates main"), "{given}");
        assert!(given.contains("] http://m/security trixie-security main"), "{given}");
    }

    #[test]
    fn kernels_may_come_from_a_mirror_of_their_own() {
        let suites = ["bullseye", "bullseye-security"];
        let lines = |given, for_kernels| kernel_sources(CONFIGURED, given, for_kernels, &suites).unwrap();
        let line = |uri: &str| format!("deb [signed-by={KEYRING} check-valid-until=no] {uri} main\n");
        let of_host = line("http://m/debian bullseye") + &line("http://m/security bullseye-security");
        assert_eq!(lines(None, None), of_host);
        for given in [None, Some("http://given")] {
            assert_eq!(lines(given, Some("http://archive")), line("http://archive bullseye"));
        }
        assert!(lines(Some("http://given"), None).starts_with(&line("http://given bullseye")));
    }

    /// Tests whether packages can be fetched here, and says so if not.
    fn can_fetch() -> bool {
        let can = ["apt-get", "apt-config", "setpriv"].iter().all(|program| on_path(program));
        if !can {
            println!("not tested: there is no apt-get or no setpriv on PATH");
        }
        can
    }

    #[test]
    fn suites_that_a_mirror_does_not_have_are_gone() {
        if !can_fetch() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let mirrors = Mirrors { main: Some(format!("file:{}", root.path().display())), security: None };
        let sources = sources("deb", true, &["bullseye"], "main", mirrors).unwrap();
        let (cache, folder) = (Cache::at(root.path()), root.path().join("apt"));
        let gone = fetch_chosen_from(&cache, &folder, &sources, &|_| None, &mut |_| ()).unwrap_err();
        let message = format!("The Debian mirror does not have bullseye; set {KERNEL_MIRROR_VARIABLE} to");
        assert!(gone.to_string().starts_with(&message), "{gone}");
    }

    #[test]
    fn without_a_network_no_package_is_said_to_be_unknown() {
        if !can_fetch() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        // Nothing listens on this port.
        let mirrors = Mirrors { main: Some("http://127.0.0.1:1/debian".to_owned()), security: None };
        let sources = sources("deb", true, &["trixie"], "main", mirrors).unwrap();
        let folder = root.path().join("apt");
        let apt = Apt::prepare(&Cache::at(root.path()), &folder, &sources).unwrap();
        // It waits before each retry.
        let settings = fs::read_to_string(folder.join("apt.conf")).unwrap();
        fs::write(folder.join("apt.conf"), settings + "Acquire::Retries \"0\";\n").unwrap();
        let simulate = || apt.checked(&install("--simulate", &["linux-image-cloud-amd64"]));
        let without = simulate().unwrap_err().to_string();
        assert!(without.contains("Unable to locate"), "{without}");
        let failed = apt.with_lists(simulate).unwrap_err().to_string();
        assert!(failed.contains(MIRROR_VARIABLE) && !failed.contains("Unable to locate"), "{failed}");
        // What is there already needs no network.
        assert_eq!(apt.with_lists(|| Ok(7)).unwrap(), 7);
        let other = apt.with_lists(|| Err::<(), _>(Error::Interrupted)).unwrap_err();
        assert!(matches!(other, Error::Interrupted), "{other}");
    }

    #[test]
    fn a_mirror_that_cannot_be_reached_has_lost_no_suite() {
        // apt 2.6.1, with names of our own.
        let missing = "Ign:1 http://m/debian bullseye InRelease\nErr:2 http://m/debian bullseye Release\n  \
                       404  Not Found [IP: 127.0.0.1 80]\nReading package lists...\n\
                       E: The repository 'http://m/debian bullseye Release' does not have a Release file.\n";
        assert_eq!(suites_not_found(missing), Some(vec!["bullseye"]));
        let meanwhile = missing.replace("404  Not Found", "Could not resolve 'm'");
        let refused = "Err:1 http://m/debian bullseye InRelease\n  Could not connect to m:80 (127.0.0.1). - connect \
                       (111: Connection refused)\nReading package lists...\n\
                       E: Failed to fetch http://m/debian/dists/bullseye/InRelease  Could not connect to m:80\n\
                       E: Some index files failed to download. They have been ignored, or old ones used instead.\n";
        let forbidden = "Err:1 http://m/debian bullseye InRelease\n  403  Forbidden [IP: 127.0.0.1 80]\n\
                         E: The repository 'http://m/debian bullseye InRelease' is not signed.\n";
        let both = missing.to_owned() + refused;
        for other in [meanwhile.as_str(), refused, forbidden, both.as_str(), ""] {
            assert_eq!(suites_not_found(other), None, "{other}");
        }
    }

    #[test]
    fn a_mirror_whose_lists_were_not_fetched_is_the_second_choice() {
        let before = "http://t/repo nodistro main $(ORIGIN)\nhttp://m/debian trixie main $(ORIGIN)\n";
        assert_eq!(mirrors(before, None).main.as_deref(), Some("http://m/debian"));
        let fetched = format!("{before}http://n/debian trixie main Debian\n");
        assert_eq!(mirrors(&fetched, None).main.as_deref(), Some("http://n/debian"));
    }

    #[test]
    fn the_hosts_proxy_and_passwords_are_used() {
        let of_host = "Dir \"/\";\nDir::Etc \"etc/apt\";\nDir::Etc::netrc \"auth.conf\";\n\
                       Dir::Etc::netrcparts \"auth.conf.d\";\nAcquire::AllowInsecureRepositories \"1\";\n\
                       Acquire::http::Proxy \"http://proxy:3128\";\nAcquire::Languages:: \"de\";\n\
                       DPkg::Post-Invoke:: \"rm -rf /\";\n";
        let apt = Apt { folder: "/cache".into(), stop: Arc::default() };
        let settings = apt.settings(of_host);
        for wanted in [
            "Acquire::http::Proxy \"http://proxy:3128\";\n",
            "Dir::Etc::netrc \"/etc/apt/auth.conf\";\n",
            "Dir::Etc::netrcparts \"/etc/apt/auth.conf.d\";\n",
            "Dir::Etc \"/cache/etc\";\n",
        ] {
            assert!(settings.contains(wanted), "{settings}");
        }
        for left_out in ["Post-Invoke", "AllowInsecure", "Languages::"] {
            assert!(!settings.contains(left_out), "{settings}");
        }
    }
}
