//! SQL queries over a data set with DataFusion: read-only, and with limits on memory, time and rows.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use datafusion::catalog::MemorySchemaProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use url::Url;

use crate::output;
use crate::read::{self, Ends, LeftOut};
use crate::scan::Scan;
use crate::schema::{TABLES, Table};
use crate::store::{self, Days, File, Store};
use crate::views::VIEWS;

/// The longest query, in bytes.
pub const LONGEST_QUERY: usize = 16 << 10;
/// The most tokens of a query. They limit the depth of expressions, which the engine processes recursively.
const MOST_TOKENS: usize = 4_000;
/// The stack size of each thread that works on a query, in bytes: enough for the deepest expression.
pub const STACK: usize = 32 << 20;
/// The URL of the store in the engine. No other store is registered, not even local files.
pub(crate) const STORE: &str = "fleet://store";

/// The reason why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query is too long.
    #[error("the query has {0} bytes; at most {LONGEST_QUERY} are taken")]
    Long(usize),
    /// The query has too many tokens.
    #[error("the query has {0} words and signs; at most {MOST_TOKENS} are taken")]
    Deep(usize),
    /// The query is wrong, or not allowed.
    #[error("the query cannot be answered: {0}")]
    Query(String),
    /// The query failed, for lack of memory, or because of the store or a damaged file.
    #[error("the query failed: {0}")]
    Failed(String),
    /// The query exceeded its time limit.
    #[error("the query took longer than {} s; ask for fewer days (--since), or give --time", .0.as_secs_f64())]
    Time(Duration),
    /// Files cannot be read, and the bounds are strict.
    #[error("{} cannot be read, and --strict was given", exits::counted(*.0 as u64, "file"))]
    Strict(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Error {
    /// Tests whether the query is wrong, so that it cannot succeed at another time either.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Long(_) | Self::Deep(_) | Self::Query(_))
    }

    /// Tests whether a file was compacted or deleted after it was listed, so that another try can succeed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Failed(why) if why.contains("not found") && why.contains(".parquet"))
    }
}

/// The limits of a query.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// The most bytes of memory that operators may hold.
    pub memory: usize,
    /// The time limit, until the last row.
    pub time: Duration,
    /// The most rows of the answer.
    pub rows: usize,
    /// The days whose files are read.
    pub days: Days,
    /// Makes a file that cannot be read an error.
    pub strict: bool,
}

/// The answer to a query.
#[derive(Debug)]
pub struct Answer {
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// The schema of the rows.
    pub schema: arrow::datatypes::SchemaRef,
    /// The answer has more rows than the limit allows.
    pub is_cut: bool,
    /// Files that could not be read.
    pub left_out: Vec<LeftOut>,
}

/// The engine with a data set.
pub struct Engine {
    context: SessionContext,
    bounds: Bounds,
    /// The digest of the names and sizes of the files that are read, and of the files that could not be read.
    pub digest: u64,
    /// Files that could not be read.
    pub left_out: Vec<LeftOut>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Engine").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// Answers a query. Starts over if compaction removes files meanwhile.
///
/// # Errors
/// See [`Error`].
pub async fn answer(store: &Store, bounds: &Bounds, sql: &str) -> Result<Answer, Error> {
    with(store, bounds, async |engine| engine.answer(sql).await).await
}

/// Calls `ask` with an engine, and again with a new one if compaction removed files meanwhile.
///
/// # Errors
/// See [`Error`].
pub async fn with<T>(
    store: &Store,
    bounds: &Bounds,
    ask: impl AsyncFn(&Engine) -> Result<T, Error>,
) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match ask(&Engine::open(store, bounds.clone()).await?).await {
            Err(error) if error.is_gone() && began.elapsed() < bounds.time => {}
            answered => return answered,
        }
    }
}

impl Engine {
    /// Lists the files, and creates tables and views of them.
    ///
    /// # Errors
    /// The store cannot be listed in time, or the bounds are strict and a file cannot be read.
    pub async fn open(store: &Store, bounds: Bounds) -> Result<Self, Error> {
        Self::open_again(store, bounds, &Ends::default()).await
    }

