//! `exitless-fleet`: results of many hosts in one data set.

use std::io::{BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, NaiveDate, Utc};
use clap::{Args, Parser, Subcommand};
use exits::{counted, printable};

use exitless_fleet::agent::{self, Agent};
use exitless_fleet::document::{self, LARGEST_FILE, Origin};
use exitless_fleet::engine::{self, Bounds};
use exitless_fleet::output::{self, Form, failed, tell};
use exitless_fleet::store::{Days, Store, is_day};
use exitless_fleet::{keep, live, report, serve, write};

/// Everything was done.
const DONE: u8 = 0;
/// A file was refused, or rows were left out.
const LEFT_OUT: u8 = 1;
/// The command line or the query is wrong.
const USAGE: u8 = 2;
/// The program failed.
const FAILED: u8 = 125;

/// The program's name in messages.
const NAME: &str = env!("CARGO_BIN_NAME");

/// The most worker threads. Each has a large stack, and a machine may have hundreds of CPUs.
const MOST_WORKERS: usize = 16;
/// The memory that `add` may have, in MiB; the process has more, like that of a query.
const ADDING: u32 = 512;
/// The most threads for blocking file operations.
const BLOCKING: usize = 16;

/// Keep the results of many hosts in one data set, and ask it.
#[derive(Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add the --json output of exitless to the data set.
    ///
    /// Exit status: 0; 1 when some files were refused; 2 for a wrong command line; 125 when the store failed.
    Add(Add),
    /// Answer a query in SQL.
    ///
    /// Exit status: 0; 1 when files could not be read or rows were left out; 2 for a wrong command line or query; 125 when
    /// there is no answer.
    Query(Query),
    /// Answer the ready questions: hosts, VMs, reasons, parameters, kernels.
    ///
    /// Exit status: as of query.
    Report(Report),
    /// Show the data set, or this host, as a live page in a browser.
    ///
    /// Exit status: 0 when it was ended by SIGINT or SIGTERM; 2 for a wrong command line; 125 when it cannot work.
    Serve(Serve),
    /// Join the small files of past days.
    ///
    /// Exit status: 0; 1 when some files stay as they are; 2 for a wrong command line; 125 when the store failed.
    Compact(Compact),
    /// Show, or with --apply delete, the files of old days.
    ///
    /// Exit status: 0; 2 for a wrong command line; 125 when the store failed.
    Retain(Retain),
    /// Collect on this host at an interval, and send it to the data set.
    ///
    /// Exit status: 0 when it was ended by SIGINT or SIGTERM; 2 for a wrong command line; 125 when it cannot work.
    Agent(AgentArguments),
}

#[derive(Args)]
struct At {
    /// The data set: a folder, or file://, s3://, gs:// or az:// (their keys are taken from the environment).
    #[arg(long, value_name = "URL", env = "EXITLESS_FLEET_STORE")]
    store: String,
}

