//! Runs a query in the embedded engine of this build, for comparison with clusters, and prints the seconds of
//! each run.
//!
//! ```text
//! cargo run --release -p exitless-fleet-cluster --example ask -- STORE RUNS SQL
//! ```

use std::time::{Duration, Instant};

use exitless_fleet::engine::{self, Bounds};
use exitless_fleet::store::{Days, Store};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, runs, sql] = &arguments[..] else { anyhow::bail!("STORE RUNS SQL") };
    let store = Store::open(store, false)?;
    let bounds = Bounds {
        memory: 4 << 30,
        time: Duration::from_secs(3600),
        rows: 10_000,
        days: Days::default(),
        strict: false,
    };
    for _ in 0..runs.parse()? {
        let began = Instant::now();
        engine::answer(&store, &bounds, sql).await?;
        println!("{:.2}", began.elapsed().as_secs_f64());
    }
    Ok(())
}
