//! Stacks as a flame graph: one SVG file that opens in a browser offline. A click zooms.
//!
//! It is drawn here because the licence of the usual crate (CDDL) is not compatible with a static binary under this
//! project's licences. `--folded` exports the stacks for other programs.

use hotspots::{Frame, Node, NodeName, Recording, Space, Weight};
use maud::{Markup, PreEscaped, html};

use crate::format::{counted, share, whole_time};
use crate::text::printable;

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 78.0;
const FOOT: f64 = 30.0;
/// The width of a monospace character, in pixels.
const LETTER: f64 = 6.7;
/// The minimum width of a box, in pixels: narrower ones would not be visible.
const NARROWEST: f64 = 0.25;

const STYLE: &str = include_str!("flame_graph.css");
const SCRIPT: &str = include_str!("flame_graph.js");

/// A drawn box.
struct Shown {
    x: f64,
    width: f64,
    level: usize,
    class: &'static str,
    name: String,
    says: String,
}

/// The flame graph of `root`, which was made from `recording` by `weight`: exit reasons at the bottom, callees above their
/// callers, with widths in proportion to their weights.
#[must_use]
pub fn flame_graph(recording: &Recording, root: &Node, weight: Weight) -> String {
    let mut boxes = Vec::new();
    let all = Scale { root, weight };
    all.add(&mut boxes, root, 0.0, 0);
    let levels = boxes.iter().map(|shown: &Shown| shown.level + 1).max().unwrap_or(0);
    let height = HEAD + ROW * levels as f64 + FOOT;
    let title = match weight {
        Weight::Samples => "What the host does while it handles VM exits",
        Weight::Away => "Where vCPUs have no processor while an exit is handled",
    };
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox={ "0 0 " (WIDTH) " " (height) } role="img" {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            rect.ground width="100%" height="100%" {}
            text.title x=(WIDTH / 2.0) y="24" { (title) }
            text.under x=(WIDTH / 2.0) y="42" { (under(recording, root, weight)) }
            (legend())
            text #reset x=(MARGIN) y="24" { "Show all" }
            g #boxes data-left=(MARGIN) data-width=(WIDTH - 2.0 * MARGIN) data-letter=(LETTER) {
                @for shown in &boxes { (drawn(shown, levels)) }
            }
            @if boxes.is_empty() {
                text.under x=(WIDTH / 2.0) y=(HEAD + 12.0) { "There is nothing to draw: no sample met what was asked for." }
            }
            text #says x=(MARGIN) y=(height - 10.0) { " " }
            script { (PreEscaped("//<![CDATA[\n")) (PreEscaped(SCRIPT)) (PreEscaped("//]]>")) }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", markup.into_string())
}

fn under(recording: &Recording, root: &Node, weight: Weight) -> String {
    let of = match weight {
        Weight::Samples => counted(root.total, "sample"),
        Weight::Away => whole_time(root.total),
    };
    let kernel =
        recording.head.kernel.as_ref().map_or_else(String::new, |kernel| format!(", Linux {kernel}"));
    printable(&format!("{of} in {}{kernel}", whole_time(recording.head.duration_ns)))
}

const COLOURS: [(&str, &str); 5] = [
    ("reason", "exit reason"),
    ("kvm", "KVM"),
    ("kernel", "other kernel"),
    ("user", "device model"),
    ("guest", "guest"),
];

fn legend() -> Markup {
    const STEP: f64 = 120.0;
    let from = (WIDTH - STEP * COLOURS.len() as f64) / 2.0;
    html! {
        @for (at, (class, name)) in COLOURS.iter().enumerate() {
            @let x = from + STEP * at as f64;
            rect class=(class) x=(x) y="52" width="12" height="12" {}
            text.legend x=(x + 18.0) y="62" { (name) }
        }
    }
}

/// The scale of all boxes.
struct Scale<'n> {
    root: &'n Node,
    weight: Weight,
}

