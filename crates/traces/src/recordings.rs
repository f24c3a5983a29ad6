//! Several recordings as one.

use std::collections::BTreeMap;

use exits::{NotThere, Profile, Selection, Span};
use serde::Serialize;

use crate::{Damage, Options, Origin, Reading};

/// One of the recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// Its path, or the name for standard input.
    pub name: String,
    /// The program and the machine that made it.
    pub origin: Origin,
    /// The span from its first to its last event within the selected time.
    pub observed: Option<Span>,
    /// The number of exits that were taken from it.
    pub exits: u64,
    /// The place where reading had to stop.
    pub damage: Option<Damage>,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Recordings and the one profile of all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recordings {
    /// The exits of all recordings, or the selected part.
    pub profile: Profile,
    /// The recordings, in the order in which they were read.
    pub files: Vec<Recording>,
    /// The part of each recording that was read.
    pub options: Options,
    /// The selected part of the exits.
    pub selection: Selection,
}

impl Recordings {
    /// No recordings yet; `options` are those with which all of them are read.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Adds a recording. VMs with the same number are assumed to be the same VM.
    pub fn add(&mut self, name: String, reading: Reading) {
        let Reading { profile, origin, damage, warnings } = reading;
        self.files.push(Recording {
            name,
            origin,
            observed: profile.span.and_then(|span| self.within_the_time_asked_for(span)),
            exits: profile.total(),
            damage,
            warnings,
        });
        // The first one needs no copy.
        if self.files.len() == 1 {
            self.profile = profile;
        } else {
            self.profile.merge(&profile);
        }
    }

    /// Reduces the profile to the selected part.
    ///
    /// # Errors
    /// If no recording has the selected VM or vCPU.
    pub fn select(self, selection: Selection) -> Result<Self, NotThere> {
        Ok(Self { profile: selection.of(&self.profile)?, selection, ..self })
    }

    /// The recorded time in nanoseconds. Overlapping recordings of one clock count once; the time between recordings does
    /// not count.
    #[must_use]
    pub fn observed_ns(&self) -> u64 {
        length_ns(self.clocks().into_values().flatten())
    }

    /// The recorded spans within the selected time, in order. Overlapping ones are one. None if there is more than one clock:
    /// they have no common order.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let mut clocks = self.clocks().into_values();
        match (clocks.next(), clocks.next()) {
            (Some(spans), None) => spans,
            _ => Vec::new(),
        }
    }

    /// Tests whether the times of the recordings are not known to be of one clock.
    #[must_use]
    pub fn have_several_clocks(&self) -> bool {
        self.clocks().len() > 1
    }

    /// Tests whether recordings that do not name their boot overlap. They may be of different boots then.
    #[must_use]
    pub fn overlap_without_a_boot(&self) -> bool {
        let each =
            self.files.iter().filter(|file| file.origin.boot.is_none()).filter_map(|file| file.observed);
        let together = self.clocks().into_iter().filter(|((_, boot), _)| boot.is_none());
        length_ns(each) > length_ns(together.flat_map(|(_, spans)| spans))
    }

    /// The recorded spans of each clock, in order and joined where they overlap. A clock begins at each boot of a host.
    /// Recordings that do not name their boot, as those of other programs, count as of one boot.
    fn clocks(&self) -> BTreeMap<(Option<&str>, Option<&str>), Vec<Span>> {
        let mut files: Vec<(&Origin, Span)> =
            self.files.iter().filter_map(|file| Some((&file.origin, file.observed?))).collect();
        files.sort_by_key(|(_, span)| span.first_ns);
        let mut clocks: BTreeMap<_, Vec<Span>> = BTreeMap::new();
        for (origin, span) in files {
            let spans = clocks.entry((origin.host.as_deref(), origin.boot.as_deref())).or_default();
            match spans.last_mut() {
                Some(last) if span.first_ns <= last.last_ns => *last = last.join(span),
                _ => spans.push(span),
            }
        }
        clocks
    }

    /// The span from the first event of any recording to the last one of any, within the selected time; `None` if there is
    /// more than one clock.
    #[must_use]
    pub fn observed(&self) -> Option<Span> {
        self.spans().into_iter().reduce(Span::join)
    }

    /// The time of the first event of each recording, regardless of the selected time.
    #[must_use]
    pub fn first_ns(&self) -> Vec<u64> {
        let from_ns = self.options.from_ns.unwrap_or(0);
        let first_ns = |span: Span| span.first_ns.saturating_sub(from_ns);
        self.files.iter().map(|file| file.observed.map_or(0, first_ns)).collect()
    }

    /// Tests whether some recording is damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.files.iter().any(|file| file.damage.is_some())
    }

    /// The hosts of the recordings, if there is more than one: then VM numbers of different recordings are not comparable.
    #[must_use]
    pub fn different_hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<_> = self.files.iter().filter_map(|file| file.origin.host.as_deref()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        if hosts.len() > 1 { hosts } else { Vec::new() }
    }

    fn within_the_time_asked_for(&self, span: Span) -> Option<Span> {
        let moment = |offset: u64| span.first_ns.saturating_add(offset);
        let first_ns = self.options.from_ns.map_or(span.first_ns, moment);
        let last_ns = self.options.to_ns.map_or(span.last_ns, moment).min(span.last_ns);
        (first_ns <= last_ns).then_some(Span { first_ns, last_ns })
    }
}

