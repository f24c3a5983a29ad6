//! Benchmark of reading a recording of xentrace: a test fixture, repeated with later ticks until it is large. To
//! compare with `xenalyze --summary`, give a path to keep the file.

#[path = "xentrace/copies.rs"]
mod copies;

use std::fs;
use std::path::Path;
use std::time::Instant;

use traces::{Options, Source};

/// The number of bytes to read.
const SIZE: usize = 128 << 20;
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo test --benches` runs this program too, and test runners ask it for its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/xentrace");
    let kept = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for name in ["qemu10-a-hvm", "h-all"] {
        let one = zstd::decode_all(&fs::read(fixtures.join(format!("{name}.trace.zst")))?[..])?;
        let mut file = tempfile::NamedTempFile::new()?;
        copies::write_copies(one, SIZE, &mut file)?;
        let options = Options { tsc_hz: Some(2_100_000_000), ..Options::default() };
        let mut shortest = f64::INFINITY;
        let mut exits = 0;
        for _ in 0..RUNS {
            let begin = Instant::now();
            let reading = traces::read(&Source::from(file.path()), &options, &mut ())?;
            shortest = shortest.min(begin.elapsed().as_secs_f64());
            exits = reading.profile.total();
        }
        let megabytes = file.as_file().metadata()?.len() as f64 / 1e6;
        println!(
            "{name}: {megabytes:.0} MB and {exits} exits in {shortest:.3} s: {:.0} MB/s, {:.1} million exits/s",
            megabytes / shortest,
            exits as f64 / shortest / 1e6
        );
        if let Some(folder) = &kept {
            fs::copy(file.path(), Path::new(folder).join(format!("{name}.trace")))?;
        }
    }
    Ok(())
}
