//! Reader of the binary output of `xentrace`.
//!
//! Sources: `xen/include/public/trace.h`, `xen/common/trace.c` and `tools/xentrace/xentrace.c` of Xen 4.20. The
//! definition of exits and of their handling times is that of `tools/xentrace/xenalyze.c`.

mod clock;
mod decode;
mod event;
mod isa;
mod orders;
mod owner;
mod placement;
mod record;
mod records;
mod survey;
mod tally;
#[cfg(test)]
mod writing;

use clock::{ASSUMED_HZ, Clock};
use decode::{Decoder, Found, Reasons};
use exits::counted;
use orders::Orders;
use placement::{Oddities, Placement};
use record::{Sequence, Window, sequence};
use records::{Item, Records};
use survey::Survey;

use crate::assembly::Assembly;
use crate::input::Input;
use crate::pipeline::{self, Feed};
use crate::{Error, Format, Options, Origin, Reading, Sink};

/// The number of records that are checked to recognise a recording.
const RECORDS_OF_BEGINNING: usize = 16;

/// The number of events that are passed on at once: 128 KiB.
const EVENTS: usize = 4096;

/// Tests whether the first bytes are a recording of xentrace.
pub(crate) fn begins(start: &[u8]) -> bool {
    let Some(window) = Window::parse(start) else { return false };
    match sequence(start, RECORDS_OF_BEGINNING) {
        // A recording that is cut after its first header has no record.
        Sequence::Sound { records } => records > 0 || start.len() < record::WINDOW + record::LONGEST,
        // Damage in the first window only concerns that window.
        Sequence::Broken => start.get(record::WINDOW + window.length as usize..).is_some_and(
            |rest| matches!(sequence(rest, RECORDS_OF_BEGINNING), Sequence::Sound { records } if records > 0),
        ),
    }
}

/// Reads a recording to its end.
pub(crate) fn read(input: Input, options: Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let survey = Survey::of(input.start());
    let name = input.name.clone();
    let failure = input.failure();
    read_records(Records::new(input.into_stream(), failure), name, &survey, options, sink)
}

/// Reads a recording while it is made, until `stream` ends. If a read returns [`std::io::ErrorKind::WouldBlock`],
/// what was read so far is decoded and processed. Exits reach `sink` when no older ones of other CPUs can follow: two
/// rounds of the recorder later.
///
/// `options` must have the frequency and the instruction set, which are otherwise inferred from the beginning of the
/// recording. A recording without exits is not an error.
pub fn follow(
    stream: Box<dyn std::io::Read + Send>,
    name: &str,
    options: &Options,
    sink: &mut impl Sink,
) -> Result<Reading, Error> {
    let survey = Survey { runstates: true, switches: true, ..Survey::default() };
    let options = Options { threads: Some(std::num::NonZeroUsize::MIN), ..*options };
    let records = Records::new(stream, crate::input::Failure::default());
    match read_records(records, name.to_owned(), &survey, options, sink) {
        Err(Error::NoExitsOfXen { .. }) => Ok(Reading {
            profile: exits::Profile::new(),
            origin: Origin::new(Format::Xentrace),
            damage: None,
            warnings: Vec::new(),
        }),
        other => other,
    }
}

fn read_records(
    mut records: Records,
    name: String,
    survey: &Survey,
    options: Options,
    sink: &mut impl Sink,
) -> Result<Reading, Error> {
    let told_hz = options.tsc_hz.filter(|&hz| hz > 0);
    let hz = told_hz.or(survey.hz).unwrap_or(ASSUMED_HZ);
    let (isa, doubtful) = survey.isa();
    let reasons = Reasons { isa: options.isa.unwrap_or(isa), forced: options.isa.is_some() };
    let mut assembly = Assembly::new(options, sink);
    assembly.accesses_take_whole_exits();
    let decoder = Decoder::new(Placement::new(Clock::new(hz), survey), reasons);
    let mut walk = Walk { records: &mut records, decoder, ended: false };
    // Some records take their time from the one before, so records are decoded in order by one thread at a time,
    // while another thread counts the events that were decoded before.
    let hand_over = |orders: &mut Orders, result: &mut Orders| std::mem::swap(orders, result);
    pipeline::run(&mut walk, options.threads, hand_over, |orders: &mut Orders| {
        orders.carry_out(&mut assembly)
    });
    let Decoder { placement, mut tally, found, .. } = walk.decoder;
    let oddities = placement.oddities;
    assembly.undecoded(found.undecoded);
    tally.named().for_each(|(name, count)| assembly.count_event(&name, count));
    let mut warnings = Vec::new();
    let profile = assembly.finish(&mut warnings);
    let damage = records.damage.take();
    if found.exits + found.entries == 0 && damage.is_none() {
        let count = |(event, count): (&String, &u64)| format!("{count} {event}");
        let events: Vec<_> = profile.events.iter().map(count).collect();
        return Err(Error::NoExitsOfXen { name, found: events.join(", ") });
    }
    if told_hz.is_none() {
        warnings.push(frequency_warning(survey.hz));
    }
    warnings.extend(doubts(found, oddities, reasons, doubtful));
    let losses = profile.losses;
    if losses.exits_without_entry > 0 && losses.lost_events == 0 && damage.is_none() {
        warnings.push(format!(
            "{} without an entry although nothing was lost: the clocks of the processors seem to differ by more than \
             the time in which vCPUs change processors",
            counted(losses.exits_without_entry, "exit")
        ));
    }
    if records.broken > 1 || records.skipped > 0 {
        let (broken, skipped) = (records.broken, records.skipped);
        warnings.push(format!(
            "{} of damage in the recording; {} skipped, and reading went on with the next whole window each time",
            counted(broken, "place"),
            counted(skipped, "byte")
        ));
    }
    let origin = Origin { bytes: records.position(), ..Origin::new(Format::Xentrace) };
    Ok(Reading { profile, origin, damage, warnings })
}

