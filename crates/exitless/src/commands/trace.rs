//! `exitless trace`: rare events of interrupt virtualization as they happen, and exits that take long.

mod long;

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use live::Tracefs;
use live::trace::{EventKind, Item, Options, Tracer, UnknownEventKind};
use report::trace::{json, terminal};

use super::quantity;
use super::watching::turn;
use crate::{console, interrupt};

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only events of this VM, by its name, UUID, process, VMID of Proxmox VE, ID of libvirt or NAMESPACE/NAME; may be
    /// given more than once. It need not run yet, except with --longer-than.
    #[arg(long = "vm", value_name = "NAME|PID")]
    vms: Vec<String>,
    /// Only these: inhibit, irq-window, ga-log, posted-interrupt, incomplete-ipi, unaccelerated, kick,
    /// accept-irq, pv-eoi, or all; several with commas. By default all except accept-irq and pv-eoi, which
    /// are frequent.
    #[arg(long = "event", value_name = "KIND", value_delimiter = ',')]
    events: Vec<Choice>,
    /// Instead of these events, single exits that took this long or longer: 50us, 1ms. Each with its reason, ports,
    /// addresses and registers, and what the host did meanwhile.
    #[arg(long, value_name = "TIME", value_parser = quantity::bound, conflicts_with_all = ["events", "unchanged"])]
    longer_than: Option<u64>,
    /// With --longer-than, also exits in which the guest slept.
    #[arg(long, requires = "longer_than")]
    sleep: bool,
    /// Stop after this time: 30s, 5min; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait)]
    duration: Option<u64>,
    /// Stop after this many events.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Also show requests to set an inhibit reason that is set, or to clear one that is not.
    #[arg(long)]
    unchanged: bool,
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
}

/// A kind of event, or every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    All,
    Kind(EventKind),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        text.parse().map(Self::Kind).map_err(|unknown: UnknownEventKind| format!("{unknown}, all"))
    }
}

impl Choice {
    fn kinds(self) -> Vec<EventKind> {
        match self {
            Self::All => EventKind::all().collect(),
            Self::Kind(kind) => vec![kind],
        }
    }
}

/// The interval of reading the buffers. With the time for sorting, an event is shown after at most a tenth of
/// a second.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(bound_ns) = arguments.longer_than {
        return long::run(arguments, bound_ns);
    }
    let stop = interrupt::flag()?;
    let root = Path::new("/");
    let options = Options {
        kinds: arguments.events.iter().flat_map(|choice| choice.kinds()).collect::<BTreeSet<_>>(),
        vms: arguments.vms.clone(),
        unchanged: arguments.unchanged,
        count: arguments.count,
    };
    let mut tracer = Tracer::attach(root, &Tracefs::find(root)?, options)?;
    let kinds: Vec<_> = tracer.kinds().collect();
    console::say(terminal::beginning(&kinds, tracer.missing()));

    let end = arguments.duration.and_then(|ns| Instant::now().checked_add(Duration::from_nanos(ns)));
    let mut output = Output {
        out: BufWriter::new(std::io::stdout().lock()),
        lines: (!arguments.json).then(|| terminal::Lines::new(console::colour())),
    };
    loop {
        output.write(&tracer.poll())?;
        if tracer.is_done() || !turn(end, PERIOD, &stop) {
            break;
        }
    }
    let (items, summary) = tracer.finish();
    output.write(&items)?;
    console::say(terminal::summary(&summary));
    Ok(ExitCode::SUCCESS)
}

struct Output<W: Write> {
    out: BufWriter<W>,
    /// Text output; `None` for JSON.
    lines: Option<terminal::Lines>,
}

impl<W: Write> Output<W> {
    fn write(&mut self, items: &[Item]) -> anyhow::Result<()> {
        for item in items {
            match (&mut self.lines, item) {
                (Some(lines), Item::Event(event)) => {
                    self.out.write_all(console::shown(lines.event(event)).as_bytes())?
                }
                (Some(lines), Item::Lost(loss)) => {
                    self.out.write_all(console::shown(lines.lost(loss)).as_bytes())?
                }
                (None, Item::Event(event)) => crate::json::write(&mut self.out, &json::event(event))?,
                (None, Item::Lost(loss)) => crate::json::write(&mut self.out, &json::loss(loss))?,
            }
        }
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn kinds(line: &[&str]) -> Vec<Choice> {
        Line::try_parse_from([&["trace"], line].concat()).unwrap().arguments.events
    }

    #[test]
    fn kinds_are_named_one_by_one_or_all() {
        let two = [Choice::Kind(EventKind::Inhibit), Choice::Kind(EventKind::GaLog)];
        assert_eq!(kinds(&["--event", "inhibit,ga-log"]), two);
        assert_eq!(kinds(&["--event", "inhibit", "--event", "ga-log"]), two);
        assert_eq!(kinds(&["--event", "all"])[0].kinds().len(), 9);
        for wrong in [["--event", "exits"], ["--count", "0"], ["--duration", "0"]] {
            assert!(Line::try_parse_from([&["trace"], &wrong[..]].concat()).is_err(), "{wrong:?}");
        }
    }
}