impl Scale<'_> {
    fn add(&self, boxes: &mut Vec<Shown>, node: &Node, mut x: f64, level: usize) {
        // Ordered by name, not by width, so that boxes keep their places between two graphs of the same load.
        for (name, child) in &node.children {
            let width = child.total as f64 / self.root.total.max(1) as f64 * (WIDTH - 2.0 * MARGIN);
            if width >= NARROWEST {
                boxes.push(self.shown(name, child, x, width, level));
                self.add(boxes, child, x, level + 1);
            }
            x += width;
        }
    }

    fn shown(&self, name: &NodeName, node: &Node, x: f64, width: f64, level: usize) -> Shown {
        let (class, name, object) = match name {
            NodeName::Reason(reason) => ("reason", reason.to_string(), None),
            NodeName::Monitor => ("reason", "device model outside of exits".to_owned(), None),
            NodeName::Code(frame) => (class(frame), frame.to_string(), Some(frame.object.clone())),
        };
        let name = printable(&name);
        let of = node.total as f64 / self.root.total.max(1) as f64 * 100.0;
        let amount = match self.weight {
            Weight::Samples => counted(node.total, "sample"),
            Weight::Away => whole_time(node.total),
        };
        let object = object.map_or_else(String::new, |object| format!(" ({})", printable(&object)));
        Shown { says: format!("{name}{object}: {amount}, {}", share(of)), x, width, level, class, name }
    }
}

fn class(frame: &Frame) -> &'static str {
    match frame.space {
        Space::Kernel if frame.object.starts_with("kvm") => "kvm",
        Space::Kernel => "kernel",
        Space::User => "user",
        Space::Guest => "guest",
    }
}

fn drawn(shown: &Shown, levels: usize) -> Markup {
    let y = HEAD + ROW * (levels - 1 - shown.level) as f64;
    let rounded = |value: f64| format!("{value:.2}");
    let letters = (shown.width / LETTER - 1.0).max(0.0) as usize;
    let text: String = match shown.name.chars().count() {
        length if length <= letters => shown.name.clone(),
        _ if letters < 3 => String::new(),
        _ => shown.name.chars().take(letters - 1).chain(['…']).collect(),
    };
    html! {
        g data-x=(rounded(shown.x)) data-width=(rounded(shown.width)) data-level=(shown.level) data-name=(shown.name) {
            title { (shown.says) }
            rect class=(shown.class) x=(rounded(MARGIN + shown.x)) y=(y) width=(rounded(shown.width)) height=(ROW - 1.0) {}
            text.name x=(rounded(MARGIN + shown.x + 3.0)) y=(y + 12.5) { (text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot_spots::sample::recording;
    use hotspots::{Selection, tree};

    #[test]
    fn a_flame_graph_is_one_file_with_everything_in_it() {
        let recording = recording();
        let root = tree(&recording, &Selection::default(), Weight::Samples);
        let svg = flame_graph(&recording, &root, Weight::Samples);
        assert!(!svg.contains("href") && !svg.contains("@import") && !svg.contains("url("));
        // Names in recordings must not become markup.
        assert!(svg.contains("&lt;script&gt;") && !svg.contains("<script>alert"));
        insta::assert_snapshot!(svg);
    }

    #[test]
    fn names_have_no_character_that_xml_forbids() {
        let mut recording = recording();
        let frame = recording.number(Frame {
            space: Space::User,
            symbol: Some("a\u{ffff}b".to_owned()),
            object: "c\u{fffe}\u{1}d".to_owned(),
            address: None,
        });
        recording.stacks[0].frames.insert(0, frame);
        let root = tree(&recording, &Selection::default(), Weight::Samples);
        let svg = flame_graph(&recording, &root, Weight::Samples);
        assert!(svg.contains("a\u{fffd}b (c\u{fffd}\u{fffd}d): "), "{svg}");
        // XML 1.0, 2.2, `Char`: with another character no browser shows anything.
        let forbidden =
            |one: char| one < ' ' && !"\t\n\r".contains(one) || one == '\u{fffe}' || one == '\u{ffff}';
        assert!(!svg.contains(forbidden), "{svg:?}");
    }

    #[test]
    fn nothing_to_draw_is_said() {
        let recording = recording();
        let svg = flame_graph(&recording, &Node::default(), Weight::Away);
        assert!(svg.contains("There is nothing to draw"));
    }

    #[test]
    fn the_script_cannot_end_its_section() {
        assert!(!SCRIPT.contains("]]>") && !SCRIPT.contains("</"));
    }
}
