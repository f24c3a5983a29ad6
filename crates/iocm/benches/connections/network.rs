//! Namespaces that are ports of one switch.

use super::front_end;
use super::namespace::Namespace;
use crate::{Outcome, Running, SERVE, address, child, log};
use iocm::config::Config;
use iocm::control::Access;
use iocm::control::socket::BoundSocket;
use iocm::daemon::Daemon;
use iocm::device::net::{Tap, TapOptions};
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The variable that names an `exitless`.
const EXITLESS: &str = "IOCM_BENCH_EXITLESS";
const CONFIG: &str = "config.toml";
const CONTROL: &str = "control";

/// The carrier of packets between ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Shared(usize),
    Monitor,
    PerDevice,
    Bridge,
}

impl Carrier {
    pub(crate) const ALL: [Self; 5] =
        [Self::PerDevice, Self::Shared(1), Self::Shared(2), Self::Monitor, Self::Bridge];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shared(1) => "one shared worker",
            Self::Shared(_) => "two shared workers",
            Self::Monitor => "the monitor",
            Self::PerDevice => "a worker each",
            Self::Bridge => "the kernel's bridge",
        }
    }
}

/// The program with the monitor, which is in a higher crate.
pub(crate) fn exitless() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(EXITLESS) {
        return Some(named.into());
    }
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.with_file_name("exitless")).filter(|path| path.exists())
}

/// Namespaces on a switch, each with an address.
pub(crate) struct Network {
    pub(crate) namespaces: Vec<Namespace>,
    /// The namespace of the kernel's bridge.
    bridge: Option<Namespace>,
    /// The daemon and its monitor.
    back_end: Vec<Running>,
    front_ends: Vec<JoinHandle<Result<(), String>>>,
    ends: Arc<AtomicBool>,
}

impl Network {
    /// Creates `ports` namespaces, each with a device of `pairs` queue pairs.
    pub(crate) fn new(carrier: Carrier, ports: u32, pairs: u16) -> Outcome<Self> {
        let namespaces = (0..ports).map(|_| Namespace::new()).collect::<Outcome<_>>()?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut network =
            Self { namespaces, bridge: None, back_end: Vec::new(), front_ends: Vec::new(), ends };
        match carrier {
            Carrier::Bridge => network.bridge()?,
            _ => network.switch(carrier, pairs)?,
        }
        for (port, namespace) in (0..).zip(&network.namespaces) {
            let address = address(port);
            namespace
                .ip(&format!("address add {address}/24 dev eth0\nlink set eth0 up\nlink set lo up\n"))?;
        }
        Ok(network)
    }

    fn bridge(&mut self) -> Outcome<()> {
        let bridge = Namespace::new()?;
        let mut lines = "link add lan type bridge\nlink set lan up\n".to_owned();
        for (port, namespace) in self.namespaces.iter().enumerate() {
            let path = namespace.path();
            writeln!(lines, "link add p{port} type veth peer name eth0 netns {path}")?;
            writeln!(lines, "link set p{port} master lan up")?;
        }
        bridge.ip(&lines)?;
        self.bridge = Some(bridge);
        Ok(())
    }

    fn switch(&mut self, carrier: Carrier, pairs: u16) -> Outcome<()> {
        let ports = self.namespaces.len();
        let arrangement = if carrier == Carrier::PerDevice { "per-device" } else { "shared" };
        let count = if let Carrier::Shared(workers) = carrier { workers } else { 1 };
        let mut text = format!("[workers]\narrangement = \"{arrangement}\"\ncount = {count}\n");
        for port in 0..ports {
            write!(text, "[[device]]\nname = \"d{port}\"\ntype = \"net\"\nsocket = \"s{port}\"\n")?;
            writeln!(text, "queues = {pairs}\nbackend = {{ switch = \"lan\" }}")?;
        }
        std::fs::write(CONFIG, text)?;
        for old in (0..ports).map(|port| format!("s{port}")).chain([CONTROL.to_owned()]) {
            let _ = std::fs::remove_file(old);
        }
        let daemon =
            child(std::env::current_exe()?).env(SERVE, "").stdin(Stdio::piped()).stderr(log()?).spawn()?;
        self.back_end.push(Running(daemon));
        let begin = Instant::now();
        // The control socket is created after all others.
        while !Path::new(CONTROL).exists() {
            if begin.elapsed() > Duration::from_secs(20) {
                return Err("the daemon does not begin within 20 s".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if let (Carrier::Monitor, Some(exitless)) = (carrier, exitless()) {
            let mut monitor = child(exitless);
            monitor.args(["iocm", "monitor", "--no-exits", "--socket", CONTROL, "--state", "monitor.json"]);
            self.back_end.push(Running(monitor.stdout(Stdio::null()).stderr(log()?).spawn()?));
        }
        for (port, namespace) in self.namespaces.iter().enumerate() {
            let tap = TapOptions::Name { name: "eth0".to_owned(), namespace: Some(namespace.path()) };
            let tap = Tap::open(&tap, pairs, 0)?;
            let queues = (0..pairs.into()).map_while(|pair| tap.queue(pair)).collect();
            for pair in front_end::pairs(queues, UnixStream::connect(format!("s{port}"))?)? {
                let ends = Arc::clone(&self.ends);
                let pump = move || pair.pump(&ends).map_err(|error| error.to_string());
                self.front_ends.push(std::thread::spawn(pump));
            }
        }
        Ok(())
    }

    pub(crate) fn back_end(&self) -> impl Iterator<Item = &Running> {
        self.back_end.iter()
    }

    /// The number of the daemon's I/O workers.
    pub(crate) fn workers(&self) -> usize {
        let Some(daemon) = self.back_end.first() else { return 0 };
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", daemon.0.id())) else { return 0 };
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).filter(|name| name.starts_with("io-worker")).count()
    }

    /// Ends all front-ends. Fails if one of them has failed.
    pub(crate) fn end(mut self) -> Outcome<()> {
        self.ends.store(true, Ordering::Relaxed);
        for front_end in std::mem::take(&mut self.front_ends) {
            front_end
                .join()
                .map_err(|_| "a front-end panicked")?
                .map_err(|error| format!("a front-end failed: {error}"))?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.front_ends.drain(..).for_each(|front_end| drop(front_end.join()));
    }
}

/// Runs the daemon until the parent closes standard input.
pub(crate) fn serve() -> Outcome<()> {
    let daemon = Arc::new(Daemon::start(&Config::read(Path::new(CONFIG))?)?);
    let control = BoundSocket::bind(Path::new(CONTROL), Access::own())?.serve(&daemon)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(control);
    drop(daemon);
    Ok(())
}
