//! Messages of 100,000 TCP connections through six MQTT brokers, by shared I/O workers: the load of the IOcm article with
//! six VMs, without an emulator.
//!
//! `cargo bench -p iocm --bench connections [-- ROUNDS | few] [PART]...`, as root, with mosquitto: a PART of the names of
//! what carries the packets leaves out the others, and `few` only tests, with 600 connections. A guest is a network
//! namespace, whose TCP/IP is this kernel's, with a broker and a vhost-user front-end; the clients of each broker are in
//! another such namespace. All twelve are ports of one switch of this daemon, or of the kernel's bridge, which has no
//! back-end and no front-ends. Messages begin when all connections are open. Latencies count from the moment at which a
//! message was due, and are those of the worst guest. `IOCM_BENCH_RATES=10000,30000` are other rates,
//! `IOCM_BENCH_SECONDS` is the duration of each, and `IOCM_BENCH_EXITLESS` names the `exitless` whose monitor is used.
//! All samples are kept.

mod common;

mod connections {
    pub(crate) mod front_end;
    pub(crate) mod namespace;
    pub(crate) mod network;
}

use common::{busy, cpu, keep_chosen, rounds};
use connections::namespace::Namespace;
use connections::network::{Carrier, Network, exitless, serve};
use load::{LoadResult, MOSQUITTO, MqttLoad};
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _, stdin};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Asks this program to be the daemon.
pub(crate) const SERVE: &str = "IOCM_BENCH_SERVE";
/// Asks this program to be the clients of a broker.
const PUBLISH: &str = "IOCM_BENCH_PUBLISH";
const RATES: &str = "IOCM_BENCH_RATES";
const SECONDS: &str = "IOCM_BENCH_SECONDS";
const GUESTS: u32 = 6;
const SUBSCRIBERS: u32 = 4;
/// A broker's ports: one for each 12,000 connections, for which the kernel finds a free port quickly.
const PORTS: [u16; 2] = [1883, 2883];

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A program that the kernel kills when this one ends, however it does.
pub(crate) fn child(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// What programs say beside their results, in the folder that is kept.
pub(crate) fn log() -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open("log.txt")
}

/// A child that ends at the end of its scope.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Plan {
    /// Connections of each guest.
    connections: u32,
    /// Messages a second of all guests.
    rates: Vec<u32>,
    seconds: u64,
    rounds: u32,
    is_test: bool,
}

impl Plan {
    fn new() -> Outcome<Self> {
        if std::env::args().any(|argument| argument == "few") {
            return Ok(Self { connections: 100, rates: vec![600], seconds: 2, rounds: 1, is_test: true });
        }
        let rates = std::env::var(RATES).unwrap_or_else(|_| "20000,40000,60000,80000".to_owned());
        let rates = rates.split(',').map(str::parse).collect::<Result<_, _>>();
        let seconds = std::env::var(SECONDS).ok().map_or(Ok(10), |seconds| seconds.parse());
        Ok(Self {
            connections: 100_000_u32.div_ceil(GUESTS),
            rates: rates.map_err(|error| format!("{RATES} is not like 20000,40000: {error}"))?,
            seconds: seconds.map_err(|error| format!("{SECONDS} is not a number of seconds: {error}"))?,
            rounds: rounds(),
            is_test: false,
        })
    }

    /// What this machine lacks.
    fn missing(&self) -> Option<String> {
        let runs = |program: &str| Command::new(program).arg("--help").output().is_ok();
        let files = self.connections + 200;
        let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            text.split_once("MemAvailable:")?.1.split_whitespace().next()?.parse::<u64>().ok()
        });
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces need root".to_owned());
        }
        let needed = [("mosquitto", "mosquitto"), ("ip", "iproute2"), ("nsenter", "util-linux")];
        if let Some((program, package)) = needed.iter().find(|(program, _)| !runs(program)) {
            return Some(format!("{program} is not installed (package {package})"));
        }
        if !allows_files(u64::from(files)) {
            return Some(format!("a process may not have {files} open files (ulimit -Hn)"));
        }
        // All sockets, brokers and clients took 1 GiB.
        let is_short = available.is_some_and(|kib| kib < 2 << 20);
        is_short.then(|| "2 GiB of memory are needed, and not available".to_owned())
    }
}

/// Raises the limit of open files, which children inherit, to the most that is allowed.
fn allows_files(wanted: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    raised.is_ok() && maximum.is_none_or(|maximum| maximum >= wanted)
}

