//! Benchmark of our own recordings: the time to write and to read an exit, and its size. Repeats the exits of a test
//! fixture, or of a recording whose path is given, with later times. A second path keeps the written file.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use traces::exitless::{Header, Summary, Writer};
use traces::{AccessRecord, ExitRecord, Options, Sink, Source};

/// The minimum number of exits to write.
const EXITS: usize = 4_000_000;
const RUNS: usize = 3;
/// Nanoseconds between two copies.
const PAUSE: u64 = 1_000_000;

/// All exits of a recording.
#[derive(Default)]
struct Kept {
    exits: Vec<ExitRecord>,
    accesses: Vec<Vec<AccessRecord>>,
}

impl Sink for Kept {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        self.exits.push(*exit);
        self.accesses.push(accesses.to_vec());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo test --benches` runs this program too, and test runners ask it for its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let mut paths = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/perf");
    let source = paths.next().unwrap_or_else(|| fixtures.join("small.perf.data.zst"));
    let keep = paths.next();
    let mut kept = Kept::default();
    traces::read(&Source::from(source.as_path()), &Options::default(), &mut kept)?;
    println!("{}: {} exits", source.display(), kept.exits.len());
    for has_rip in [true, false] {
        if !has_rip {
            kept.exits.iter_mut().for_each(|exit| exit.guest_rip = 0);
        }
        let mut file = tempfile::tempfile()?;
        let (mut written, mut read) = (f64::INFINITY, f64::INFINITY);
        let (mut exits, mut bytes) = (0, 0);
        for _ in 0..RUNS {
            file.set_len(0)?;
            file.rewind()?;
            let begin = on_cpu()?;
            exits = write_copies(&kept, &mut file)?;
            written = written.min(on_cpu()? - begin);
            bytes = file.metadata()?.len();
            let path = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
            let begin = on_cpu()?;
            let reading = traces::read(&Source::from(path.as_path()), &Options::default(), &mut ())?;
            read = read.min(on_cpu()? - begin);
            assert_eq!(reading.profile.total(), exits as u64);
        }
        println!(
            "{exits} exits {} guest_rip: {:.2} bytes an exit; written {:.1}, read {:.1} million exits per CPU second",
            if has_rip { "with" } else { "without" },
            bytes as f64 / exits as f64,
            exits as f64 / written / 1e6,
            exits as f64 / read / 1e6
        );
        if let Some(keep) = keep.as_ref().filter(|_| has_rip) {
            file.rewind()?;
            std::io::copy(&mut file, &mut File::create(keep)?)?;
        }
    }
    Ok(())
}

/// The CPU time of this thread in seconds: writing and reading use one thread each, and other programs may be
/// running.
fn on_cpu() -> Result<f64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns: f64 = text.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(ns / 1e9)
}

/// Writes copies, each later than the one before, and returns the number of exits.
fn write_copies(kept: &Kept, to: &mut (impl Write + Send)) -> Result<usize, traces::exitless::WriteError> {
    let times = kept.exits.iter().map(|exit| exit.time_ns);
    let length = times.clone().max().unwrap_or(0) - times.min().unwrap_or(0) + PAUSE;
    let mut writer = Writer::new(to, &Header::default())?;
    let copies = EXITS.div_ceil(kept.exits.len().max(1));
    for copy in 0..copies as u64 {
        for (exit, accesses) in kept.exits.iter().zip(&kept.accesses) {
            writer.exit_with(&ExitRecord { time_ns: exit.time_ns + copy * length, ..*exit }, accesses);
        }
    }
    writer.finish(Summary::default())?;
    Ok(copies * kept.exits.len())
}
