//! What the page knows, and how that changes.

use std::collections::BTreeSet;

use exits::{Key, Profile, Whose};

use super::course::Courses;
use super::io_cores::IoCores;
use super::observation::{Observation, Source};
use super::page::{Page, View};
use super::rows::{Figures, Row};
use super::vms::Vms;

/// Intervals to choose from by key, nanoseconds.
const INTERVALS_NS: [u64; 9] = [
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];
/// Lines that a page key passes over.
const PAGE: isize = 10;
/// For so many intervals something is said.
const SAID_FOR: u32 = 5;

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// Several lines up.
    PageUp,
    /// Several lines down.
    PageDown,
    /// To the first line.
    First,
    /// To the last line.
    Last,
    /// What lies behind the line under the cursor.
    Open,
    /// Where the user came from.
    Back,
    /// By vCPU instead of by reason, or the other way round.
    Turn,
    /// Order by the next figure.
    Sort,
    /// Order the other way round.
    Reverse,
    /// Keep the page as it is, or no longer.
    Pause,
    /// Show sums since the reset instead of the last interval, or the other way round.
    Sum,
    /// Begin sums, curves and losses anew.
    Reset,
    /// A longer interval.
    Longer,
    /// A shorter one.
    Shorter,
    /// Show I/O cores instead, or no longer.
    IoCores,
    /// Show the keys.
    Help,
    /// End.
    Quit,
}

/// All that the page shows.
#[derive(Debug)]
pub struct Top {
    pub(super) source: Source,
    pub(super) interval_ns: u64,
    pub(super) vms: Vms,
    pub(super) courses: Courses,
    latest: Sum,
    since_reset: Sum,
    pub(super) sums_up: bool,
    pub(super) cost_ns_per_exit: Option<f64>,
    /// What is shown, and the way there.
    view: View,
    before: Vec<View>,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) shows_io: bool,
    pub(super) io: IoCores,
    has_ended: bool,
    notice: Option<(String, u32)>,
}

/// What was counted in some time.
#[derive(Debug, Default)]
struct Sum {
    profile: Profile,
    ns: u64,
}

impl Top {
    /// The page before anything was counted, with an interval of so many nanoseconds.
    #[must_use]
    pub fn new(source: Source, interval_ns: u64) -> Self {
        Self {
            source,
            interval_ns,
            vms: Vms::default(),
            courses: Courses::default(),
            latest: Sum::default(),
            since_reset: Sum::default(),
            sums_up: false,
            cost_ns_per_exit: None,
            view: View::new(Page::Vms),
            before: Vec::new(),
            is_paused: false,
            shows_help: false,
            shows_io: false,
            io: IoCores::default(),
            has_ended: false,
            notice: None,
        }
    }

    /// Takes in an interval.
    pub fn observe(&mut self, observation: Observation) {
        let Observation { profile, facts, cost_ns_per_exit } = observation;
        let ns = profile.span.map_or(0, exits::Span::length_ns);
        self.cost_ns_per_exit = cost_ns_per_exit;
        self.courses.add(&profile, ns);
        self.since_reset.profile.merge(&profile);
        self.since_reset.ns += ns;
        let over = self.vms.observe(&profile, facts);
        if !over.is_empty() {
            self.since_reset.profile = self.since_reset.profile.only(|vcpu| !over.contains(&vcpu.vm));
            over.into_iter().for_each(|vm| self.courses.forget(vm));
        }
        self.latest = Sum { profile, ns };
        self.notice = self.notice.take().filter(|(_, left)| *left > 1).map(|(text, left)| (text, left - 1));
    }

    /// Takes in what is known of I/O cores now.
    pub fn observe_io(&mut self, io: IoCores) {
        self.io = io;
    }

    /// Whether the page of I/O cores is shown.
    #[must_use]
    pub const fn shows_io(&self) -> bool {
        self.shows_io
    }

    /// The processes of the VMs on the page, of which facts are wanted.
    #[must_use]
    pub fn processes(&self) -> BTreeSet<u32> {
        self.vms.iter().filter_map(|(vm, _)| vm).collect()
    }

