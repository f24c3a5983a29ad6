//! Live data of this host only: collected at an interval into a store in memory, which keeps the last hour.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use chrono::Utc;
use clap::Args;

use crate::agent::{self, Collector};
use crate::schema::TABLES;
use crate::spool::Tick;
use crate::store::{self, Days, Store};
use crate::write;

/// The time for which data are kept.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// The time from one examination by doctor to the next.
const EXAMINE: Duration = Duration::from_secs(10 * 60);

/// The settings of collecting.
#[derive(Debug, Clone, Args)]
pub struct Collecting {
    /// With --live, the time from one collection to the next.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = agent::duration, requires = "live")]
    pub interval: Duration,
    /// With --live, how long VMs are watched in each, and then exits counted: together twice this time.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = agent::duration, requires = "live")]
    pub watch: Duration,
    /// With --live, the exitless program [default: the one beside this, else of the PATH]
    #[arg(long, value_name = "PROGRAM", requires = "live")]
    pub exitless: Option<PathBuf>,
}

/// Collects until the future is dropped.
///
/// # Errors
/// The store failed.
pub async fn collect(store: &Store, settings: &Collecting) -> anyhow::Result<()> {
    let collector = Collector::new(settings.exitless.as_deref(), None, settings.watch);
    if let Some(warning) = agent::too_long(settings.watch, settings.interval) {
        agent::say(&warning);
    }
    let mut examined: Option<Instant> = None;
    let mut ticks = tokio::time::interval(settings.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let examine = examined.is_none_or(|last| last.elapsed() >= EXAMINE);
        if examine {
            examined = Some(Instant::now());
        }
        let documents = collector.collect(examine).await;
        let tick = Tick::new(collector.host.clone(), Utc::now(), documents, Vec::new());
        write::rows(store, &tick.rows()?).await?;
        forget(store, Utc::now().timestamp() - KEPT.as_secs() as i64).await?;
    }
}

/// Deletes the files from before a time. Their names begin with a time in seconds.
async fn forget(store: &Store, before: i64) -> Result<(), store::Error> {
    for table in TABLES {
        for file in store.files(table.name, &Days::default()).await? {
            let seconds = file.name.split('-').next().and_then(|seconds| seconds.parse::<i64>().ok());
            if seconds.is_some_and(|seconds| seconds < before) {
                store.delete(&file.meta.location).await?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_hour_is_kept() {
        let store = Store::in_memory();
        for seconds in [100, 200, 300] {
            let path = store::path("hosts", "2026-03-01", "a", &format!("{seconds}-de8b94896808582e"));
            assert!(store.create(&path, vec![1]).await.unwrap());
        }
        forget(&store, 200).await.unwrap();
        let left = store.files("hosts", &Days::default()).await.unwrap();
        let names: Vec<_> = left.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["200-de8b94896808582e.parquet", "300-de8b94896808582e.parquet"]);
    }
}
