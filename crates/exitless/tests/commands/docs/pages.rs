//! The pages, their prose and their code blocks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A page of the repository.
pub(super) struct Page {
    /// The path from the top of the repository.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A fenced block of a page.
pub(super) struct Block {
    /// The line number of the opening fence.
    pub(super) line: usize,
    pub(super) language: String,
    /// The comment on the line above the block, without its delimiters: the origin of the block.
    pub(super) mark: Option<String>,
    pub(super) lines: Vec<String>,
}

pub(super) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> Page {
    let text = std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Page { path: path.into(), text }
}

/// The pages of the book, including the table of contents.
pub(super) fn book() -> Vec<Page> {
    let files = std::fs::read_dir(top().join("docs")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.sort();
    names.iter().map(|name| read(&format!("docs/{name}"))).collect()
}

/// The pages for users: the book, and those at the top of the repository.
pub(super) fn for_users() -> Vec<Page> {
    let mut pages = book();
    pages.extend(["README.md", "CHANGELOG.md", "SECURITY.md"].map(read));
    pages
}

pub(super) fn all() -> Vec<Page> {
    let mut pages = for_users();
    let others = [
        "CONTRIBUTING.md",
        "fuzz/README.md",
        "crates/lab/patches/bochs/README.md",
        "crates/lab/patches/qemu/README.md",
    ];
    pages.extend(others.map(read));
    pages
}

impl Page {
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_fence(line: &str) -> bool {
        line.trim_start().starts_with("```")
    }

    /// The lines, with those inside fenced blocks replaced by empty ones.
    fn open_lines(&self) -> impl Iterator<Item = &str> {
        let mut inside = false;
        self.text.lines().map(move |line| {
            let fence = Self::is_fence(line);
            inside ^= fence;
            if inside || fence { "" } else { line }
        })
    }

    /// The text without code.
    pub(super) fn prose(&self) -> String {
        let text = self.open_lines().collect::<Vec<_>>().join("\n");
        text.split('`').step_by(2).collect()
    }

    /// The words in backticks, without those of fenced blocks.
    pub(super) fn coded(&self) -> BTreeSet<String> {
        let text = self.open_lines().collect::<Vec<_>>().join("\n");
        let is_end = |one: char| !one.is_ascii_alphanumeric() && one != '_' && one != '-';
        let spans = text.split('`').skip(1).step_by(2);
        spans.flat_map(|span| span.split(is_end)).map(str::to_owned).collect()
    }

    /// The headings: the line's number from 0, the level, the text.
    fn headings(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        self.open_lines().enumerate().filter_map(|(number, line)| {
            let heading = line.trim_start_matches('#');
            let level = line.len() - heading.len();
            let text = if level > 0 { heading.strip_prefix(' ') } else { None };
            text.map(|text| (number, level, text))
        })
    }

    /// The section with this anchor, including those below it.
    pub(super) fn section(&self, anchor: &str) -> Option<Self> {
        let at = self.anchors().iter().position(|own| own == anchor)?;
        let mut headings = self.headings().skip(at);
        let (first, level, _) = headings.next()?;
        let end = headings.find(|&(_, other, _)| other <= level).map_or(usize::MAX, |(number, ..)| number);
        let lines: Vec<&str> = self.text.lines().skip(first).take(end - first).collect();
        Some(Self { path: self.path.clone(), text: lines.join("\n") })
    }

    /// The anchors of the headings, as GitHub and mdBook make them.
    pub(super) fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, _, heading) in self.headings() {
            let kept = heading.trim().to_lowercase();
            let kept = kept.chars().filter(|one| one.is_alphanumeric() || "-_ ".contains(*one));
            let anchor: String = kept.map(|one| if one == ' ' { '-' } else { one }).collect();
            let again = anchors.iter().filter(|other| **other == anchor).count();
            anchors.push(if again == 0 { anchor } else { format!("{anchor}-{again}") });
        }
        anchors
    }

    /// The targets of links and pictures.
    pub(super) fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(|(target, _)| target.to_owned()).collect()
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut inside, mut above) = (false, "");
        for (number, line) in self.text.lines().enumerate() {
            if Self::is_fence(line) {
                inside = !inside;
                if inside {
                    let mark = above.strip_prefix("<!-- ").and_then(|text| text.strip_suffix(" -->"));
                    blocks.push(Block {
                        line: number + 1,
                        language: line.trim_start().trim_start_matches('`').to_owned(),
                        mark: mark.map(str::to_owned),
                        lines: Vec::new(),
                    });
                }
            } else if inside {
                blocks.last_mut().unwrap().lines.push(line.to_owned());
            }
            if !line.trim().is_empty() {
                above = line;
            }
        }
        assert!(!inside, "{}: a block is not closed", self.name());
        blocks
    }
}

#[test]
fn a_page_is_taken_apart() {
    let text = "# One `two`: three\n\nA [link](a.md#b) and `code](c)`.\n\n<!-- lab: xen -->\n```text\n# no heading\n```\n## One two three\n";
    let page = Page { path: "page.md".into(), text: text.to_owned() };
    assert_eq!(page.anchors(), ["one-two-three", "one-two-three-1"]);
    assert_eq!(page.links(), ["a.md#b"]);
    assert_eq!(page.coded().iter().collect::<Vec<_>>(), ["", "c", "code", "two"]);
    let [block] = &page.blocks()[..] else { panic!() };
    assert_eq!((block.line, &block.language[..], block.mark.as_deref()), (6, "text", Some("lab: xen")));
    assert_eq!(block.lines, ["# no heading"]);
}
