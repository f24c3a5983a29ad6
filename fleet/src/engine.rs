//! SQL over a data set, by DataFusion: read-only, and within bounds of memory, time and rows.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use datafusion::catalog::MemorySchemaProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry, ObjectStoreUrl};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::StreamExt;
use url::Url;

use crate::read::{self, LeftOut};
use crate::scan::Scan;
use crate::schema::{TABLES, Table};
use crate::store::{self, Days, File, Store};
use crate::views::VIEWS;

/// The longest query, in bytes.
pub const LONGEST_QUERY: usize = 16 << 10;
/// The most words and signs of a query. The engine goes down into expressions, which cannot be deeper than this.
const MOST_TOKENS: usize = 4_000;
/// The stack of each thread that works on a query, in bytes: enough for the deepest expression.
pub const STACK: usize = 32 << 20;
/// Where the engine finds the store. It has no other place: not even local files.
const STORE: &str = "fleet://store";
/// A query is tried again so often if compaction took its files away.
const TRIES: usize = 3;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query is too long.
    #[error("the query has {0} bytes; at most {LONGEST_QUERY} are taken")]
    Long(usize),
    /// The query has too many parts.
    #[error("the query has {0} words and signs; at most {MOST_TOKENS} are taken")]
    Deep(usize),
    /// What the query asks for is refused or wrong.
    #[error("the query cannot be answered: {0}")]
    Query(String),
    /// It could not be answered: memory, the store, a damaged file.
    #[error("the query failed: {0}")]
    Failed(String),
    /// Time is up.
    #[error("the query took longer than {} s; ask for fewer days (--since), or give --time", .0.as_secs_f64())]
    Time(Duration),
    /// Some files cannot be read, and that was to be an error.
    #[error("{} cannot be read, and --strict was given", exits::counted(*.0 as u64, "file"))]
    Strict(usize),
    /// The store's.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Error {
    /// Whether another command line or query may have an answer.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Long(_) | Self::Deep(_) | Self::Query(_))
    }
}

/// Bounds of a query.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Bytes that operators may hold at once.
    pub memory: usize,
    /// Time until the last row.
    pub time: Duration,
    /// Rows of the answer.
    pub rows: usize,
    /// The days whose files are read.
    pub days: Days,
    /// Whether a file that cannot be read is an error.
    pub strict: bool,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its rows.
    pub batches: Vec<RecordBatch>,
    /// Their schema.
    pub schema: arrow::datatypes::SchemaRef,
    /// Whether there are more rows than the bound allows.
    pub is_cut: bool,
    /// Files that could not be read.
    pub left_out: Vec<LeftOut>,
}

/// The engine on an open data set.
pub struct Engine {
    context: SessionContext,
    bounds: Bounds,
    /// Files that could not be read.
    pub left_out: Vec<LeftOut>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Engine").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// Answers a query. If files are compacted away meanwhile, the data set is looked at anew.
///
/// # Errors
/// See [`Error`].
pub async fn answer(store: &Store, bounds: &Bounds, sql: &str) -> Result<Answer, Error> {
    for _ in 1..TRIES {
        match Engine::open(store, bounds.clone()).await?.answer(sql).await {
            Err(Error::Failed(why)) if why.contains("not found") && why.contains(".parquet") => {}
            answered => return answered,
        }
    }
    Engine::open(store, bounds.clone()).await?.answer(sql).await
}

impl Engine {
    /// Looks at the files, and makes tables and views of them.
    ///
    /// # Errors
    /// The store cannot be listed in time, or a file cannot be read where that was to be an error.
    pub async fn open(store: &Store, bounds: Bounds) -> Result<Self, Error> {
        let time = bounds.time;
        tokio::select! {
            engine = Self::look(store, bounds) => engine,
            () = passed(time) => Err(Error::Time(time)),
        }
    }

    async fn look(store: &Store, bounds: Bounds) -> Result<Self, Error> {
        let context = context(store, &bounds).map_err(wrong)?;
        let mut left_out = Vec::new();
        for table in TABLES {
            let files = read::files(store, table, &bounds.days).await?;
            left_out.extend(files.left_out);
            register(&context, table, files.good).map_err(wrong)?;
        }
        if bounds.strict && !left_out.is_empty() {
            for one in &left_out {
                eprintln!("exitless-fleet: {}: {}", exits::printable(&one.file), exits::printable(&one.why));
            }
            return Err(Error::Strict(left_out.len()));
        }
        for (name, sql) in VIEWS {
            context.sql(&format!("CREATE VIEW {name} AS {sql}")).await.map_err(wrong)?;
        }
        Ok(Self { context, bounds, left_out })
    }