#[derive(Args)]
struct Add {
    #[command(flatten)]
    at: At,
    /// The host that the files are of; goes before what they say.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// When they were made, if they do not say so: 2026-01-31T12:00:00Z [default: when the file was changed]
    #[arg(long, value_name = "TIME")]
    time: Option<DateTime<Utc>>,
    /// Outputs of exitless doctor, verify, vms, stat, report, probe, prove and experiment report with --json.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Args)]
struct Limits {
    #[command(flatten)]
    at: At,
    /// Read only files from this day on: 2026-01-31.
    #[arg(long, value_name = "DAY", value_parser = day)]
    since: Option<String>,
    /// Read only files up to this day.
    #[arg(long, value_name = "DAY", value_parser = day)]
    until: Option<String>,
    /// Refuse to answer if a file cannot be read.
    #[arg(long)]
    strict: bool,
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time: u64,
    /// Memory for the query in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    memory: u32,
}

impl Limits {
    fn bounds(&self, rows: usize) -> Bounds {
        Bounds {
            memory: (self.memory as usize) << 20,
            time: Duration::from_secs(self.time),
            rows,
            days: Days { since: self.since.clone(), until: self.until.clone() },
            strict: self.strict,
        }
    }
}

#[derive(Args)]
struct Query {
    #[command(flatten)]
    limits: Limits,
    /// Let the executors of this cluster compute, by exitless-fleet-cluster, which is a program of its own.
    #[arg(long, value_name = "URL", conflicts_with = "memory")]
    cluster: Option<String>,
    /// The most rows of the answer.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    rows: u32,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = Form::Table, conflicts_with = "json")]
    output: Form,
    /// Print one JSON document; short for --output json.
    #[arg(long)]
    json: bool,
    /// The query: SHOW TABLES, SELECT ... FROM hosts.
    #[arg(value_name = "SQL")]
    sql: String,
}

#[derive(Args)]
struct Report {
    #[command(flatten)]
    limits: Limits,
    /// The host whose module parameters the others should have [default: the most frequent value of each].
    #[arg(long, value_name = "HOST")]
    baseline: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Serve {
    /// The data set: a folder, or file://, s3://, gs:// or az:// (their keys are taken from the environment).
    #[arg(long, value_name = "URL", env = "EXITLESS_FLEET_STORE", required_unless_present = "live")]
    store: Option<String>,
    /// Show this host, collected now and then and kept in memory for an hour; without a data set.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    collecting: live::Collecting,
    #[command(flatten)]
    settings: serve::Settings,
}

#[derive(Args)]
struct Compact {
    #[command(flatten)]
    at: At,
    /// Up to this day [default: yesterday, UTC].
    #[arg(long, value_name = "DAY", value_parser = day)]
    until: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Retain {
    #[command(flatten)]
    at: At,
    /// Keep this many days, today (UTC) included.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Delete; without it the files are only counted.
    #[arg(long)]
    apply: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct AgentArguments {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    agent: Agent,
}

fn day(text: &str) -> Result<String, String> {
    if is_day(text) { Ok(text.to_owned()) } else { Err("a day is written YYYY-MM-DD".to_owned()) }
}

fn main() -> ExitCode {
    // Before starting threads, because `by_cluster` replaces the process.
    let arguments = Arguments::parse();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (workers, memory) = match &arguments.command {
        Command::Query(Query { cluster: Some(_), .. }) => return by_cluster(),
        Command::Query(Query { limits, .. }) | Command::Report(Report { limits, .. }) => {
            (cpus.min(MOST_WORKERS), Some(limits.memory))
        }
        Command::Serve(Serve { settings, .. }) => (cpus.min(MOST_WORKERS), Some(settings.memory)),
        // A file may take more memory than the rows that it gives.
        Command::Add(_) => (2, Some(ADDING)),
        // The other commands only wait for programs and the store.
        _ => (2, None),
    };
    if let Some(Err(error)) = memory.map(|memory| bound(memory, workers)) {
        return failed(NAME, &error, FAILED);
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .worker_threads(workers)
        .max_blocking_threads(BLOCKING)
        .thread_stack_size(engine::STACK);
    let runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(NAME, &error.into(), FAILED),
    };
    let code = match runtime.block_on(run(arguments.command)) {
        Ok(code) => ExitCode::from(code),
        Err(error) if output::is_closed_pipe(&error) => ExitCode::from(DONE),
        Err(error) => {
            let usage = error.downcast_ref::<engine::Error>().is_some_and(engine::Error::is_usage);
            let usage = usage || error.is::<serve::Wrong>();
            failed(NAME, &error, if usage { USAGE } else { FAILED })
        }
    };
    // Do not wait for queries that were given up but still compute.
    runtime.shutdown_background();
    code
}

/// Replaces this process by the client of a cluster, whose command `query` has the same options.
fn by_cluster() -> ExitCode {
    use std::os::unix::process::CommandExt;
    const CLUSTER: &str = "exitless-fleet-cluster";
    let beside =
        || std::env::current_exe().ok().map(|own| own.with_file_name(CLUSTER)).filter(|path| path.is_file());
    let program = beside().unwrap_or_else(|| PathBuf::from(CLUSTER));
    let error = std::process::Command::new(&program).args(std::env::args_os().skip(1)).exec();
    let error = anyhow::Error::new(error).context(format!(
        "{} cannot be run; cargo build --release -p {CLUSTER} builds it",
        program.display()
    ));
    failed(NAME, &error, FAILED)
}

/// Limits the data of the process, including stacks of threads: values that SQL functions make are not
/// counted against the memory of operators.
fn bound(memory: u32, workers: usize) -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const BESIDE: u64 = 512 << 20;
    let stacks = ((workers + BLOCKING) * engine::STACK) as u64;
    let most = (u64::from(memory) << 20) * 2 + BESIDE + stacks;
    let maximum = getrlimit(Resource::Data).maximum;
    if let Some(maximum) = maximum.filter(|maximum| *maximum < stacks + BESIDE) {
        let (maximum, wanted) = (maximum >> 20, (stacks + BESIDE) >> 20);
        anyhow::bail!(
            "This process may have {maximum} MiB of data (ulimit -d), and needs {wanted} MiB; raise the limit"
        );
    }
    let bound = Rlimit { current: Some(maximum.map_or(most, |maximum| most.min(maximum))), maximum };
    setrlimit(Resource::Data, bound)
        .with_context(|| format!("Limiting the data to {} MiB failed", most >> 20))
}

async fn run(command: Command) -> anyhow::Result<u8> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let code = match command {
        Command::Add(arguments) => add(arguments).await?,
        Command::Query(arguments) => {
            let bounds = arguments.limits.bounds(arguments.rows as usize);
            let store = Store::open(&arguments.limits.at.store, false)?;
            let answer = engine::answer(&store, &bounds, &arguments.sql).await?;
            let form = if arguments.json { Form::Json } else { arguments.output };
            output::answer(&mut out, &answer, form, width())?;
            out.flush()?;
            tell(NAME, &answer.left_out);
            if answer.is_cut {
                eprintln!(
                    "Only the first {} are shown; --rows shows more",
                    counted(u64::from(arguments.rows), "row")
                );
            }
            if answer.is_cut || !answer.left_out.is_empty() { LEFT_OUT } else { DONE }
        }
        Command::Report(arguments) => {
            let bounds = arguments.limits.bounds(report::MOST_ROWS);
            let store = Store::open(&arguments.limits.at.store, false)?;
            let report = report::ask(&store, &bounds, arguments.baseline.as_deref()).await?;
            if arguments.json {
                output::json(&mut out, &report)?;
            } else {
                out.write_all(report.text(width()).as_bytes())?;
            }
            out.flush()?;
            tell(NAME, &report.left_out);
            if report.left_out.is_empty() && report.cut.is_empty() { DONE } else { LEFT_OUT }
        }
        Command::Serve(arguments) => {
            // --live takes precedence over a store that only the environment names.
            let store = match arguments.store.filter(|_| !arguments.live) {
                Some(store) => Store::open(&store, false)?,
                None => Store::in_memory(),
            };
            let server = serve::Server::bind(store.clone(), &arguments.settings).await?;
            writeln!(out, "http://{}/", server.address()?)?;
            out.flush()?;
            let collect = async {
                match arguments.live {
                    true => live::collect(&store, &arguments.collecting).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                () = server.run() => {}
                collected = collect => collected?,
                ended = agent::ended() => ended?,
            }
            DONE
        }
        Command::Compact(arguments) => {
            let store = Store::open(&arguments.at.store, false)?;
            let until = arguments.until.unwrap_or_else(|| days_ago(1));
            let done = keep::compact(&store, &until).await?;
            let written = if arguments.json {
                output::json(&mut out, &done)
            } else {
                let joined = counted(done.partitions as u64, "day");
                let deleted = counted(done.deleted as u64, "file");
                writeln!(out, "Joined {joined} of hosts; deleted {deleted}").map_err(Into::into)
            };
            output::summary(written.and_then(|()| Ok(out.flush()?)))?;
            tell(NAME, &done.left_out);
            if done.left_out.is_empty() { DONE } else { LEFT_OUT }
        }
        Command::Retain(arguments) => {
            let store = Store::open(&arguments.at.store, false)?;
            let old = keep::retain(&store, &days_ago(arguments.days - 1), arguments.apply).await?;
            if arguments.json {
                output::json(&mut out, &old)?;
            } else {
                for (day, files) in &old.days {
                    writeln!(out, "{} {files:>8}", printable(day))?;
                }
                let (files, from) = (counted(old.files as u64, "file"), &old.keep_from);
                let done = if old.deleted { "Deleted" } else { "Would delete (--apply does)" };
                writeln!(out, "{done} {files} of {} bytes from before {from}", old.bytes)?;
            }
            out.flush()?;
            DONE
        }
        Command::Agent(arguments) => {
            let store = Store::open(&arguments.at.store, true)?;
            agent::run(&store, &arguments.agent).await?;
            DONE
        }
    };
    Ok(code)
}

async fn add(arguments: Add) -> anyhow::Result<u8> {
    let store = Store::open(&arguments.at.store, true)?;
    let mut all = write::Written::default();
    let mut refused = 0;
    for path in &arguments.files {
        let read = read(path).and_then(|(bytes, changed)| {
            let time = arguments.time.unwrap_or(changed);
            let origin = Origin { file: path.display().to_string(), host: arguments.host.clone(), time };
            Ok(document::rows(&bytes, &origin)?)
        });
        match read {
            Ok(rows) => {
                let written = write::rows(&store, &rows).await?;
                all.rows += written.rows;
                all.files += written.files;
                all.known += written.known;
            }
            Err(error) => {
                refused += 1;
                failed(NAME, &error, LEFT_OUT);
            }
        }
    }
    let rows = counted(all.rows as u64, "row");
    let known = if all.known > 0 { format!("; {} had been added before", all.known) } else { String::new() };
    let written = writeln!(std::io::stdout(), "Added {rows} in {}{known}", counted(all.files as u64, "file"));
    output::summary(written.map_err(Into::into))?;
    Ok(if refused > 0 { LEFT_OUT } else { DONE })
}

/// The contents of a file, up to one byte more than is accepted, and the time of its last change.
fn read(path: &Path) -> anyhow::Result<(Vec<u8>, DateTime<Utc>)> {
    let file = std::fs::File::open(path).with_context(|| format!("Opening {} failed", path.display()))?;
    let changed = file.metadata()?.modified()?.into();
    let mut bytes = Vec::new();
    let read = file.take(LARGEST_FILE + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("Reading {} failed", path.display()))?;
    Ok((bytes, changed))
}

fn days_ago(days: u32) -> String {
    let today: NaiveDate = Utc::now().date_naive();
    (today - chrono::Days::new(u64::from(days))).format("%Y-%m-%d").to_string()
}

/// The width of the terminal, at least [`output::WIDTH`], which is also the width without a terminal.
fn width() -> u16 {
    let terminal = std::io::stdout().is_terminal().then(|| comfy_table::Table::new().width()).flatten();
    terminal.map_or(output::WIDTH, |width| width.max(output::WIDTH))
}