fn main() -> Outcome<()> {
    if std::env::var_os(SERVE).is_some() {
        return serve();
    }
    if std::env::var_os(PUBLISH).is_some() {
        return publish();
    }
    // `cargo test --benches` starts this too, and test runners ask it for its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let plan = Plan::new()?;
    if let Some(why) = plan.missing() {
        println!("not measured: {why}");
        return Ok(());
    }
    let mut carriers = Carrier::ALL.to_vec();
    if exitless().is_none() {
        println!("not compared: the monitor needs exitless (make build, or IOCM_BENCH_EXITLESS)");
        carriers.retain(|carrier| *carrier != Carrier::Monitor);
    }
    keep_chosen(&mut carriers, |carrier| carrier.name().to_owned());
    // Sockets have short paths, from the folder that is kept.
    let kept = kept()?;
    std::env::set_current_dir(&kept)?;
    let mut samples = OpenOptions::new().append(true).create(true).open("samples.jsonl")?;
    let (mut results, mut failed) = (Vec::new(), 0);
    println!(
        "{} connections, samples in {}",
        GUESTS * plan.connections,
        kept.join("samples.jsonl").display()
    );
    for &rate in &plan.rates {
        println!("\n{rate} messages a second");
        println!("{TITLES}");
        for round in 1..=plan.rounds {
            carriers.reverse();
            for &carrier in &carriers {
                let name = format!("{} ({round})", carrier.name());
                match measure(carrier, rate, &plan) {
                    Ok(seen) => {
                        println!("{name:<28} {}  {:>5}", seen.line(), busy());
                        writeln!(samples, "{}", seen.json(carrier, rate, round))?;
                        failed += u32::from(!seen.is_whole(&plan));
                        results.push((carrier, rate, seen.attained()));
                    }
                    Err(error) => {
                        println!("{name:<28} failed: {error}");
                        failed += 1;
                    }
                }
            }
        }
    }
    print(&carriers, &plan.rates, &results);
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} measurements failed, or lost connections or messages").into()),
    }
}

/// A new folder beside those of the compiler.
fn kept() -> Outcome<PathBuf> {
    let now = UNIX_EPOCH.elapsed()?.as_secs();
    let program = std::env::current_exe()?;
    let folder = program.parent().ok_or("a program without a folder")?;
    let kept = folder.with_file_name("connections").join(now.to_string());
    std::fs::create_dir_all(&kept)?;
    Ok(kept)
}

const TITLES: &str = "                               attained      %   p50 ms   p99 ms     lost  failed \
    connected  back-end front-ends brokers clients   load";

/// A measurement of all guests.
struct Seen {
    guests: Vec<LoadResult>,
    /// Open connections of the clients just before the last message was due.
    connected: u64,
    /// Shares of a CPU while messages were due: the back-end, the front-ends, the brokers and their clients.
    cpu: [f64; 4],
    workers: usize,
}

impl Seen {
    fn sum(&self, of: impl Fn(&LoadResult) -> f64) -> f64 {
        self.guests.iter().map(of).sum()
    }

    /// Messages that were delivered, a second.
    fn attained(&self) -> f64 {
        self.sum(LoadResult::attained_rate)
    }

    /// A latency of the worst guest, milliseconds.
    fn worst(&self, of: impl Fn(&load::Latency) -> f64) -> f64 {
        self.guests.iter().filter_map(|guest| guest.latency.as_ref()).map(of).fold(0.0, f64::max) * 1e3
    }

    fn failed(&self) -> f64 {
        self.sum(|guest| guest.failed_connections.into())
    }

    /// Tests whether all connections stayed open, and in a test all messages came.
    fn is_whole(&self, plan: &Plan) -> bool {
        let wanted = u64::from(GUESTS * (plan.connections + SUBSCRIBERS));
        let lost = self.sum(|guest| guest.lost as f64);
        self.failed() == 0.0 && self.connected >= wanted && (lost == 0.0 || !plan.is_test)
    }

    fn line(&self) -> String {
        let [back, front, brokers, clients] = self.cpu.map(|share| format!("{:.0}%", share * 100.0));
        let attained = self.attained();
        let share = 100.0 * attained / self.sum(|guest| guest.requested_rate);
        let (p50, p99) = (self.worst(|latency| latency.p50), self.worst(|latency| latency.p99));
        let (lost, failed) = (self.sum(|guest| guest.lost as f64), self.failed());
        let Self { connected, workers, .. } = self;
        format!(
            "{attained:>10.0} {share:>6.1} {p50:>8.1} {p99:>8.1} {lost:>8.0} {failed:>7.0} {connected:>9} \
             {back:>5} by {workers} {front:>10} {brokers:>7} {clients:>7}"
        )
    }

    fn json(&self, carrier: Carrier, rate: u32, round: u32) -> serde_json::Value {
        let [back_end, front_ends, brokers, clients] = self.cpu;
        serde_json::json!({
            "carrier": carrier.name(), "requested": rate, "round": round, "attained": self.attained(),
            "connected": self.connected, "workers": self.workers, "load": busy(), "guests": self.guests,
            "cpu": { "back_end": back_end, "front_ends": front_ends, "brokers": brokers, "clients": clients },
        })
    }
}

/// Clients of one broker.
struct Clients {
    process: Running,
    lines: BufReader<ChildStdout>,
}