/// The walk over a recording, a few thousand events at a time.
struct Walk<'r> {
    records: &'r mut Records,
    decoder: Decoder,
    ended: bool,
}

impl Feed for Walk<'_> {
    type Chunk = Orders;

    fn next(&mut self, orders: &mut Orders) -> bool {
        if self.ended {
            return false;
        }
        let Self { records, decoder, ended } = self;
        orders.clear();
        std::mem::swap(&mut decoder.placement.orders, orders);
        while decoder.placement.orders.events() < EVENTS && !*ended {
            records.sound(|record| decoder.record(record));
            match records.next() {
                Some(Item::Record(record)) => decoder.record(&record),
                Some(Item::Window(window)) => decoder.placement.window(window),
                Some(Item::Gap { all }) => decoder.placement.gap(all),
                // Pass on what there is: somebody follows the recording live.
                Some(Item::Pause) => break,
                None => {
                    decoder.placement.finish();
                    *ended = true;
                }
            }
        }
        decoder.placement.orders.end_row();
        std::mem::swap(&mut decoder.placement.orders, orders);
        true
    }
}

fn frequency_warning(estimated_hz: Option<u64>) -> String {
    let basis = match estimated_hz {
        Some(hz) => format!("{:.3} GHz, estimated from its scheduler events", hz as f64 / 1e9),
        None => format!("an assumed {:.1} GHz", ASSUMED_HZ as f64 / 1e9),
    };
    format!(
        "The recording does not hold the frequency of the time stamp counter; times rest on {basis}. Give the \
         true one (`cpu_mhz` of `xl info`), for instance --tsc-hz 2.1G"
    )
}

/// The warnings about doubtful exits.
fn doubts(found: Found, oddities: Oddities, reasons: Reasons, doubtful: bool) -> Vec<String> {
    let Found { exits, unsaid, not_vmx, .. } = found;
    let Oddities { unowned, idle, siblings } = oddities;
    let mut warnings = Vec::new();
    if unowned > 0 && unowned == exits {
        warnings.push(
            "The recording does not say which domain ran on which processor, so the vCPUs are those that ran on \
             processors of their number, of any domain; record with `xentrace -e 0xaf000` to tell them apart"
                .to_owned(),
        );
    } else if unowned > 0 {
        warnings.push(format!(
            "Of {exits} exits {unowned} belong to unknown domains: nothing says who ran on their processor then"
        ));
    }
    if unsaid > 0 && doubtful && !reasons.forced {
        warnings.push(format!(
            "The recording hardly shows whether its exits are of Intel or AMD processors; they are taken for \
             {}; give the instruction set if that is wrong",
            reasons.isa
        ));
    }
    if not_vmx > 0 {
        warnings
            .push(format!("{} taken for VMX's, which has none of their numbers", counted(not_vmx, "exit")));
    }
    if idle > 0 {
        warnings.push(format!(
            "{} (exits, entries and accesses) of processors that were idle are not counted",
            counted(idle, "event")
        ));
    }
    if siblings > 0 {
        warnings.push(format!(
            "{}, a processor recorded that a vCPU came or went beside its own: Xen schedules whole \
             cores or sockets (`sched-gran`), and exits on processors that do not record who runs on them are \
             of unknown domains",
            if siblings == 1 { "Once".to_owned() } else { format!("{siblings} times") }
        ));
    }
    warnings
}

#[cfg(test)]
#[path = "xentrace/reading_tests.rs"]
mod tests;