    /// Like [`Engine::open`], for a store of which some files have been read before.
    ///
    /// # Errors
    /// Those of [`Engine::open`].
    pub async fn open_again(store: &Store, bounds: Bounds, known: &Ends) -> Result<Self, Error> {
        let state = session(store, &bounds).map_err(wrong)?.build();
        Self::look_in(SessionContext::new_with_state(state), store, bounds, known).await
    }

    /// Creates the tables and views in `context`, which is from [`session`].
    ///
    /// # Errors
    /// Those of [`Engine::open`].
    pub async fn look_in(
        context: SessionContext,
        store: &Store,
        bounds: Bounds,
        known: &Ends,
    ) -> Result<Self, Error> {
        let time = bounds.time;
        tokio::select! {
            engine = Self::look(context, store, bounds, known) => engine,
            () = passed(time) => Err(Error::Time(time)),
        }
    }

    async fn look(
        context: SessionContext,
        store: &Store,
        bounds: Bounds,
        known: &Ends,
    ) -> Result<Self, Error> {
        let catalog = context.catalog("fleet");
        let catalog = catalog.ok_or_else(|| Error::Failed("there is no catalog".to_owned()))?;
        catalog.register_schema("raw", Arc::new(MemorySchemaProvider::new())).map_err(wrong)?;
        let mut left_out = Vec::new();
        let mut digest = DefaultHasher::new();
        for table in TABLES {
            let files = read::files(store, table, &bounds.days, known).await?;
            for file in &files.good {
                (file.meta.location.as_ref(), file.meta.size).hash(&mut digest);
            }
            files.left_out.hash(&mut digest);
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
        Ok(Self { context, bounds, digest: digest.finish(), left_out })
    }

    /// Answers a query.
    ///
    /// # Errors
    /// The query is not allowed, wrong, or exceeds a limit.
    pub async fn answer(&self, sql: &str) -> Result<Answer, Error> {
        self.answer_of(sql, &[]).await
    }

    /// Answers a query in which `$1`, `$2` and so on stand for these texts.
    ///
    /// # Errors
    /// Those of [`Engine::answer`].
    pub async fn answer_of(&self, sql: &str, texts: &[&str]) -> Result<Answer, Error> {
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
        let texts: Vec<ScalarValue> = texts.iter().copied().map(ScalarValue::from).collect();
        // In a task of its own: planning does not yield, but its time counts too. Dropping it ends the query, after
        // its time as well as when nobody waits for the answer any more.
        let task = SpawnedTask::spawn(async move { run(&context, &sql, texts, rows).await });
        let answered = tokio::select! {
            answered = task => answered,
            () = passed(self.bounds.time) => return Err(Error::Time(self.bounds.time)),
        };
        let (batches, schema, is_cut) = match answered {
            Ok(answered) => answered.map_err(wrong)?,
            Err(panic) => return Err(Error::Failed(panic.to_string())),
        };
        Ok(Answer { batches, schema, is_cut, left_out: self.left_out.clone() })
    }
}

impl Engine {
    /// The rows of one of this program's own queries, and whether there are more.
    ///
    /// # Errors
    /// Those of [`Engine::answer`], and rows that do not have the form of `T`.
    pub async fn rows<T: DeserializeOwned>(
        &self,
        sql: &str,
        texts: &[&str],
    ) -> Result<(Vec<T>, bool), Error> {
        let answer = self.answer_of(sql, texts).await?;
        let wrong = |why: String| Error::Query(format!("the rows of {sql} cannot be read: {why}"));
        let json = output::rows(&answer.batches).map_err(|error| wrong(format!("{error:#}")))?;
        let rows = serde_json::from_str(json.get()).map_err(|error| wrong(error.to_string()))?;
        Ok((rows, answer.is_cut))
    }
}

/// Waits for this long. Uses a thread, because the runtime's own timers stop while the engine occupies all
/// its threads.
async fn passed(time: Duration) {
    let (end, passed) = tokio::sync::oneshot::channel::<()>();
    let (_waiting, gone) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        // Dropping the future closes this channel, which ends the thread early.
        let _passed_or_gone = gone.recv_timeout(time);
        drop(end);
    });
    // Always an error, because the sender is dropped without sending.
    let _ended = passed.await;
}