    /// Answers one query.
    ///
    /// # Errors
    /// It is refused, wrong, or takes more than it may.
    pub async fn answer(&self, sql: &str) -> Result<Answer, Error> {
        if sql.len() > LONGEST_QUERY {
            return Err(Error::Long(sql.len()));
        }
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
        let tokens = tokens.map_err(|error| Error::Query(error.to_string()))?;
        let number = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).count();
        if number > MOST_TOKENS {
            return Err(Error::Deep(number));
        }
        let (context, sql, rows) = (self.context.clone(), sql.to_owned(), self.bounds.rows);
        // A task of its own: planning does not yield, and time runs meanwhile.
        let task = tokio::spawn(async move { run(&context, &sql, rows).await });
        let abort = task.abort_handle();
        let answered = tokio::select! {
            answered = task => answered,
            () = passed(self.bounds.time) => {
                abort.abort();
                return Err(Error::Time(self.bounds.time));
            }
        };
        let (batches, schema, is_cut) = match answered {
            Ok(answered) => answered.map_err(wrong)?,
            Err(panic) => return Err(Error::Failed(panic.to_string())),
        };
        Ok(Answer { batches, schema, is_cut, left_out: self.left_out.clone() })
    }
}

/// Waits so long, also while the engine computes on all threads of the runtime: its own timers need one that does not.
async fn passed(time: Duration) {
    let (end, passed) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        drop(end);
    });
    // It is dropped, and says nothing.
    let _ended = passed.await;
}

type Rows = (Vec<RecordBatch>, arrow::datatypes::SchemaRef, bool);

async fn run(context: &SessionContext, sql: &str, most: usize) -> Result<Rows, DataFusionError> {
    let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let mut stream = context.sql_with_options(sql, options).await?.execute_stream().await?;
    let schema = stream.schema();
    let (mut batches, mut rows) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if rows + batch.num_rows() > most {
            batches.push(batch.slice(0, most - rows));
            return Ok((batches, schema, true));
        }
        rows += batch.num_rows();
        batches.push(batch);
    }
    Ok((batches, schema, false))
}

fn wrong(error: DataFusionError) -> Error {
    let failed = match error.find_root() {
        DataFusionError::ArrowError(error, _) => {
            matches!(
                **error,
                ArrowError::ParquetError(_) | ArrowError::IoError(..) | ArrowError::ExternalError(_)
            )
        }
        DataFusionError::IoError(_)
        | DataFusionError::ObjectStore(_)
        | DataFusionError::ParquetError(_)
        | DataFusionError::ResourcesExhausted(_) => true,
        _ => false,
    };
    let why = error.strip_backtrace();
    if failed { Error::Failed(why) } else { Error::Query(why) }
}

fn context(store: &Store, bounds: &Bounds) -> Result<SessionContext, DataFusionError> {
    let registry = DefaultObjectStoreRegistry::new();
    registry.deregister_store(&url("file:///")?)?;
    registry.register_store(&url(STORE)?, store.objects());
    let runtime = RuntimeEnvBuilder::new()
        .with_object_store_registry(Arc::new(registry))
        .with_memory_pool(Arc::new(FairSpillPool::new(bounds.memory)))
        // What does not fit is an error, not a file.
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .build_arc()?;
    let mut options = ConfigOptions::new();
    options.execution.parquet.schema_force_view_types = false;
    let config = SessionConfig::from(options)
        .with_information_schema(true)
        .with_default_catalog_and_schema("fleet", "public");
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .build();
    let context = SessionContext::new_with_state(state);
    let catalog =
        context.catalog("fleet").ok_or_else(|| DataFusionError::Internal("no catalog".to_owned()))?;
    catalog.register_schema("raw", Arc::new(MemorySchemaProvider::new()))?;
    Ok(context)
}

fn url(text: &str) -> Result<Url, DataFusionError> {
    Url::parse(text).map_err(|error| DataFusionError::External(error.into()))
}

fn register(context: &SessionContext, table: &Table, files: Vec<File>) -> Result<(), DataFusionError> {
    let files = files.into_iter().map(|file| file.meta).collect();
    let scan = Scan { store: ObjectStoreUrl::parse(STORE)?, schema: table.schema(), files };
    context.register_table(format!("raw.{}", table.name), Arc::new(scan))?;
    Ok(())
}
