//! The state of the page.

use std::collections::BTreeSet;

use exits::{Key, Profile, Whose};

use super::course::Courses;
use super::io_cores::IoCores;
use super::observation::{Observation, Source};
use super::page::{Page, View};
use super::rows::{Figures, Row};
use super::vms::Vms;

/// The selectable intervals, in nanoseconds.
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
/// The number of lines that PgUp and PgDn move.
const PAGE: isize = 10;
/// The number of intervals for which a message is shown.
const SAID_FOR: u32 = 5;

/// An action of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Move one line up.
    Up,
    /// Move one line down.
    Down,
    /// Move several lines up.
    PageUp,
    /// Move several lines down.
    PageDown,
    /// Move to the first line.
    First,
    /// Move to the last line.
    Last,
    /// Open the page behind the line under the cursor.
    Open,
    /// Go back to the previous page.
    Back,
    /// Switch between vCPUs and reasons.
    Turn,
    /// Order by the next figure.
    Sort,
    /// Reverse the order.
    Reverse,
    /// Freeze or unfreeze the page.
    Pause,
    /// Switch between the last interval and sums since the reset.
    Sum,
    /// Reset sums, curves and losses.
    Reset,
    /// Use a longer interval.
    Longer,
    /// Use a shorter interval.
    Shorter,
    /// Switch to I/O cores and back.
    IoCores,
    /// Show the keys.
    Help,
    /// Quit.
    Quit,
}

/// The state of the page.
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
    /// The current page and its history.
    view: View,
    before: Vec<View>,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) shows_io: bool,
    pub(super) io: IoCores,
    has_ended: bool,
    notice: Option<(String, u32)>,
}

/// The exits of a period.
#[derive(Debug, Default)]
struct Sum {
    profile: Profile,
    ns: u64,
}

impl Top {
    /// The state before the first observation; `interval_ns` is the length of the first interval.
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

    /// Adds an interval.
    pub fn observe(&mut self, observation: Observation) {
        let Observation { profile, facts, cost_ns_per_exit } = observation;
        let ns = profile.span.map_or(0, exits::Span::length_ns);
        self.cost_ns_per_exit = cost_ns_per_exit;
        self.courses.add(&profile, ns);
        // Limit the memory: a guest may access a new address in each interval.
        traces::merge_bounded(&mut self.since_reset.profile, &profile);
        self.since_reset.ns += ns;
        let over = self.vms.observe(&profile, facts);
        if !over.is_empty() {
            self.since_reset.profile = self.since_reset.profile.only(|vcpu| !over.contains(&vcpu.vm));
            over.into_iter().for_each(|vm| self.courses.forget(vm));
        }
        self.latest = Sum { profile, ns };
        self.notice = self.notice.take().filter(|(_, left)| *left > 1).map(|(text, left)| (text, left - 1));
    }

    /// Sets the state of I/O cores.
    pub fn observe_io(&mut self, io: IoCores) {
        self.io = io;
    }

    /// Tests whether the page of I/O cores is shown.
    #[must_use]
    pub const fn shows_io(&self) -> bool {
        self.shows_io
    }

    /// The processes of the VMs on the page, for which facts are needed.
    #[must_use]
    pub fn processes(&self) -> BTreeSet<u32> {
        self.vms.iter().filter_map(|(vm, _)| vm).collect()
    }

    /// Tests whether the page needs ports, addresses and registers.
    #[must_use]
    pub fn wants_accesses(&self) -> bool {
        self.view.page.accesses().is_some()
    }

    /// Records that counting was restarted with or without accesses, because another page needs it.
    pub fn attached_again(&mut self, source: Source) {
        self.source = source;
        let what = if self.wants_accesses() { "with" } else { "without" };
        self.say(format!("Counting {what} accesses now; exits during the change were not counted"));
    }

    /// Shows a message for some intervals.
    pub fn say(&mut self, sentence: impl Into<String>) {
        self.notice = Some((sentence.into(), SAID_FOR));
    }

    /// The length of the next interval, in nanoseconds.
    #[must_use]
    pub const fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Tests whether the page is frozen.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Tests whether the user has quit.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Performs an action.
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

    /// The current view.
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

    /// The length of the period on the page, in nanoseconds; 0 before the first interval.
    pub(super) fn shown_ns(&self) -> u64 {
        self.sum().ns
    }

    /// Exits of all VMs in the last interval, and its length in nanoseconds.
    pub(super) fn pace(&self) -> (u64, u64) {
        let figures = Figures { profile: &self.latest.profile, courses: &self.courses, vms: &self.vms };
        (figures.count_of(Whose::Everyone), self.latest.ns)
    }

    /// Events lost by the kernel since the reset.
    pub(super) fn lost(&self) -> u64 {
        self.since_reset.profile.losses.lost_events
    }

    /// Exits since the reset that the kernel counted without their VM, because its maps were full.
    pub(super) fn without_vcpu(&self) -> u64 {
        self.since_reset.profile.losses.exits_without_vcpu
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
