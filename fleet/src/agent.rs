//! The agent runs exitless at an interval, keeps its output in a spool, and delivers it to the data set.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args;
use exits::printable;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::document::{self, LARGEST_FILE, Origin};
use crate::spool::{Spool, Tick};
use crate::store::Store;
use crate::write;

/// A command is ended if it runs this much longer than it should watch.
const GRACE: Duration = Duration::from_secs(60);
/// Commands are killed if they have not ended this long after SIGTERM: `stat` gives xentrace 5 s, twice.
const ENDING: Duration = Duration::from_secs(12);
/// The time limit of delivery in a tick, so that collecting goes on.
const DELIVERY: Duration = Duration::from_secs(30);
/// If the wall clock and the time since the boot differ by more than this between two ticks, the wall clock was set.
const JUMP: Duration = Duration::from_secs(5);
/// The most bytes of a command's output, from which white space is removed before it must fit into a file.
const LARGEST_OUTPUT: u64 = 2 * LARGEST_FILE;
/// The number of bytes of a command's standard error that are kept.
const COMPLAINT: u64 = 4096;

/// The agent's settings.
#[derive(Debug, Clone, Args)]
pub struct Agent {
    /// The time from one collection to the next: 60s, 5min.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub interval: Duration,
    /// How long VMs are watched in each, and then exits counted: together twice this time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub watch: Duration,
    /// The time from one examination of the host by doctor to the next.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration)]
    pub examine: Duration,
    /// The folder that keeps what is not yet delivered.
    #[arg(long, value_name = "DIR")]
    pub spool: PathBuf,
    /// The most MiB in it; then the oldest are dropped, and counted in the data set.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub spool_limit: u32,
    /// The name of this host [default: that of the kernel]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// The exitless program [default: the one beside this, else of the PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub exitless: Option<PathBuf>,
    /// Stop after so many collections.
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);
    if allowed.contains(&time) { Ok(time) } else { Err("it may be 100ms to 1d".to_owned()) }
}

/// Collects and delivers until SIGINT or SIGTERM.
///
/// # Errors
/// The spool cannot be used, or signals cannot be caught.
pub async fn run(store: &Store, settings: &Agent) -> anyhow::Result<()> {
    let opened = Spool::open(&settings.spool, u64::from(settings.spool_limit) << 20);
    let mut spool =
        opened.with_context(|| format!("Opening the spool {} failed", settings.spool.display()))?;
    let collector = Collector::new(settings.exitless.as_deref(), settings.host.clone(), settings.watch);
    if let Some(warning) = too_long(settings.watch, settings.interval) {
        say(&warning);
    }
    let work = async {
        let mut examined: Option<Instant> = None;
        let mut clock = Clock::new();
        let mut number = 0;
        let mut ticks = tokio::time::interval(settings.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let examine = examined.is_none_or(|last| last.elapsed() >= settings.examine);
            let documents = collector.collect(examine).await;
            if examine {
                examined = Some(Instant::now());
            }
            let time = clock.now();
            keep(store, &mut spool, &collector.host, time, documents).await;
            match tokio::time::timeout(DELIVERY, deliver(store, &mut spool)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => say(&format!("Delivery failed, and is tried again: {error:#}")),
                Err(_) => say("Delivery took too long, and is tried again"),
            }
            number += 1;
            if settings.count == Some(number) {
                return;
            }
        }
    };
    // Dropping the future asks the commands that it waits for to end; dropping the collector then waits for them.
    tokio::select! {
        () = work => Ok(()),
        ended = ended() => Ok(ended?),
    }
}

/// Waits for SIGINT or SIGTERM.
///
/// # Errors
/// The signals cannot be caught.
pub async fn ended() -> std::io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

pub(crate) fn say(line: &str) {
    eprintln!("exitless-fleet: {}", printable(line));
}

/// A message if collections take longer than the time from one to the next.
pub(crate) fn too_long(watch: Duration, interval: Duration) -> Option<String> {
    let takes = watch.saturating_mul(2);
    (takes > interval).then(|| {
        format!(
            "A collection takes twice --watch, {}, which is longer than --interval, {}: collections begin later",
            humantime::format_duration(takes),
            humantime::format_duration(interval)
        )
    })
}

/// The wall clock, compared with the time since the boot.
struct Clock {
    wall: DateTime<Utc>,
    steady: Duration,
}

