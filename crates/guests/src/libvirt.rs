//! Domains of libvirt.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::manager;
use super::plan::{AgentChannel, LibvirtPlan};
use super::qga::{AgentGuest, Virsh};
use super::{Armed, Guest, GuestError, Patience, SshGuest};
use crate::Output;

/// The time for a domain to shut down before it is destroyed.
const SHUT_DOWN: Duration = Duration::from_secs(120);
/// The interval at which to check whether it has shut down.
const LOOK: Duration = Duration::from_millis(500);

/// A domain of libvirt. It is shut down in the end if it was started for the study.
pub struct LibvirtGuest {
    virsh: Tool,
    name: String,
    /// The argument of virsh's `--domain`.
    domain: String,
    started: bool,
    vcpus: u32,
    process: Option<i32>,
    channel: Box<dyn Guest>,
}

/// virsh with its connection URI.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) program: PathBuf,
    pub(crate) connect: String,
}

impl Tool {
    /// virsh on this connection, with messages in English.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-q", "-c", &self.connect]).env("LC_ALL", "C");
        command
    }

    fn ask(&self, words: &[&str]) -> Result<String, String> {
        let line = format!("virsh -c {} {}", self.connect, words.join(" "));
        manager::ask(&line, self.command().args(words), "install libvirt-clients")
    }
}

impl LibvirtGuest {
    /// Starts domain `index` of the plan if it does not run, and waits until its command channel works.
    ///
    /// # Errors
    /// [`GuestError::Start`] with virsh's message.
    pub fn start(plan: &LibvirtPlan, index: u32, patience: Patience<'_>) -> Result<Self, GuestError> {
        Self::start_by(plan, index, "virsh".into(), patience)
    }

    fn start_by(
        plan: &LibvirtPlan,
        index: u32,
        program: PathBuf,
        patience: Patience<'_>,
    ) -> Result<Self, GuestError> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(name) = plan.domains.get(at) else {
            let why =
                format!("guests.domains names only {}", exits::counted(plan.domains.len() as u64, "domain"));
            return Err(GuestError::Start { name: format!("domain {index}"), why });
        };
        let start = |why: String| GuestError::Start { name: name.clone(), why };
        let virsh = Tool { program, connect: plan.connect.clone() };
        let found = programs::virsh::domain(name, |words| virsh.ask(words)).map_err(start)?;
        let unknown = || {
            format!("libvirt has no domain of this name; `virsh -c {} list --all` lists them", plan.connect)
        };
        let domain = &found.ok_or_else(unknown).map_err(start)?;
        let running = virsh.ask(&["domstate", "--domain", domain]).map_err(start)? == "running";
        if !running {
            virsh.ask(&["start", "--domain", domain]).map_err(start)?;
        }
        let channel: Result<Box<dyn Guest>, GuestError> = match plan.channel {
            AgentChannel::GuestAgent => {
                let way = Virsh { tool: virsh.clone(), domain: domain.clone() };
                AgentGuest::with(name, Box::new(way), patience).map(|guest| Box::new(guest) as _)
            }
            AgentChannel::Ssh => plan
                .addresses
                .get(at)
                .map_or_else(
                    || leased(&virsh, domain, patience).map_err(start),
                    |address| Ok(address.clone()),
                )
                .and_then(|address| SshGuest::connect(name, &address, &plan.ssh, patience))
                .map(|guest| Box::new(guest) as _),
        };
        let channel = channel.inspect_err(|_| {
            if !running {
                // Ignore errors: the first one is reported.
                let _ = virsh.ask(&["destroy", "--domain", domain]);
            }
        })?;
        let count = virsh.ask(&["vcpucount", "--live", "--active", "--domain", domain]);
        let vcpus = count.ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| channel.vcpus());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let file = pid_file(&plan.connect, name, Path::new("/"), runtime.as_deref());
        if let Err(why) = &file {
            tracing::warn!("exits of {name} are not observed: {} {why}", plan.connect);
        }
        let process = file.ok().and_then(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
        Ok(Self {
            virsh,
            name: name.clone(),
            domain: domain.clone(),
            started: !running,
            vcpus,
            process,
            channel,
        })
    }
}

/// The address that libvirt's DHCP server has leased to the domain.
fn leased(virsh: &Tool, domain: &str, patience: Patience<'_>) -> Result<String, String> {
    let begun = Instant::now();
    loop {
        let shown = virsh.ask(&["domifaddr", "--domain", domain])?;
        if let Some(address) = address_in(&shown) {
            return Ok(address.to_string());
        }
        if patience.left(begun).is_zero() {
            return Err("libvirt does not know its address; give guests.addresses".to_owned());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The first address in the table of `virsh domifaddr`: interface, hardware address, protocol, address/prefix.
fn address_in(shown: &str) -> Option<IpAddr> {
    let words = shown.lines().filter_map(|line| line.split_whitespace().nth(3));
    words.filter_map(|word| word.split('/').next()?.parse().ok()).next()
}

/// The PID file of the domain's QEMU, if the connection is to this host: a domain of another host can have the same
/// name. The error is the end of a sentence that begins with the connection.
fn pid_file(
    connect: &str,
    domain: &str,
    root: &Path,
    runtime: Option<&Path>,
) -> Result<PathBuf, &'static str> {
    let uri = connect.split(['?', '#']).next().unwrap_or_default();
    let folder = match uri.strip_prefix("qemu://").or_else(|| uri.strip_prefix("qemu+unix://")) {
        Some("/system") => root.join("run/libvirt/qemu"),
        Some("/session") => {
            runtime.ok_or("needs XDG_RUNTIME_DIR, which is not set")?.join("libvirt/qemu/run")
        }
        _ => return Err("is not libvirt's QEMU on this host"),
    };
    Ok(folder.join(format!("{domain}.pid")))
}

impl Guest for LibvirtGuest {
    fn name(&self) -> &str {
        &self.name
    }

    fn vcpus(&self) -> u32 {
        self.vcpus
    }

    fn address(&self) -> Option<IpAddr> {
        self.channel.address()
    }

    fn host_address(&self) -> Option<IpAddr> {
        self.channel.host_address()
    }

    fn process(&self) -> Option<i32> {
        self.process
    }

    fn run(&mut self, script: &str, limit: Duration) -> Result<Output, GuestError> {
        self.channel.run(script, limit)
    }

    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError> {
        self.channel.arm(script, limit)
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        self.channel.facts()
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        if !std::mem::take(&mut self.started) {
            return Ok(());
        }
        self.end().map_err(|why| GuestError::Unreachable { name: self.name.clone(), why })
    }
}

impl LibvirtGuest {
    /// Shuts the domain down, and destroys it if it refuses or takes too long.
    fn end(&self) -> Result<(), String> {
        let ask = |word| self.virsh.ask(&[word, "--domain", &self.domain]);
        let begun = Instant::now();
        let mut refused = ask("shutdown").err();
        // An error does not say that it is off.
        while refused.is_none() && ask("domstate").as_deref() != Ok("shut off") {
            if begun.elapsed() > SHUT_DOWN {
                refused = Some(format!("it did not shut down within {} s", SHUT_DOWN.as_secs()));
            }
            std::thread::sleep(LOOK);
        }
        match refused {
            None => Ok(()),
            Some(why) => {
                tracing::warn!("{} is destroyed: {why}", self.name);
                ask("destroy").map(drop)
            }
        }
    }
}

/// A domain that was started for the study must not go on running beside later guests.
impl Drop for LibvirtGuest {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
#[path = "libvirt_tests.rs"]
mod tests;
