//! What holds of every recording of exits, whatever bytes it is made of.

pub mod definitions;

use std::num::NonZeroUsize;

use exits::{Profile, Slice};
use traces::{Error, ExitRecord, Options, Reading, read_bytes};

/// More windows than this make nothing clearer.
const MOST_TIME_WINDOWS: u64 = 1 << 62;

/// Reads a recording in several ways and compares what comes out.
pub fn read_recording(bytes: &[u8]) {
    let (mut exits, mut handled) = (0u64, 0u64);
    let mut sink = |exit: &ExitRecord| {
        exits += 1;
        handled += u64::from(exit.handling_ns.is_some());
    };
    let one = read_bytes(bytes, &threads(1), &mut sink);
    let two = read_bytes(bytes, &threads(2), &mut ());
    let reading = match (one, two) {
        (Ok(one), Ok(two)) => {
            assert_eq!(one, two, "the number of threads shows");
            one
        }
        (one, two) => {
            assert_eq!(text(one), text(two), "the number of threads shows");
            return;
        }
    };
    let profile = &reading.profile;
    assert_eq!(profile.total(), exits, "the sink gets every exit");
    assert_eq!(paired(profile), handled, "with its handling time");
    let losses = &profile.losses;
    let alone = losses.exits_without_entry
        + losses.exits_at_the_end
        + losses.pairs_across_loss
        + losses.pairs_back_in_time;
    // Where no entries were recorded that is said once, not exit by exit.
    let no_entries = handled == 0 && alone == 0;
    assert!(no_entries || exits - handled == alone, "{exits} exits, {handled} handled, {losses:?}");
    consistent(profile);
    let packed = bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || bytes.starts_with(&[0x1f, 0x8b]);
    if let Some(damage) = reading.damage.as_ref().filter(|_| !packed) {
        assert!(damage.offset <= bytes.len() as u64, "{damage} of {} bytes", bytes.len());
    }
    // Two more readings take as long as those before; some of the inputs will do.
    if bytes.len().is_multiple_of(4) {
        halves(bytes, &reading);
    }
}

/// What must hold of any profile that a reader made.
pub fn consistent(profile: &Profile) {
    let mut counted = 0;
    for vcpu in profile.vcpus() {
        for (reason, exits) in &vcpu.reasons {
            assert!(exits.count > 0, "{reason} has a row and no exits");
            assert!(
                exits.handling.count() <= exits.count,
                "{reason} was handled more often than it occurred"
            );
            counted += exits.count;
        }
        for (access, exits) in &vcpu.accesses {
            assert!(
                exits.handling.count() <= exits.count,
                "{access} was handled more often than it occurred"
            );
        }
    }
    assert_eq!(profile.total(), counted);
    assert!(
        profile.vcpus().windows(2).all(|pair| pair[0].vcpu < pair[1].vcpu),
        "vCPUs are ordered, each once"
    );
    let mut over_time = Slice::default();
    profile.timeline.iter().for_each(|(_, slices)| slices.iter().for_each(|&slice| over_time.merge(slice)));
    assert_eq!(over_time.count, counted, "the timeline has every exit");
    if let Some(span) = profile.span {
        assert!(span.first_ns <= span.last_ns);
    }
    let written = serde_json::to_string(profile).expect("a profile can be written");
    let read: Profile = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(&read, profile, "a profile is the same after a file");
    let mut twice = profile.clone();
    twice.merge(profile);
    assert_eq!(twice.total(), 2 * profile.total());
}

/// An exit lies before a moment or behind it.
fn halves(bytes: &[u8], whole: &Reading) {
    let Some(span) = whole.profile.span else { return };
    let moment = Some(span.length_ns().min(MOST_TIME_WINDOWS) / 2);
    let part = |options| read_bytes(bytes, &options, &mut ()).expect("it was read before").profile.total();
    let before = part(Options { to_ns: moment, ..threads(1) });
    let behind = part(Options { from_ns: moment, ..threads(1) });
    assert_eq!(
        before + behind,
        whole.profile.total(),
        "{before} exits in the first half, {behind} in the second"
    );
}

fn threads(threads: usize) -> Options {
    Options { threads: NonZeroUsize::new(threads), ..Options::default() }
}

fn paired(profile: &Profile) -> u64 {
    profile.reasons().values().map(|exits| exits.handling.count()).sum()
}

/// An error in full; a reading in one word, for those are compared elsewhere.
fn text(result: Result<Reading, Error>) -> String {
    result.map_or_else(|error| format!("{error} {error:?}"), |_| "a reading".to_owned())
}