impl Clock {
    fn new() -> Self {
        // Unlike CLOCK_MONOTONIC it goes on while the host sleeps, as the wall clock does.
        let steady = clock_gettime(ClockId::Boottime);
        Self { wall: Utc::now(), steady: Duration::try_from(steady).unwrap_or_default() }
    }

    fn now(&mut self) -> DateTime<Utc> {
        let now = Self::new();
        let went = now.wall - self.wall;
        let passed = chrono::TimeDelta::from_std(now.steady.saturating_sub(self.steady)).unwrap_or_default();
        let jump = went - passed;
        if jump.abs().to_std().is_ok_and(|jump| jump > JUMP) {
            say(&format!("The clock of this host was set by {} s", jump.num_seconds()));
        }
        *self = now;
        self.wall
    }
}

/// Puts a tick into the spool. If the disk is full, tries to deliver the tick at once, and counts it as lost
/// if that fails.
async fn keep(store: &Store, spool: &mut Spool, host: &str, time: DateTime<Utc>, documents: Vec<String>) {
    let lost = spool.tell();
    if documents.is_empty() && lost.is_empty() {
        return;
    }
    let tick = Tick::new(host.to_owned(), time, documents, lost);
    let error = match spool.keep(&tick) {
        Ok(()) => return spool.told(),
        Err(error) => error,
    };
    say(&format!("The spool cannot keep what was collected: {error}"));
    let delivered = async { anyhow::Ok(write::rows(store, &tick.rows()?).await?) };
    match tokio::time::timeout(DELIVERY, delivered).await {
        Ok(Ok(_)) => spool.told(),
        _ => {
            let bytes = tick.documents.iter().map(|text| text.len() as u64).sum();
            spool.not_told();
            spool.count(tick.time, bytes, "no-space");
        }
    }
}

/// Delivers the spooled ticks, oldest first. If a tick was delivered before a kill, its files exist in the
/// store under the same names, so delivering it again changes nothing.
async fn deliver(store: &Store, spool: &mut Spool) -> anyhow::Result<()> {
    let mut all_read = Ok(());
    for file in spool.files()? {
        let rows = match spool.read(&file) {
            Ok(tick) => tick.rows().map_err(anyhow::Error::from),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(error.into()),
            // Nothing is wrong with the tick: there may be no free file descriptor, or the disk fails.
            Err(error) => {
                let shown = file.path.display();
                all_read = Err(error).with_context(|| format!("Reading {shown} failed"));
                continue;
            }
        };
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                say(&format!("Dropped {}: {error:#}", file.path.display()));
                spool.drop_file(&file, "refused")?;
                continue;
            }
        };
        write::rows(store, &rows).await?;
        spool.delivered(&file)?;
    }
    all_read
}

/// Runs the exitless commands on this host.
pub(crate) struct Collector {
    program: PathBuf,
    /// The name of this host.
    pub(crate) host: String,
    watch: Duration,
    ending: Ending,
}

impl Collector {
    /// A collector with the given program, or else `exitless` next to our own or on PATH; `host` defaults to
    /// the kernel's name of the host.
    pub(crate) fn new(program: Option<&Path>, host: Option<String>, watch: Duration) -> Self {
        let beside = || {
            std::env::current_exe()
                .ok()
                .map(|own| own.with_file_name("exitless"))
                .filter(|path| path.is_file())
        };
        let program =
            program.map(Path::to_owned).or_else(beside).unwrap_or_else(|| PathBuf::from("exitless"));
        let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { program, host: host.unwrap_or_else(own), watch, ending: Ending::default() }
    }

    /// The outputs of the commands, validated like any other input. Reports commands that fail, and leaves
    /// them out.
    pub(crate) async fn collect(&self, examine: bool) -> Vec<String> {
        let watch = format!("{}ms", self.watch.as_millis());
        let stat = vec!["stat", "--json", "--by", "vm,reason", "--count", "1", "--interval", &watch];
        let verify = vec!["verify", "--json", "--duration", &watch];
        // Both count exits, with maps whose size grows with the number of CPUs: one after the other takes half the
        // memory. `stat` is the last, because its interval ends at the time of the tick.
        let mut groups = vec![vec![verify, stat], vec![vec!["vms", "--json"]]];
        if examine {
            groups.push(vec![vec!["doctor", "--json"]]);
        }
        let runs = groups.iter().map(|commands| async move {
            let mut outcomes = Vec::new();
            for arguments in commands {
                outcomes.push((arguments[0], self.checked(arguments).await));
            }
            outcomes
        });
        let mut documents = Vec::new();
        for (command, outcome) in futures::future::join_all(runs).await.into_iter().flatten() {
            match outcome {
                Ok(text) => documents.push(text),
                Err(error) => say(&format!("exitless {command}: {error:#}")),
            }
        }
        documents
    }

