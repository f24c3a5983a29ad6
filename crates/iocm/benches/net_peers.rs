//! The back-end's cost of a packet of 64 bytes: this daemon, `dpdk-testpmd`'s vhost ports and Open vSwitch with DPDK,
//! one after another in each round, under the same load from testpmd's virtio-user front-end.
//!
//! `cargo bench -p iocm --bench net_peers [-- ROUNDS] [PART]...`: only loads and peers whose names contain a PART are
//! measured. `IOCM_BENCH_OLD` names an older build of this program, which is then a peer, too. There are two loads: a
//! front-end that sends as much as it can to a back-end that drops it, and packets that circulate between two ports of
//! a back-end and a front-end that sends back what it receives. CPU time is that of the whole back-end process; packets
//! are those that the front-end counts. Front-end and back-end have a CPU each. At the end, the medians over the rounds
//! are compared with the aims of the daemon.

mod common;

mod net_peers {
    pub(crate) mod aims;
    pub(crate) mod open_vswitch;
}

use common::{cpu, keep_chosen, rounds};
use iocm::config::Config;
use iocm::daemon::Daemon;
use net_peers::{aims, open_vswitch};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The variable that makes this program a back-end.
const SERVE: &str = "IOCM_BENCH_SERVE";
/// The variable that names an older build of this program.
const OLD: &str = "IOCM_BENCH_OLD";
const TESTPMD: &str = "dpdk-testpmd";
const SECONDS: u64 = 3;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    if let Some(config) = std::env::var_os(SERVE) {
        return serve(Path::new(&config));
    }
    // `cargo test --benches` starts this too, and test runners ask it for a list of its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    if Command::new(TESTPMD).arg("--version").output().is_err() {
        println!("not measured: {TESTPMD}, which is the front-end too, is not installed (package dpdk-dev)");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let mut peers = vec![Peer::Always, Peer::Old, Peer::Adaptive, Peer::Testpmd, Peer::OpenVSwitch];
    if std::env::var_os(OLD).is_none() {
        peers.retain(|peer| *peer != Peer::Old);
    }
    if let Some(why) = open_vswitch::missing() {
        println!("not compared: {why}");
        peers.retain(|peer| *peer != Peer::OpenVSwitch);
    }
    keep_chosen(&mut peers, |peer| peer.name().to_owned());
    let mut loads = vec![Load::Sink, Load::Round];
    let is_whole = !keep_chosen(&mut loads, |load| load.title().to_owned());
    let (mut results, mut idles) = (Vec::new(), Vec::new());
    for load in loads {
        println!("\n{}", load.title());
        println!("{:<32} {:>14} {:>8} {:>22}", "", "packets a s", "CPU", "packets a CPU second");
        for round in 0..rounds() {
            for &peer in &peers {
                let (rate, cpu) = measure(peer, load, directory.path())?;
                let name = format!("{} ({})", peer.name(), round + 1);
                println!("{name:<32} {rate:>14.0} {:>7.0}% {:>22.0}", cpu * 100.0, rate / cpu);
                results.push((peer, load, rate / cpu));
            }
        }
    }
    if is_whole {
        println!("\nan idle device with its front-end");
    }
    for peer in peers.into_iter().filter(|_| is_whole) {
        let cpu = idle(peer, directory.path())?;
        println!("{:<32} {:>6.1}% of a CPU", peer.name(), cpu * 100.0);
        idles.push((peer, cpu));
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("\nload average {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    aims::print(&results, &idles);
    // DPDK leaves files that its processes would share.
    for who in ["back", "front", "ovs"] {
        let _ = std::fs::remove_dir_all(format!("/run/dpdk/iocm-{who}-{}", std::process::id()));
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Sink,
    Round,
}

impl Load {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Sink => "one front-end sends, the back-end forgets: 64 bytes",
            Self::Round => "packets go round between two ports: 64 bytes",
        }
    }

    const fn ports(self) -> usize {
        match self {
            Self::Sink => 1,
            Self::Round => 2,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Always,
    /// [`Self::Always`] of an older build.
    Old,
    Adaptive,
    Testpmd,
    OpenVSwitch,
}

/// A program that reads commands and writes lines.
struct Talker {
    child: Child,
    commands: Option<ChildStdin>,
    lines: Receiver<String>,
    /// A program that it depends on, and that no command ends.
    needs: Option<Child>,
}

impl Talker {
    fn start(command: &mut Command) -> Outcome<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().ok_or("no output")?);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Self { commands: child.stdin.take(), child, lines, needs: None })
    }

    fn say(&mut self, command: &str) -> Outcome<()> {
        let commands = self.commands.as_mut().ok_or("it has ended")?;
        writeln!(commands, "{command}")?;
        Ok(commands.flush()?)
    }

    /// The sum of the numbers after a word in the statistics of all ports.
    fn count(&mut self, word: &str, ports: usize) -> Outcome<u64> {
        while self.lines.try_recv().is_ok() {}
        self.say("show port stats all")?;
        let (mut sum, mut found) = (0, 0);
        while found < ports {
            let line = self.lines.recv_timeout(Duration::from_secs(60))?;
            if let Some((_, rest)) = line.split_once(word) {
                let number = rest.split_whitespace().next().ok_or("no number")?;
                (sum, found) = (sum + number.parse::<u64>()?, found + 1);
            }
        }
        Ok(sum)
    }

    fn end(mut self) -> Outcome<()> {
        if let Some(mut needed) = self.needs.take() {
            for child in [&mut self.child, &mut needed] {
                child.kill()?;
                child.wait()?;
            }
            return Ok(());
        }
        if self.commands.is_some() {
            let _ = self.say("stop");
            let _ = self.say("quit");
        }
        drop(self.commands.take());
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > Duration::from_secs(10) {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

fn mac(port: usize) -> String {
    format!("52:54:00:00:00:{:02x}", port + 1)
}

/// testpmd on two CPUs: commands on `main`, packets on the other.
fn testpmd(main: usize, prefix: &str) -> Command {
    // Otherwise it buffers its output to a pipe until it ends.
    let mut command = Command::new("stdbuf");
    command.args(["-oL", TESTPMD]);
    let prefix = format!("iocm-{prefix}-{}", std::process::id());
    let main = main.to_string();
    command.args(["-l", "0,1", "--main-lcore", &main, "--no-huge", "-m", "512", "--single-file-segments"]);
    command.args(["--no-pci", "--no-telemetry", "--file-prefix", &prefix]);
    command
}

const FORWARDING: [&str; 4] = ["--", "-i", "--total-num-mbufs=16384", "--nb-cores=1"];

impl Peer {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Always => "this daemon, polling",
            Self::Old => "an older build, polling",
            Self::Adaptive => "this daemon, adaptive",
            Self::Testpmd => "testpmd's vhost ports",
            Self::OpenVSwitch => "Open vSwitch with DPDK",
        }
    }

    fn start(self, load: Load, directory: &Path) -> Outcome<Talker> {
        let sockets: Vec<_> = (0..load.ports()).map(|port| directory.join(format!("s{port}"))).collect();
        for socket in &sockets {
            let _ = std::fs::remove_file(socket);
        }
        let mut needs = None;
        let mut command = if self == Self::OpenVSwitch {
            let (needed, command) = open_vswitch::prepared(directory, load.ports())?;
            needs = Some(needed);
            command
        } else if self == Self::Testpmd {
            let mut command = testpmd(1, "back");
            for (port, socket) in sockets.iter().enumerate() {
                command.arg("--vdev").arg(format!("net_vhost{port},iface={},queues=1", socket.display()));
            }
            let mode = if load == Load::Sink { "rxonly" } else { "io" };
            command.args(FORWARDING).arg(format!("--forward-mode={mode}"));
            command
        } else {
            let polling = if self == Self::Adaptive { "adaptive" } else { "always" };
            let mut text = format!("[workers]\ncpus = [\"0\"]\npolling = \"{polling}\"\n");
            for (port, socket) in sockets.iter().enumerate() {
                write!(text, "[[device]]\nname = \"d{port}\"\ntype = \"net\"\nsocket = {socket:?}\n")?;
                if load == Load::Round {
                    text.push_str("backend = { switch = \"lan\" }\n");
                }
            }
            let config = directory.join("config.toml");
            std::fs::write(&config, text)?;
            let program = match std::env::var_os(OLD).filter(|_| self == Self::Old) {
                Some(old) => PathBuf::from(old),
                None => std::env::current_exe()?,
            };
            let mut command = Command::new(program);
            command.env(SERVE, config);
            command
        };
        let mut talker = Talker::start(&mut command)?;
        talker.needs = needs;
        let begin = Instant::now();
        while !sockets.iter().all(|socket| socket.exists()) {
            if begin.elapsed() > Duration::from_secs(20) {
                return Err("the back-end does not begin".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(500));
        if self == Self::Testpmd {
            talker.say("start")?;
        }
        Ok(talker)
    }
}

fn front_end(load: Load, directory: &Path) -> Outcome<Talker> {
    let mut command = testpmd(0, "front");
    for port in 0..load.ports() {
        let socket = directory.join(format!("s{port}"));
        let device = format!("net_virtio_user{port},path={},queues=1,mac={}", socket.display(), mac(port));
        command.arg("--vdev").arg(device);
    }
    let mode = if load == Load::Sink { "txonly" } else { "io" };
    command.args(FORWARDING).arg(format!("--forward-mode={mode}"));
    for port in 0..load.ports() {
        command.arg(format!("--eth-peer={port},{}", mac(load.ports() - 1 - port)));
    }
    Talker::start(&mut command)
}

/// Packets per second, and the share of a CPU that the back-end used for them.
fn measure(peer: Peer, load: Load, directory: &Path) -> Outcome<(f64, f64)> {
    let back = peer.start(load, directory)?;
    let mut front = front_end(load, directory)?;
    // Its first answer shows that it is ready.
    front.count("TX-packets:", load.ports())?;
    // Packets that are sent before both ports of a switch are up are lost, and then nothing circulates.
    for _ in 0..10 {
        front.say(if load == Load::Sink { "start" } else { "start tx_first 16" })?;
        std::thread::sleep(Duration::from_millis(700));
        let before = front.count("TX-packets:", load.ports())?;
        std::thread::sleep(Duration::from_millis(200));
        if front.count("TX-packets:", load.ports())? > before {
            break;
        }
        front.say("stop")?;
    }
    let begin = (Instant::now(), cpu(back.child.id())?, front.count("TX-packets:", load.ports())?);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let packets = front.count("TX-packets:", load.ports())? - begin.2;
    let (wall, used) = (begin.0.elapsed().as_secs_f64(), cpu(back.child.id())? - begin.1);
    front.end()?;
    back.end()?;
    Ok((packets as f64 / wall, used / wall))
}

/// The share of a CPU that a back-end uses while its guest sends nothing.
fn idle(peer: Peer, directory: &Path) -> Outcome<f64> {
    let back = peer.start(Load::Sink, directory)?;
    let mut front = front_end(Load::Sink, directory)?;
    front.count("TX-packets:", 1)?;
    std::thread::sleep(Duration::from_millis(500));
    let (begin, before) = (Instant::now(), cpu(back.child.id())?);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let used = (cpu(back.child.id())? - before) / begin.elapsed().as_secs_f64();
    front.end()?;
    back.end()?;
    Ok(used)
}

/// Runs a back-end until the parent closes standard input.
fn serve(config: &Path) -> Outcome<()> {
    let daemon = Daemon::start(&Config::read(config)?)?;
    let mut words = String::new();
    std::io::stdin().read_to_string(&mut words)?;
    drop(daemon);
    Ok(())
}
