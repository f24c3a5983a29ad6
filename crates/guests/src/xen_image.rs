//! Domains of Xen that are created for a study from the guest image; the agent is reached through the domain's console.

mod definition;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest::Hello;
use host::Root;
use rustix::fs::OFlags;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::connection::{AgentLine, Connection};
use super::last_words::LastWords;
use super::plan::XenImagePlan;
use super::xl::Xl;
use super::{Armed, Cut, Guest, GuestError, GuestFiles, Patience, pass_through_obstacle};

/// The time for a domain to power off before it is destroyed.
const POWER_OFF: Duration = Duration::from_secs(30);
/// The time for xenconsoled to open a domain's console.
const CONSOLE_WAIT: Duration = Duration::from_secs(30);
/// The most bytes of the copy of a domain's console: it includes the agent's frames, and a guest can print without end.
const LARGEST_COPY: usize = 64 << 20;
/// The most bytes of the console's path.
const LONGEST_PATH: usize = 4096;
/// The modules of disk and network backends; a kernel may also have them built in.
const BACKENDS: [&str; 2] = ["xen-blkback", "xen-netback"];
const PREFIX: &str = "exitless-";

/// A domain that exists as long as this value.
pub struct XenImageGuest {
    name: String,
    vcpus: u32,
    host_address: Option<IpAddr>,
    domain: Domain,
    connection: Arc<Connection>,
    hello: Hello,
}

/// Destroys the domain when it is dropped, unless it has ended.
struct Domain {
    xl: Xl,
    name: String,
    ended: bool,
}

impl XenImageGuest {
    /// Creates domain `index` and waits until its agent is ready. Its definition and its console's output are in a
    /// folder below `folder` with the guest's name.
    ///
    /// # Errors
    /// [`GuestError::Start`] with the message of xl and the last lines of the console.
    pub fn start(
        plan: &XenImagePlan,
        index: u32,
        files: &GuestFiles,
        folder: &Path,
        patience: Patience<'_>,
    ) -> Result<Self, GuestError> {
        let name = format!("guest-{index}");
        let last_words = LastWords::new(&folder.join(&name), "xl");
        let started = Self::start_in(plan, index, files, &folder.join(&name), last_words.clone(), patience);
        started.map_err(|why| {
            let why = format!("{why}{}{last_words}", files.too_large(&last_words));
            GuestError::Start { name, why }
        })
    }

    fn start_in(
        plan: &XenImagePlan,
        index: u32,
        files: &GuestFiles,
        folder: &Path,
        last_words: LastWords,
        patience: Patience<'_>,
    ) -> Result<Self, String> {
        fs::create_dir_all(folder)
            .map_err(|error| format!("Could not create the folder {}: {error}", folder.display()))?;
        let xl = Xl::default();
        let processes = Path::new("/proc");
        destroy_orphans(&xl, processes);
        load_backends();
        // The process ID and its namespace distinguish studies on one machine.
        let domain = format!("{PREFIX}{}-{}-{index}", namespace(processes), std::process::id());
        let definition = definition::write(plan, index, &domain, files, folder)?;
        let text = fs::read_to_string(&definition.path).unwrap_or_default();
        if let Some(why) = pass_through_obstacle(&Root::live(), "guests.settings", &text) {
            return Err(why);
        }
        // Destroyed also if `xl create` fails or takes too long: the domain may be there nevertheless.
        let domain = Domain { xl, name: domain, ended: false };
        // Start paused (`-p`): the console must be open, in raw mode, before the domain prints.
        domain.xl.ask(&["create", "-p", "-q", &definition.path.display().to_string()])?;
        let (to, from) = open_console(&domain, last_words.console())?;
        let connection = Connection::new(to, from, last_words);
        let mut guest = Self {
            name: format!("guest-{index}"),
            vcpus: plan.vcpus,
            host_address: definition.host,
            domain,
            connection,
            hello: Hello::default(),
        };
        guest.domain.xl.tell("unpause", &guest.domain.name)?;
        guest.hello = guest.greeting(patience)?;
        Ok(guest)
    }

    fn greeting(&self, patience: Patience<'_>) -> Result<Hello, String> {
        let begun = Instant::now();
        loop {
            if let Some(hello) = self.connection.wait_hello(Duration::from_millis(200))? {
                return Ok(hello);
            }
            if self.connection.is_gone(Duration::ZERO) {
                return Err("the domain ended".to_owned());
            }
            if patience.left(begun).is_zero() {
                return Err(format!("its agent did not answer within {} s", patience.limit.as_secs()));
            }
        }
    }
}

/// Destroys domains of killed studies: those named after a process that no longer exists.
fn destroy_orphans(xl: &Xl, processes: &Path) {
    let listed = xl.ask(&["list"]).unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| is_orphan(name, processes)) {
        tracing::warn!("Destroying the domain {name} of a study that was killed");
        // If this fails, the domain keeps its memory and its addresses; xl create reports conflicts.
        let _ = xl.tell("destroy", name);
    }
}

