//! Messages of 100,000 TCP connections through MQTT brokers, with shared I/O workers: the loads of the IOcm article,
//! six VMs with a queue pair each and one with eight, without an emulator.
//!
//! `cargo bench -p iocm --bench connections [-- ROUNDS | few] [PART]...`, as root, with mosquitto. Only guests (`six`,
//! `large`) and carriers of packets whose names contain a PART are measured; `few` is a test with 600 connections. A
//! guest is a network namespace, which uses this kernel's TCP/IP, with a vhost-user front-end and a broker for each
//! queue pair. The clients of its brokers are in another such namespace. All are ports of one switch of this daemon, or
//! of the kernel's bridge, which needs no back-end and no front-ends. Messages begin when all connections are open.
//! Latencies count from the time at which a message was due, and are those of the worst broker.
//! `IOCM_BENCH_RATES=10000,30000` sets other rates, `IOCM_BENCH_SECONDS` the duration of each, and
//! `IOCM_BENCH_EXITLESS` names the `exitless` whose monitor is used. All samples are kept.

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

/// The variable that makes this program the daemon.
pub(crate) const SERVE: &str = "IOCM_BENCH_SERVE";
/// The variable that makes this program the clients of a broker.
const PUBLISH: &str = "IOCM_BENCH_PUBLISH";
const RATES: &str = "IOCM_BENCH_RATES";
const SECONDS: &str = "IOCM_BENCH_SECONDS";
/// Subscribers of each broker.
const SUBSCRIBERS: u32 = 4;
/// The ports of a guest's first broker: one for each 12,000 connections, so that the kernel finds a free port quickly.
const PORTS: [u16; 2] = [1883, 2883];

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A program that the kernel kills when this one ends for any reason.
pub(crate) fn child(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// The file for the programs' messages, in the folder that is kept.
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

/// The article's guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guests {
    Six,
    Large,
}

impl Guests {
    const fn name(self) -> &'static str {
        match self {
            Self::Six => "six guests",
            Self::Large => "one large guest",
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Six => 6,
            Self::Large => 1,
        }
    }

    /// The queue pairs of each guest, and so its brokers, which are single-threaded.
    const fn pairs(self) -> u16 {
        match self {
            Self::Six => 1,
            Self::Large => 8,
        }
    }

    const fn brokers(self) -> u32 {
        self.number() * self.pairs() as u32
    }
}

struct Plan {
    /// The publishers of all brokers together.
    connections: u32,
    /// The messages per second of all guests together.
    rates: Vec<u32>,
    seconds: u64,
    rounds: u32,
    is_test: bool,
}

impl Plan {
    fn new() -> Outcome<Self> {
        if std::env::args().any(|argument| argument == "few") {
            return Ok(Self { connections: 600, rates: vec![600], seconds: 2, rounds: 1, is_test: true });
        }
        let rates = std::env::var(RATES).unwrap_or_else(|_| "20000,40000,60000,80000".to_owned());
        let rates = rates.split(',').map(str::parse).collect::<Result<_, _>>();
        let seconds = std::env::var(SECONDS).ok().map_or(Ok(10), |seconds| seconds.parse());
        Ok(Self {
            connections: 100_000,
            rates: rates.map_err(|error| format!("{RATES} is not like 20000,40000: {error}"))?,
            seconds: seconds.map_err(|error| format!("{SECONDS} is not a number of seconds: {error}"))?,
            rounds: rounds(),
            is_test: false,
        })
    }

    /// The publishers of each broker.
    const fn connections_of_each(&self, guests: Guests) -> u32 {
        self.connections.div_ceil(guests.brokers())
    }