/// The summed length of spans.
fn length_ns(spans: impl Iterator<Item = Span>) -> u64 {
    spans.map(Span::length_ns).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use exits::{ExitReason, Vcpu};

    fn reading(host: &str, first_ns: u64, last_ns: u64) -> Reading {
        let mut profile = Profile::new();
        profile.span = Some(Span { first_ns, last_ns });
        let vcpu = Vcpu { vm: Some(1), number: Some(0), thread: Some(2) };
        profile.vcpu(vcpu).reasons.entry(ExitReason::vmx(12)).or_default().count = 1;
        let origin = Origin { host: Some(host.to_owned()), ..Origin::new(Format::PerfData) };
        Reading { profile, origin, damage: None, warnings: Vec::new() }
    }

    fn recordings(options: Options, readings: &[(&str, u64, u64)]) -> Recordings {
        let mut all = Recordings::new(options);
        for &(host, first_ns, last_ns) in readings {
            all.add("recording".to_owned(), reading(host, first_ns, last_ns));
        }
        all
    }

    #[test]
    fn time_is_observed_once_and_gaps_are_not() {
        let all = recordings(Options::default(), &[("a", 100, 200), ("a", 150, 250), ("a", 900, 1000)]);
        assert_eq!(all.observed_ns(), 250);
        let spans = [(100, 250), (900, 1000)].map(|(first_ns, last_ns)| Span { first_ns, last_ns });
        assert_eq!(all.spans(), spans);
        assert_eq!(all.observed(), Some(Span { first_ns: 100, last_ns: 1000 }));
        assert_eq!(all.profile.total(), 3);
        assert_eq!(Recordings::default().observed_ns(), 0);
    }

    #[test]
    fn each_boot_of_a_host_has_its_own_time() {
        let of = |origins: [(&str, Option<&str>); 2]| {
            let mut all = Recordings::new(Options::default());
            for (host, boot) in origins {
                let mut reading = reading(host, 100, 160);
                reading.origin.boot = boot.map(str::to_owned);
                all.add("recording".to_owned(), reading);
            }
            (
                all.observed_ns(),
                all.observed().is_some(),
                all.have_several_clocks(),
                all.overlap_without_a_boot(),
            )
        };
        let (first, second) = (Some("first"), Some("second"));
        assert_eq!(of([("a", first), ("a", first)]), (60, true, false, false));
        assert_eq!(of([("a", first), ("a", second)]), (120, false, true, false));
        assert_eq!(of([("a", None), ("b", None)]), (120, false, true, false));
        assert_eq!(of([("a", None), ("a", None)]), (60, true, false, true));
    }

    #[test]
    fn the_time_asked_for_begins_with_each_recording() {
        let options = Options { from_ns: Some(10), to_ns: Some(60), ..Options::default() };
        let all = recordings(options, &[("a", 100, 120), ("a", 1000, 5000), ("a", 7000, 7005)]);
        let observed: Vec<_> = all.files.iter().map(|file| file.observed).collect();
        let span = |first_ns, last_ns| Some(Span { first_ns, last_ns });
        assert_eq!(observed, [span(110, 120), span(1010, 1060), None]);
        assert_eq!(all.observed_ns(), 60);
        assert_eq!(all.first_ns(), [100, 1000, 0], "of the last one nothing was asked for");
    }

    #[test]
    fn hosts_that_differ_are_named() {
        let of = |hosts: &[(&str, u64, u64)]| {
            let all = recordings(Options::default(), hosts);
            all.different_hosts().join(" ")
        };
        assert_eq!(of(&[("b", 0, 1), ("a", 0, 1), ("b", 0, 1)]), "a b");
        assert_eq!(of(&[("b", 0, 1), ("b", 0, 1)]), "");
    }
}
