use std::fmt::Write as _;
use std::sync::Arc;

use exits::ExitReason;
use hotspots::{Event, Recording, Selection, Space, Summary};

use super::*;
use crate::hot_spots::sample;

const VIEW: HotSpotsView = HotSpotsView { width: 80, colour: false, top: 5, reasons: 3 };

fn shown(recording: &Recording, selection: &Selection) -> String {
    terminal("this host", recording, &Summary::of(recording, selection), VIEW)
}

#[test]
fn a_profile_says_where_the_time_of_each_reason_goes() {
    let text = shown(&sample::recording(), &Selection::default());
    assert!(text.lines().all(|line| textwrap::core::display_width(line) <= 80), "{text}");
    assert!(!text.contains('\u{1b}'));
    insta::assert_snapshot!(text);
}

#[test]
fn one_reason_alone_can_be_asked_for() {
    let reasons = [ExitReason::svm(0x400)].into();
    insta::assert_snapshot!(shown(&sample::recording(), &Selection { reasons, ..Selection::default() }));
}

#[test]
fn nothing_asked_for_is_said() {
    let vms = [1].into();
    let text = shown(&sample::recording(), &Selection { vms, ..Selection::default() });
    assert!(text.contains("There was no exit of what was asked for."), "{text}");
}

#[test]
fn guests_code_has_no_parts_and_no_samples() {
    let mut recording = sample::recording();
    recording.head.event = Event::Exits;
    recording.head.notes.clear();
    let mut names = String::new();
    for frame in recording.frames.iter_mut().map(Arc::make_mut) {
        frame.space = Space::Guest;
        write!(names, "{frame} ").unwrap();
    }
    let text = shown(&recording, &Selection::default());
    assert!(text.contains("Functions of the guests that were left") && !text.contains("in KVM"), "{text}");
}