    async fn checked(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let text = output(&self.ending, &self.program, arguments, self.watch + GRACE).await?;
        let text = compact(&text).context("its output is not JSON")?;
        let origin =
            Origin { file: "its output".to_owned(), host: Some(self.host.clone()), time: Utc::now() };
        document::rows(text.as_bytes(), &origin)?;
        Ok(text)
    }
}

/// The documents of an output without white space, and VMs without their command lines, which no row has: on a host
/// with many VMs these are most of the bytes.
fn compact(output: &str) -> serde_json::Result<String> {
    let mut compact = String::new();
    for document in serde_json::Deserializer::from_str(output).into_iter::<Value>() {
        let mut document = document?;
        for vm in document.get_mut("vms").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(vm) = vm.as_object_mut() {
                vm.remove("arguments");
            }
        }
        compact.push_str(&document.to_string());
    }
    Ok(compact)
}

/// Commands that were asked to end, and for which nobody waits any more. Dropping it waits for all of them together, and
/// kills those that do not end.
#[derive(Default)]
struct Ending(Mutex<Vec<Child>>);

impl Ending {
    fn add(&self, child: Child) {
        let mut children = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(is_running);
        children.push(child);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let children = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        // This blocks the thread, but only at the end of the agent. What has not ended after this is killed when the child
        // is dropped.
        let begun = Instant::now();
        children.retain_mut(is_running);
        while !children.is_empty() && begun.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(10));
            children.retain_mut(is_running);
        }
    }
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

fn ask_to_end(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    if let Some(pid) = pid {
        // If it has already ended, waiting for it says so.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// A command that runs. Dropping it ends it by SIGTERM, so that it undoes what it did to the host, such as switching on Xen's
/// tracing.
struct Running<'a> {
    /// Taken when this is dropped.
    child: Option<Child>,
    ending: &'a Ending,
}

impl Running<'_> {
    async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        match &mut self.child {
            Some(child) => child.wait().await,
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Asks it to end, and kills it if it does not.
    async fn end(&mut self) {
        self.child.iter().for_each(ask_to_end);
        if tokio::time::timeout(ENDING, self.wait()).await.is_err() {
            let _ = self.child.as_mut().map(Child::start_kill);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take_if(is_running) {
            ask_to_end(&child);
            self.ending.add(child);
        }
    }
}

/// The standard output of a program, limited in time and size.
async fn output(
    ending: &Ending,
    program: &Path,
    arguments: &[&str],
    time: Duration,
) -> anyhow::Result<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} cannot be run", program.display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut running = Running { child: Some(child), ending };
    let all = async {
        let (text, complaint) = tokio::join!(bounded(stdout, LARGEST_OUTPUT + 1), bounded(stderr, COMPLAINT));
        let text = text?;
        anyhow::ensure!(text.len() as u64 <= LARGEST_OUTPUT, "it printed more than {LARGEST_OUTPUT} bytes");
        let status = running.wait().await?;
        anyhow::ensure!(
            !text.is_empty(),
            "{status}: {}",
            String::from_utf8_lossy(&complaint.unwrap_or_default()).trim()
        );
        Ok(String::from_utf8(text)?)
    };
    let done = tokio::time::timeout(time, all).await;
    if !matches!(done, Ok(Ok(_))) {
        running.end().await;
    }
    done.unwrap_or_else(|_| Err(anyhow::anyhow!("it took more than {} s and was ended", time.as_secs())))
}