type Rows = (Vec<RecordBatch>, arrow::datatypes::SchemaRef, bool);

async fn run(
    context: &SessionContext,
    sql: &str,
    texts: Vec<ScalarValue>,
    most: usize,
) -> Result<Rows, DataFusionError> {
    let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let mut rows = context.sql_with_options(sql, options).await?;
    if !texts.is_empty() {
        rows = rows.with_param_values(texts)?;
    }
    let mut stream = rows.execute_stream().await?;
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

/// A registry with this store only.
///
/// # Errors
/// The engine reports an error.
pub fn registry(store: &Store) -> Result<Arc<dyn ObjectStoreRegistry>, DataFusionError> {
    let registry = DefaultObjectStoreRegistry::new();
    registry.deregister_store(&url("file:///")?)?;
    registry.register_store(&url(STORE)?, store.objects());
    Ok(Arc::new(registry))
}

/// A session for queries over a store, still without tables.
///
/// # Errors
/// The engine reports an error.
pub fn session(store: &Store, bounds: &Bounds) -> Result<SessionStateBuilder, DataFusionError> {
    let runtime = RuntimeEnvBuilder::new()
        .with_object_store_registry(registry(store)?)
        .with_memory_pool(Arc::new(FairSpillPool::new(bounds.memory)))
        // Without temporary files, exceeding the memory limit is an error.
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .build_arc()?;
    let mut options = ConfigOptions::new();
    options.execution.parquet.schema_force_view_types = false;
    let config = SessionConfig::from(options)
        .with_information_schema(true)
        .with_default_catalog_and_schema("fleet", "public");
    Ok(SessionStateBuilder::new_with_default_features().with_config(config).with_runtime_env(runtime))
}

fn url(text: &str) -> Result<Url, DataFusionError> {
    Url::parse(text).map_err(|error| DataFusionError::External(error.into()))
}

fn register(
    context: &SessionContext,
    table: &'static Table,
    files: Vec<File>,
) -> Result<(), DataFusionError> {
    let files = files.into_iter().map(|file| file.meta).collect();
    let scan = Scan::new(table, files)?;
    context.register_table(format!("raw.{}", table.name), Arc::new(scan))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};

    use super::*;

    fn bounds(time: Duration) -> Bounds {
        Bounds { memory: 512 << 20, time, rows: 10, days: Days::default(), strict: false }
    }

    #[tokio::test]
    async fn listing_is_within_the_limit_of_time_in_a_session_of_others_too() {
        let hour = Duration::from_secs(3600);
        let slow = ThrottleConfig { wait_list_with_delimiter_per_call: hour, ..ThrottleConfig::default() };
        let store = Store::of(Arc::new(ThrottledStore::new(InMemory::new(), slow)));
        let bounds = bounds(Duration::from_millis(1));
        let context = SessionContext::new_with_state(session(&store, &bounds).unwrap().build());
        let late = Engine::look_in(context, &store, bounds, &Ends::default()).await;
        assert!(matches!(late, Err(Error::Time(_))), "{late:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_whose_answer_nobody_waits_for_ends() {
        let time = Duration::from_secs(600);
        let engine = Engine::open(&Store::in_memory(), bounds(time)).await.unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let mut asked =
            Box::pin(engine.answer("SELECT sum(value) FROM generate_series(1, 1000000000000000)"));
        // Without the runtime's timers, which stop while the engine occupies its threads.
        let answered = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(answered.is_pending() && tasks() > 0);
        std::thread::sleep(Duration::from_millis(50));
        drop(asked);
        let began = Instant::now();
        while tasks() > 0 {
            assert!(began.elapsed() < time / 10, "it runs on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