    /// Whether the page needs ports, addresses and registers.
    #[must_use]
    pub fn wants_accesses(&self) -> bool {
        self.view.page.accesses().is_some()
    }

    /// Counting began anew, with accesses or without, for that is what the page wanted.
    pub fn attached_again(&mut self, source: Source) {
        self.source = source;
        let what = if self.wants_accesses() { "with" } else { "without" };
        self.say(format!("Counting {what} accesses now; exits during the change were not counted"));
    }

    /// Shows a sentence for some intervals.
    pub fn say(&mut self, sentence: impl Into<String>) {
        self.notice = Some((sentence.into(), SAID_FOR));
    }

    /// How long to count before the next observation, nanoseconds.
    #[must_use]
    pub const fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Whether nothing new is to be shown.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether the user is done.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Does what the user wants.
    pub fn act(&mut self, action: Action) {
        if self.shows_help && action != Action::Quit {
            self.shows_help = false;
            return;
        }
        self.notice = None;
        match action {
            Action::Up => self.move_by(-1),
            Action::Down => self.move_by(1),
            Action::PageUp => self.move_by(-PAGE),
            Action::PageDown => self.move_by(PAGE),
            Action::First => self.move_by(isize::MIN),
            Action::Last => self.move_by(isize::MAX),
            Action::Open => {
                let opened = self.view.opened(&self.lines());
                opened.into_iter().for_each(|view| self.go(view));
            }
            Action::Back if self.shows_io => self.shows_io = false,
            Action::IoCores => self.shows_io ^= true,
            Action::Back => self.view = self.before.pop().unwrap_or(self.view),
            Action::Turn => self.turn(),
            Action::Sort => self.view.next_sort(),
            Action::Reverse => self.view.is_reversed ^= true,
            Action::Pause => self.is_paused ^= true,
            Action::Sum => self.sums_up ^= true,
            Action::Reset => {
                self.since_reset = Sum::default();
                self.courses = Courses::default();
                self.say("Sums, curves and losses begin anew");
            }
            Action::Longer => {
                let longer = INTERVALS_NS.into_iter().find(|&ns| ns > self.interval_ns);
                self.interval_ns = longer.unwrap_or(self.interval_ns);
            }
            Action::Shorter => {
                let shorter = INTERVALS_NS.into_iter().rfind(|&ns| ns < self.interval_ns);
                self.interval_ns = shorter.unwrap_or(self.interval_ns);
            }
            Action::Help => self.shows_help = true,
            Action::Quit => self.has_ended = true,
        }
    }

    /// What is shown.
    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// The lines of the page in order.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.figures().rows(&self.view)
    }

    pub(super) fn figures(&self) -> Figures<'_> {
        Figures { profile: &self.sum().profile, courses: &self.courses, vms: &self.vms }
    }

    /// How long that was counted which is shown, nanoseconds; 0 before the first interval.
    pub(super) fn shown_ns(&self) -> u64 {
        self.sum().ns
    }

    /// Exits of everyone in the last interval, and its length in nanoseconds.
    pub(super) fn pace(&self) -> (u64, u64) {
        let figures = Figures { profile: &self.latest.profile, courses: &self.courses, vms: &self.vms };
        (figures.count_of(Whose::Everyone), self.latest.ns)
    }

    /// Events that the kernel had no room for, since the reset.
    pub(super) fn lost(&self) -> u64 {
        self.since_reset.profile.losses.lost_events
    }

    pub(super) fn notice(&self) -> Option<&str> {
        self.notice.as_ref().map(|(text, _)| text.as_str())
    }

    fn sum(&self) -> &Sum {
        if self.sums_up { &self.since_reset } else { &self.latest }
    }

    fn lines(&self) -> Vec<Key> {
        self.rows().iter().map(|row| row.key).collect()
    }

    fn move_by(&mut self, by: isize) {
        let lines = self.lines();
        self.view.move_by(&lines, by);
    }

    fn go(&mut self, view: View) {
        self.before.push(std::mem::replace(&mut self.view, view));
    }

    fn turn(&mut self) {
        let Some(turned) = self.view.turned(&self.lines()) else { return };
        if self.view.page == Page::Vms {
            self.go(turned);
        } else {
            self.view = turned;
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