async fn bounded(from: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let mut from = from.take(most);
        from.read_to_end(&mut bytes).await?;
        // Drain the rest, so that the program does not block on a full pipe.
        tokio::io::copy(&mut from.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Days;

    const LONG: Duration = Duration::from_secs(60);

    /// A script that does not end before SIGTERM, when it makes the file `ended`. It makes `begun` when it is ready for that.
    fn endless(folder: &Path) -> String {
        let folder = folder.display();
        format!("trap 'touch {folder}/ended; exit' TERM; touch {folder}/begun; while :; do sleep 0.01; done")
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_can_clean_up() {
        let folder = tempfile::tempdir().unwrap();
        // On a busy machine a short limit may pass before the script has begun.
        for limit in [100, 1_000, 10_000].map(Duration::from_millis) {
            let (ending, script) = (Ending::default(), endless(folder.path()));
            let error = output(&ending, Path::new("sh"), &["-c", &script], limit).await.unwrap_err();
            assert!(error.to_string().ends_with("s and was ended"), "{error}");
            if folder.path().join("begun").exists() {
                break;
            }
        }
        assert!(folder.path().join("ended").exists());
    }

    #[tokio::test]
    async fn commands_can_clean_up_together_when_the_agent_ends() {
        let folder = tempfile::tempdir().unwrap();
        let is_there = |file: &str| folder.path().join(file).exists();
        let begun = async {
            while !(is_there("begun-1") && is_there("begun-2")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // One that has been asked to end waits until the other has been, too.
        let script = |own: u8, other: u8| {
            format!(
                "cd {}; trap 'touch asked-{own}; until [ -e asked-{other} ]; do sleep 0.01; done; touch ended-{own}; exit' \
                 TERM; touch begun-{own}; while :; do sleep 0.01; done",
                folder.path().display()
            )
        };
        let (first, second, ending) = (script(1, 2), script(2, 1), Ending::default());
        let arguments = [["-c", first.as_str()], ["-c", second.as_str()]];
        let done = futures::future::join_all(
            arguments.iter().map(|arguments| output(&ending, Path::new("sh"), arguments, LONG)),
        );
        tokio::select! {
            done = done => panic!("{done:?}"),
            () = begun => {}
        }
        drop(ending);
        assert!(is_there("ended-1") && is_there("ended-2"));
    }

    #[test]
    fn collections_that_take_longer_than_their_interval_are_reported() {
        let told = |watch, interval| too_long(Duration::from_secs(watch), Duration::from_secs(interval));
        assert_eq!(told(30, 60), None);
        let told = told(31, 60).unwrap();
        assert!(told.contains("twice --watch, 1m 2s,"), "{told}");
    }

    #[test]
    fn a_document_is_kept_without_white_space_and_command_lines() {
        let time = DateTime::from_timestamp(1, 0).unwrap();
        let origin = Origin { file: "output".to_owned(), host: Some("web".to_owned()), time };
        let rows = |text: &str| {
            let mut rows = document::rows(text.as_bytes(), &origin).unwrap();
            rows.values_mut().flatten().for_each(|row| drop(row.remove("document")));
            rows
        };
        let vms = include_str!("../tests/fixtures/vms.json");
        let kept = compact(vms).unwrap();
        assert_eq!(rows(&kept), rows(vms));
        assert!(!kept.contains("-nodefaults") && !kept.contains(' '), "{kept}");
        // Several documents stay apart.
        let stat = include_str!("../tests/fixtures/stat.json");
        assert_eq!(rows(&compact(stat).unwrap())["intervals"].len(), rows(stat)["intervals"].len());
        assert!(compact("{").is_err());
    }

    #[tokio::test]
    async fn a_tick_that_cannot_be_read_now_is_kept_and_those_behind_it_are_delivered() {
        let folder = tempfile::tempdir().unwrap();
        let (store, inside) = (Store::in_memory(), folder.path().join("spool"));
        let mut spool = Spool::open(&inside, 1 << 20).unwrap();
        let documents = vec![include_str!("../tests/fixtures/vms.json").to_owned()];
        for second in [1, 2] {
            let time = DateTime::from_timestamp(second, 0).unwrap();
            spool.keep(&Tick::new("web".to_owned(), time, documents.clone(), Vec::new())).unwrap();
        }
        std::fs::write(inside.join("000000000003-3.json"), "{}").unwrap();
        // A link to a folder can be opened but not read, and be deleted.
        let (first, away) = (spool.files().unwrap()[0].path.clone(), folder.path().join("away"));
        std::fs::rename(&first, &away).unwrap();
        std::os::unix::fs::symlink(folder.path(), &first).unwrap();
        let error = deliver(&store, &mut spool).await.unwrap_err();
        assert_eq!(error.to_string(), format!("Reading {} failed", first.display()));
        let left: Vec<_> = spool.files().unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(left, std::slice::from_ref(&first));
        let stored = async || store.files("vms", &Days::default()).await.unwrap().len();
        assert_eq!(stored().await, 1);
        let [lost] = spool.tell().try_into().unwrap();
        assert_eq!((lost.ticks, lost.reason.as_str()), (1, "refused"));
        std::fs::rename(&away, &first).unwrap();
        deliver(&store, &mut spool).await.unwrap();
        assert_eq!((stored().await, spool.files().unwrap().len()), (2, 0));
    }
}