impl Clients {
    fn start(namespace: &Namespace, guest: u32, rate: f64, plan: &Plan) -> Outcome<Self> {
        let mut command = namespace.command(std::env::current_exe()?);
        command.env(PUBLISH, "").args([address(guest), plan.connections.to_string(), rate.to_string()]);
        command.arg(plan.seconds.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Running(command.stderr(log()?).spawn()?);
        let lines = BufReader::new(process.0.stdout.take().ok_or("clients have no output")?);
        Ok(Self { process, lines })
    }

    /// TCP connections that are open in their namespace.
    fn connections(&self) -> Outcome<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/net/sockstat", self.process.0.id()))?;
        let number =
            text.split_once("TCP: inuse ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        Ok(number.ok_or("/proc/net/sockstat has no line \"TCP: inuse NUMBER\"")?)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Err("the clients of a broker ended early; log.txt beside the samples says why".into()),
            _ => Ok(line),
        }
    }
}

/// Is the clients of a broker: begins when told to by a line.
fn publish() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, connections, rate, seconds] = &arguments[..] else {
        return Err("clients need an address, connections, a rate and seconds".into());
    };
    let brokers = PORTS.iter().map(|port| format!("{address}:{port}").parse()).collect::<Result<_, _>>()?;
    let load = MqttLoad {
        brokers,
        connections: connections.parse()?,
        subscribers: SUBSCRIBERS,
        rate: rate.parse()?,
        duration: Duration::from_secs(seconds.parse()?),
        message_size: 64,
        acknowledged: false,
        threads: 1,
        sources: Vec::new(),
    };
    wait_for(&load.brokers)?;
    let result = load.run_when(|| {
        println!("connected");
        let _ = stdin().read_line(&mut String::new());
    })?;
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}

fn wait_for(brokers: &[SocketAddr]) -> Outcome<()> {
    let end = Instant::now() + Duration::from_secs(30);
    for broker in brokers {
        while let Err(error) = TcpStream::connect_timeout(broker, Duration::from_secs(5)) {
            if Instant::now() > end {
                return Err(format!("no broker at {broker} after 30 s: {error}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

pub(crate) fn address(guest: u32) -> String {
    format!("10.0.0.{}", guest + 1)
}

fn measure(carrier: Carrier, rate: u32, plan: &Plan) -> Outcome<Seen> {
    let network = Network::new(carrier, 2 * GUESTS)?;
    let (guests, outside) = network.namespaces.split_at(GUESTS as usize);
    let listeners: String = PORTS.iter().map(|port| format!("listener {port}\n")).collect();
    std::fs::write("mosquitto.conf", format!("{listeners}{MOSQUITTO}"))?;
    let broker = |guest: &Namespace| -> Outcome<Running> {
        let mut broker = guest.command("mosquitto");
        Ok(Running(broker.args(["-c", "mosquitto.conf"]).stderr(log()?).spawn()?))
    };
    let brokers = guests.iter().map(broker).collect::<Outcome<Vec<_>>>()?;
    let rate = f64::from(rate) / f64::from(GUESTS);
    let start = |(guest, outside)| Clients::start(outside, guest, rate, plan);
    let mut clients = (0..).zip(outside).map(start).collect::<Outcome<Vec<_>>>()?;
    for one in &mut clients {
        one.line()?;
    }
    let used = || -> Outcome<[f64; 4]> {
        let sum = |all: &mut dyn Iterator<Item = &Running>| {
            all.map(|one| cpu(one.0.id())).sum::<std::io::Result<f64>>()
        };
        Ok([
            sum(&mut network.back_end())?,
            // This process does nothing else now.
            cpu(std::process::id())?,
            sum(&mut brokers.iter())?,
            sum(&mut clients.iter().map(|one| &one.process))?,
        ])
    };
    let (begin, before) = (Instant::now(), used()?);
    for one in &clients {
        writeln!(one.process.0.stdin.as_ref().ok_or("clients have no input")?)?;
    }
    // Clients that have everything close their connections at once when no more messages are due.
    std::thread::sleep(Duration::from_millis(plan.seconds * 1000 - 300));
    let (wall, after) = (begin.elapsed().as_secs_f64(), used()?);
    let cpu = std::array::from_fn(|part| (after[part] - before[part]) / wall);
    let connected = clients.iter().map(Clients::connections).sum::<Outcome<u64>>()?;
    let workers = network.workers();
    let read = |one: &mut Clients| Ok(LoadResult::read(&one.line()?)?);
    let guests = clients.iter_mut().map(read).collect::<Outcome<Vec<_>>>()?;
    drop(clients);
    drop(brokers);
    network.end()?;
    Ok(Seen { guests, connected, cpu, workers })
}

/// The medians of the rounds.
fn print(carriers: &[Carrier], rates: &[u32], results: &[(Carrier, u32, f64)]) {
    println!(
        "\nmessages a second that were delivered, medians of the rounds\n\n{:<28}{}",
        "requested",
        row(rates)
    );
    for carrier in carriers {
        let median = |rate: &u32| {
            let mut all: Vec<u32> = results
                .iter()
                .filter(|(of, at, _)| of == carrier && at == rate)
                .map(|(.., attained)| *attained as u32)
                .collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0)
        };
        let medians: Vec<u32> = rates.iter().map(median).collect();
        println!("{:<28}{}", carrier.name(), row(&medians));
    }
}

fn row(numbers: &[u32]) -> String {
    numbers.iter().map(|number| format!(" {number:>9}")).collect()
}