fn is_orphan(domain: &str, processes: &Path) -> bool {
    let parts: Option<Vec<&str>> = domain.strip_prefix(PREFIX).map(|rest| rest.split('-').collect());
    let Some(&[of, process, index]) = parts.as_deref() else { return false };
    let number = |text: &str| text.parse::<u32>().is_ok();
    // Processes of other namespaces cannot be seen.
    of == namespace(processes) && number(process) && number(index) && !processes.join(process).exists()
}

/// The number of this process's PID namespace (pid_namespaces(7)); 0 if the kernel has none.
fn namespace(processes: &Path) -> String {
    let link = fs::read_link(processes.join("self/ns/pid")).unwrap_or_default();
    let link = link.to_string_lossy();
    link.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']')).unwrap_or("0").to_owned()
}

fn load_backends() {
    let quiet = Stdio::null;
    // If this fails, xl create reports what is missing.
    let _ = Command::new("modprobe")
        .args(["-q", "-a"])
        .args(BACKENDS)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(quiet())
        .stderr(quiet())
        .status();
}

/// Opens the terminal of the domain's console, which xenconsoled has created, for writing and for reading. All bytes
/// read are also written to the file `copy`.
fn open_console(domain: &Domain, copy: &Path) -> Result<(File, Console), String> {
    let terminal = wait_for_console(domain)?;
    let failed = |error: io::Error| format!("Could not open the console {}: {error}", terminal.display());
    let console = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(&terminal)
        .map_err(failed)?;
    tcgetattr(&console)
        .and_then(|mut modes| {
            modes.make_raw();
            tcsetattr(&console, OptionalActions::Now, &modes)
        })
        .map_err(|error| failed(error.into()))?;
    let copy = File::create(copy).map_err(|error| format!("Could not write {}: {error}", copy.display()))?;
    let writer = console.try_clone().map_err(failed)?;
    Ok((writer, Console { console, copy, left: LARGEST_COPY }))
}

/// Waits until xenconsoled has published the path of the domain's console in xenstore (tools/console/daemon/io.c,
/// `domain_create_tty`).
fn wait_for_console(domain: &Domain) -> Result<PathBuf, String> {
    let id = domain.xl.ask(&["domid", &domain.name])?;
    let key = format!("/local/domain/{id}/console/tty");
    let begun = Instant::now();
    loop {
        let read = programs::answer(Command::new("xenstore-read").arg(&key), CONSOLE_WAIT, LONGEST_PATH);
        let read = read.map_err(|error| match error.is_missing() {
            true => format!("Could not run `xenstore-read {key}`: {error}; install xenstore-utils"),
            false => format!("`xenstore-read {key}`: {error}; does xenstored run?"),
        })?;
        if let Some(path) = read.text().ok().filter(|path| !path.is_empty()) {
            return Ok(PathBuf::from(path));
        }
        if begun.elapsed() > CONSOLE_WAIT {
            let within = CONSOLE_WAIT.as_secs();
            return Err(format!("xenconsoled opened no console within {within} s; does it run?"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A domain's console, with a copy of its output.
struct Console {
    console: File,
    copy: File,
    /// The number of bytes by which the copy may still grow.
    left: usize,
}

impl Read for Console {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.console.read(buffer)?;
        // Ignore errors: the copy is only for messages.
        let copied = count.min(self.left);
        let _ = self.copy.write_all(&buffer[..copied]);
        self.left -= copied;
        Ok(count)
    }
}

impl Guest for XenImageGuest {
    fn name(&self) -> &str {
        &self.name
    }

    fn vcpus(&self) -> u32 {
        self.vcpus
    }

    fn address(&self) -> Option<IpAddr> {
        self.hello.address
    }

    fn host_address(&self) -> Option<IpAddr> {
        self.host_address
    }

    fn cut(&self) -> Option<Cut> {
        let (xl, domain) = (self.domain.xl.clone(), self.domain.name.clone());
        Some(Box::new(move || {
            // Fails if the domain has ended already.
            let _ = xl.tell("destroy", &domain);
        }))
    }

    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError> {
        AgentLine::arm(&self.connection, &self.name, script, limit)
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        self.hello.facts.clone()
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        self.connection.power_off();
        let ended = self.domain.xl.see_off(&self.domain.name, POWER_OFF);
        self.domain.ended = ended.is_ok();
        ended.map_err(|why| GuestError::Unreachable { name: self.name.clone(), why })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.ended {
            // Fails if the domain has ended already.
            let _ = self.xl.tell("destroy", &self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_domains_of_processes_that_are_no_more_are_orphans() {
        let processes = tempfile::tempdir().unwrap();
        fs::create_dir(processes.path().join("41")).unwrap();
        assert_eq!(namespace(processes.path()), "0");
        fs::create_dir_all(processes.path().join("self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[7]", processes.path().join("self/ns/pid")).unwrap();
        for (name, orphan) in [
            ("exitless-7-40-0", true),
            ("exitless-7-41-0", false),
            // A process of another namespace.
            ("exitless-8-40-0", false),
            ("exitless-lab", false),
            ("exitless-7-40-web", false),
            ("exitless-7-../../tmp-0", false),
            ("Domain-0", false),
        ] {
            assert_eq!(is_orphan(name, processes.path()), orphan, "{name}");
        }
    }
}
