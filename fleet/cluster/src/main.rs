//! `exitless-fleet-cluster`: the queries of `exitless-fleet query`, answered by several machines.

mod codec;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ballista::prelude::{SessionConfigExt, SessionContextExt};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::extension::{
    ballista_aggregate_functions, ballista_scalar_functions, ballista_window_functions,
};
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::{Args, Parser, Subcommand};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use exitless_fleet::engine::{self, Bounds, Engine};
use exitless_fleet::output::{self, Form, failed, tell};
use exitless_fleet::read::Ends;
use exitless_fleet::store::{Days, Store, is_day};

use codec::Codec;

/// The largest message, in bytes. Large, because a plan names all files of its tables.
const MESSAGE: u32 = 256 << 20;

/// The program's name in messages.
const NAME: &str = env!("CARGO_BIN_NAME");

/// Answer queries over a data set by several machines.
#[derive(Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plan queries, and give their parts to executors.
    Scheduler(Scheduler),
    /// Compute parts of queries.
    Executor(Executor),
    /// Answer a query in SQL by a cluster.
    ///
    /// Exit status: 0; 1 when files could not be read or rows were left out; 2 for a wrong command line or query; 125 when
    /// there is no answer.
    Query(Query),
}

#[derive(Args)]
struct At {
    /// The data set, the same for the scheduler, the executors and queries.
    #[arg(long, value_name = "URL", env = "EXITLESS_FLEET_STORE")]
    store: String,
}

#[derive(Args)]
struct Scheduler {
    #[command(flatten)]
    at: At,
    /// Where it listens. Whoever reaches it may use the executors: there is no password.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50050")]
    listen: SocketAddr,
}

#[derive(Args)]
struct Executor {
    #[command(flatten)]
    at: At,
    /// The scheduler.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50050")]
    scheduler: SocketAddr,
    /// Where it listens for its results to be fetched; the next port is its own too.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    listen: SocketAddr,
    /// Parts of queries at the same time [default: one for each CPU]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=4096))]
    tasks: Option<u16>,
    /// The folder of intermediate results.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Memory for all its parts in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=1 << 24))]
    memory: u32,
}

#[derive(Args)]
struct Query {
    #[command(flatten)]
    at: At,
    /// The scheduler of the cluster: http://127.0.0.1:50050
    #[arg(long, value_name = "URL")]
    cluster: String,
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
    /// The most rows of the answer.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    rows: u32,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t = Form::Table, conflicts_with = "json")]
    output: Form,
    /// Print one JSON document; short for --output json.
    #[arg(long)]
    json: bool,
    /// The query.
    #[arg(value_name = "SQL")]
    sql: String,
}

fn day(text: &str) -> Result<String, String> {
    if is_day(text) { Ok(text.to_owned()) } else { Err("a day is written YYYY-MM-DD".to_owned()) }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_stack_size(engine::STACK);
    let run = builder.build().context("The runtime cannot be made").map(|runtime| {
        let code = runtime.block_on(run(arguments.command));
        runtime.shutdown_background();
        code
    });
    match run.and_then(|code| code) {
        Ok(code) => ExitCode::from(code),
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let is_usage = error.downcast_ref::<engine::Error>().is_some_and(engine::Error::is_usage);
            failed(NAME, &error, if is_usage { 2 } else { 125 })
        }
    }
}

async fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Scheduler(arguments) => scheduler(&arguments).await.map(|()| 0),
        Command::Executor(arguments) => executor(&arguments).await.map(|()| 0),
        Command::Query(arguments) => query(&arguments).await,
    }
}

/// The limits of a query in the client.
fn bounds(arguments: &Query) -> Bounds {
    Bounds {
        memory: 512 << 20,
        time: Duration::from_secs(arguments.time),
        rows: arguments.rows as usize,
        days: Days { since: arguments.since.clone(), until: arguments.until.clone() },
        strict: arguments.strict,
    }
}