    /// The reason why this machine cannot run the bench.
    fn missing(&self) -> Option<String> {
        let runs = |program: &str| Command::new(program).arg("--help").output().is_ok();
        let files = self.connections_of_each(Guests::Six) + 200;
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

/// Raises the limit of open files, which children inherit, to the maximum.
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
    // `cargo test --benches` starts this too, and test runners ask it for a list of its tests.
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
    let mut shapes = vec![Guests::Six, Guests::Large];
    keep_chosen(&mut shapes, |guests| guests.name().to_owned());
    // Relative to the folder that is kept, sockets have short paths.
    let kept = kept()?;
    std::env::set_current_dir(&kept)?;
    let mut samples = OpenOptions::new().append(true).create(true).open("samples.jsonl")?;
    let (mut results, mut failed) = (Vec::new(), 0);
    println!("{} connections, samples in {}", plan.connections, kept.join("samples.jsonl").display());
    for (guests, &rate) in shapes.iter().flat_map(|guests| plan.rates.iter().map(move |rate| (*guests, rate)))
    {
        println!("\n{rate} messages a second, {}", guests.name());
        println!("{TITLES}");
        for round in 1..=plan.rounds {
            carriers.reverse();
            for &carrier in &carriers {
                let name = format!("{} ({round})", carrier.name());
                match measure(carrier, guests, rate, &plan) {
                    Ok(seen) => {
                        println!("{name:<28} {}  {:>5}", seen.line(), busy());
                        writeln!(samples, "{}", seen.json(carrier, guests, rate, round))?;
                        failed += u32::from(!seen.is_whole(guests, &plan));
                        results.push(((guests, carrier, rate), seen.attained()));
                    }
                    Err(error) => {
                        println!("{name:<28} failed: {error}");
                        failed += 1;
                    }
                }
            }
        }
    }
    for guests in shapes {
        print(guests, &carriers, &plan.rates, &results);
    }
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

/// A measurement of all brokers.
struct Seen {
    brokers: Vec<LoadResult>,
    /// The number of open connections of the clients just before the last message was due.
    connected: u64,
    /// Shares of a CPU while messages were due: of the back-end, the front-ends, the brokers and their clients.
    cpu: [f64; 4],
    workers: usize,
}

impl Seen {
    fn sum(&self, of: impl Fn(&LoadResult) -> f64) -> f64 {
        self.brokers.iter().map(of).sum()
    }

    /// Messages that were delivered, per second.
    fn attained(&self) -> f64 {
        self.sum(LoadResult::attained_rate)
    }

    /// A latency of the worst broker, milliseconds.
    fn worst(&self, of: impl Fn(&load::Latency) -> f64) -> f64 {
        self.brokers.iter().filter_map(|broker| broker.latency.as_ref()).map(of).fold(0.0, f64::max) * 1e3
    }

    fn failed(&self) -> f64 {
        self.sum(|broker| broker.failed_connections.into())
    }

    /// Tests whether all connections stayed open, and in a test whether all messages were delivered.
    fn is_whole(&self, guests: Guests, plan: &Plan) -> bool {
        let wanted = u64::from(guests.brokers() * (plan.connections_of_each(guests) + SUBSCRIBERS));
        let lost = self.sum(|broker| broker.lost as f64);
        self.failed() == 0.0 && self.connected >= wanted && (lost == 0.0 || !plan.is_test)
    }

    fn line(&self) -> String {
        let [back, front, brokers, clients] = self.cpu.map(|share| format!("{:.0}%", share * 100.0));
        let attained = self.attained();
        let share = 100.0 * attained / self.sum(|broker| broker.requested_rate);
        let (p50, p99) = (self.worst(|latency| latency.p50), self.worst(|latency| latency.p99));
        let (lost, failed) = (self.sum(|broker| broker.lost as f64), self.failed());
        let Self { connected, workers, .. } = self;
        format!(
            "{attained:>10.0} {share:>6.1} {p50:>8.1} {p99:>8.1} {lost:>8.0} {failed:>7.0} {connected:>9} \
             {back:>5} by {workers} {front:>10} {brokers:>7} {clients:>7}"
        )
    }

    fn json(&self, carrier: Carrier, guests: Guests, rate: u32, round: u32) -> serde_json::Value {
        let [back_end, front_ends, brokers, clients] = self.cpu;
        serde_json::json!({
            "guests": guests.name(), "carrier": carrier.name(), "requested": rate, "round": round,
            "attained": self.attained(), "connected": self.connected, "workers": self.workers, "load": busy(),
            "brokers": self.brokers,
            "cpu": { "back_end": back_end, "front_ends": front_ends, "brokers": brokers, "clients": clients },
        })
    }
}

/// The clients of one broker.
struct Clients {
    process: Running,
    lines: BufReader<ChildStdout>,
}

impl Clients {
    fn start(namespace: &Namespace, broker: &str, connections: u32, rate: f64, plan: &Plan) -> Outcome<Self> {
        let mut command = namespace.command(std::env::current_exe()?);
        command.env(PUBLISH, "").args([broker, &connections.to_string(), &rate.to_string()]);
        command.arg(plan.seconds.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Running(command.stderr(log()?).spawn()?);
        let lines = BufReader::new(process.0.stdout.take().ok_or("clients have no output")?);
        Ok(Self { process, lines })
    }

    /// The number of open TCP connections in their namespace.
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

/// Runs the clients of a broker. They begin when they read a line from standard input.
fn publish() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [addresses, connections, rate, seconds] = &arguments[..] else {
        return Err("clients need addresses of a broker, connections, a rate and seconds".into());
    };
    let brokers = addresses.split(',').map(str::parse).collect::<Result<_, _>>()?;
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

/// The file with the settings of a guest's broker.
fn settings(number: u16) -> String {
    format!("mosquitto-{number}.conf")
}

fn measure(carrier: Carrier, guests: Guests, rate: u32, plan: &Plan) -> Outcome<Seen> {
    let network = Network::new(carrier, 2 * guests.number(), guests.pairs())?;
    let (inside, outside) = network.namespaces.split_at(guests.number() as usize);
    let (connections, rate) =
        (plan.connections_of_each(guests), f64::from(rate) / f64::from(guests.brokers()));
    let ports = |number: u16| PORTS.map(|port| port + number);
    for number in 0..guests.pairs() {
        let listeners: String = ports(number).iter().map(|port| format!("listener {port}\n")).collect();
        std::fs::write(settings(number), format!("{listeners}{MOSQUITTO}"))?;
    }
    let (mut brokers, mut clients) = (Vec::new(), Vec::new());
    for ((guest, inside), outside) in (0..).zip(inside).zip(outside) {
        for number in 0..guests.pairs() {
            let broker =
                inside.command("mosquitto").args(["-c", &settings(number)]).stderr(log()?).spawn()?;
            brokers.push(Running(broker));
            let addresses = ports(number).map(|port| format!("{}:{port}", address(guest))).join(",");
            clients.push(Clients::start(outside, &addresses, connections, rate, plan)?);
        }
    }
    for one in &mut clients {
        one.line()?;
    }
    let used = || -> Outcome<[f64; 4]> {
        let sum = |all: &mut dyn Iterator<Item = &Running>| {
            all.map(|one| cpu(one.0.id())).sum::<std::io::Result<f64>>()
        };
        Ok([
            sum(&mut network.back_end())?,
            // This process only runs the front-ends now.
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
    // Clients of one guest share a namespace.
    let each = clients.iter().step_by(guests.pairs().into());
    let connected = each.map(Clients::connections).sum::<Outcome<u64>>()?;
    let workers = network.workers();
    let read = |one: &mut Clients| Ok(LoadResult::read(&one.line()?)?);
    let results = clients.iter_mut().map(read).collect::<Outcome<Vec<_>>>()?;
    drop(clients);
    drop(brokers);
    network.end()?;
    Ok(Seen { brokers: results, connected, cpu, workers })
}

/// The medians of the rounds.
fn print(guests: Guests, carriers: &[Carrier], rates: &[u32], results: &[((Guests, Carrier, u32), f64)]) {
    println!(
        "\nmessages a second that were delivered, {}, medians of the rounds\n\n{:<28}{}",
        guests.name(),
        "requested",
        row(rates)
    );
    for carrier in carriers {
        let median = |rate: &u32| {
            let all = results.iter().filter(|(of, _)| *of == (guests, *carrier, *rate));
            let mut all: Vec<u32> = all.map(|(_, attained)| *attained as u32).collect();
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