async fn query(arguments: &Query) -> anyhow::Result<u8> {
    let store = Store::open(&arguments.at.store, false)?;
    let bounds = bounds(arguments);
    let mut session = engine::session(&store, &bounds)?;
    let config = session.config().take().unwrap_or_default();
    let config = config
        .with_ballista_logical_extension_codec(Arc::new(Codec::default()))
        .with_ballista_grpc_client_max_message_size(MESSAGE as usize);
    let state = session.with_config(config).build();
    let context = SessionContext::remote_with_state(&arguments.cluster, state).await?;
    let engine = Engine::look_in(context, &store, bounds, &Ends::default()).await?;
    let answer = engine.answer(&arguments.sql).await?;
    let mut out = std::io::stdout().lock();
    output::answer(
        &mut out,
        &answer,
        if arguments.json { Form::Json } else { arguments.output },
        output::WIDTH,
    )?;
    out.flush()?;
    tell(NAME, &answer.left_out);
    if answer.is_cut {
        eprintln!("Only the first {} rows are shown; --rows shows more", arguments.rows);
    }
    Ok(u8::from(answer.is_cut || !answer.left_out.is_empty()))
}

async fn scheduler(arguments: &Scheduler) -> anyhow::Result<()> {
    let store = Store::open(&arguments.at.store, false)?;
    let config = SchedulerConfig {
        bind_host: arguments.listen.ip().to_string(),
        external_host: arguments.listen.ip().to_string(),
        bind_port: arguments.listen.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        grpc_server_max_decoding_message_size: MESSAGE,
        grpc_server_max_encoding_message_size: MESSAGE,
        grpc_client_max_message_size: MESSAGE,
        override_logical_codec: Some(Arc::new(Codec::default())),
        override_session_builder: Some(Arc::new(move |config: SessionConfig| {
            let runtime =
                RuntimeEnvBuilder::new().with_object_store_registry(engine::registry(&store)?).build_arc()?;
            Ok(SessionStateBuilder::new_with_default_features()
                .with_config(config)
                .with_runtime_env(runtime)
                .with_scalar_functions(ballista_scalar_functions())
                .with_aggregate_functions(ballista_aggregate_functions())
                .with_window_functions(ballista_window_functions())
                .build())
        })),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    tokio::select! {
        ended = start_server(cluster, arguments.listen, Arc::new(config)) => Ok(ended?),
        ended = exitless_fleet::agent::ended() => Ok(ended?),
    }
}

async fn executor(arguments: &Executor) -> anyhow::Result<()> {
    let store = Store::open(&arguments.at.store, false)?;
    std::fs::create_dir_all(&arguments.work)
        .with_context(|| format!("Making the folder {} failed", arguments.work.display()))?;
    let functions = SessionStateBuilder::new_with_default_features()
        .with_scalar_functions(ballista_scalar_functions())
        .with_aggregate_functions(ballista_aggregate_functions())
        .with_window_functions(ballista_window_functions())
        .build();
    let work = arguments.work.display().to_string();
    let temporary = work.clone();
    let config = ExecutorProcessConfig {
        bind_host: arguments.listen.ip().to_string(),
        external_host: Some(arguments.listen.ip().to_string()),
        port: arguments.listen.port(),
        grpc_port: arguments.listen.port().checked_add(1).context("--listen: there is no next port")?,
        scheduler_host: arguments.scheduler.ip().to_string(),
        scheduler_port: arguments.scheduler.port(),
        scheduler_connect_timeout_seconds: 30,
        vcores: arguments.tasks.map_or(0, usize::from),
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(work),
        memory_pool_size: Some(u64::from(arguments.memory) << 20),
        // How long an executor keeps the intermediate results of a query.
        job_data_ttl_seconds: 3600,
        job_data_clean_up_interval_seconds: 600,
        grpc_max_decoding_message_size: MESSAGE,
        grpc_max_encoding_message_size: MESSAGE,
        override_logical_codec: Some(Arc::new(Codec::default())),
        // Ballista's own registry lacks the functions of lists.
        override_function_registry: Some(Arc::new(BallistaFunctionRegistry::from(&functions))),
        override_runtime_producer: Some(Arc::new(move |_: &SessionConfig| {
            RuntimeEnvBuilder::new()
                .with_object_store_registry(engine::registry(&store)?)
                .with_temp_file_path(temporary.clone())
                .build_arc()
        })),
        ..ExecutorProcessConfig::default()
    };
    start_executor_process(Arc::new(config)).await.context("The executor ended")
}
