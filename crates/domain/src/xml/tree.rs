//! Elements with their places.

use super::tag::{Attribute, attributes, decode};
use crate::Error;
use quick_xml::Reader;
use quick_xml::events::Event;
use std::ops::Range;

/// The size limit in bytes: libvirt itself refuses domain files above 10 MiB, but dumps with metadata may be
/// larger.
const MOST_BYTES: usize = 100 << 20;
/// The limit of nesting in libxml2, which libvirt uses.
const DEEPEST: usize = 256;
/// The largest number of elements: a domain with a thousand vCPUs and devices has about ten thousand.
const MOST_ELEMENTS: usize = 200_000;
/// The longest name; names are repeated in paths.
const LONGEST_NAME: usize = 256;

/// An element.
#[derive(Debug)]
pub(crate) struct Element {
    /// Its name, with the prefix of its namespace.
    pub(crate) name: Range<usize>,
    /// From `<` to the byte after `>` of its start tag.
    pub(crate) tag: Range<usize>,
    /// The range of its end tag; `None` for `<x/>`.
    pub(crate) close: Option<Range<usize>>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) children: Vec<usize>,
    pub(crate) parent: Option<usize>,
    /// The line of its `<`, from 1.
    pub(crate) line: usize,
    /// The text between its children, without references.
    pub(crate) text: String,
}

/// A text as elements.
#[derive(Debug)]
pub(crate) struct Tree<'t> {
    pub(crate) text: &'t str,
    pub(crate) elements: Vec<Element>,
    /// The topmost elements; one in well-formed XML.
    pub(crate) roots: Vec<usize>,
}

const FORM: &str = "Give libvirt's XML of a domain, as `virsh dumpxml` prints it";

impl<'t> Tree<'t> {
    /// Reads all elements of a text.
    pub(crate) fn read(name: &str, bytes: &'t [u8]) -> Result<Self, Error> {
        let text = plain_text(name, bytes)?;
        let mut builder = Builder {
            name,
            tree: Self { text, elements: Vec::new(), roots: Vec::new() },
            open: Vec::new(),
            line: 1,
            counted: 0,
        };
        // Places include the byte order mark, which the parser does not see.
        let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        // The parser itself also skips a mark: with a second one, its places would be off by three bytes.
        if text[mark..].starts_with('\u{feff}') {
            return Err(builder.error(mark, "it has a second byte order mark"));
        }
        let mut reader = Reader::from_str(&text[mark..]);
        let offset = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).saturating_add(mark);
        loop {
            let start = offset(reader.buffer_position());
            match reader.read_event() {
                Ok(Event::Eof) => break,
                Ok(event) => builder.take(&event, start..offset(reader.buffer_position()))?,
                Err(error) => {
                    let problem = error.to_string().replace('`', "");
                    let problem = problem.trim_start_matches("ill-formed document: ");
                    return Err(builder.error(offset(reader.error_position()), problem));
                }
            }
        }
        builder.finish()
    }
}

struct Builder<'t, 'n> {
    name: &'n str,
    tree: Tree<'t>,
    open: Vec<usize>,
    /// The line of the byte `counted`.
    line: usize,
    counted: usize,
}

impl<'t> Builder<'t, '_> {
    fn take(&mut self, event: &Event<'_>, span: Range<usize>) -> Result<(), Error> {
        match event {
            Event::Start(tag) => {
                let name = tag.name().as_ref().len();
                self.element(span, name, tag.len())?;
                let index = self.tree.elements.len() - 1;
                self.open.push(index);
                if self.open.len() > DEEPEST {
                    let start = self.tree.elements[index].tag.start;
                    return Err(self.error(start, &format!("it is nested more than {DEEPEST} elements deep")));
                }
            }
            Event::Empty(tag) => self.element(span, tag.name().as_ref().len(), tag.len())?,
            Event::End(_) => {
                if let Some(index) = self.open.pop() {
                    self.tree.elements[index].close = Some(span);
                }
            }
            Event::Text(_) => self.text(span)?,
            Event::GeneralRef(_) => self.text(span)?,
            Event::CData(data) => {
                // Between `<![CDATA[` and `]]>`.
                let start = span.start + 9;
                let raw = self.tree.text.get(start..start + data.len()).unwrap_or_default();
                if let Some(&index) = self.open.last() {
                    self.tree.elements[index].text.push_str(raw);
                }
            }
            Event::DocType(_) => {
                let mut error = self.error(
                    span.start,
                    "it has a document type definition; entities in one can grow without limit, and are not read",
                );
                error.advice = "Remove the DOCTYPE: libvirt's XML has none".into();
                return Err(error);
            }
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) | Event::Eof => {}
        }
        Ok(())
    }

    fn element(&mut self, tag: Range<usize>, name: usize, content: usize) -> Result<(), Error> {
        let start = tag.start + 1;
        if self.tree.elements.len() == MOST_ELEMENTS {
            return Err(self.error(tag.start, &format!("it has more than {MOST_ELEMENTS} elements")));
        }
        if name == 0 {
            return Err(self.error(tag.start, "an element has no name"));
        }
        if name > LONGEST_NAME {
            return Err(
                self.error(tag.start, &format!("an element's name has more than {LONGEST_NAME} bytes"))
            );
        }
        let attributes = attributes(self.tree.text, start + name..start + content)
            .map_err(|(at, problem)| self.error(at, &problem))?;
        let index = self.tree.elements.len();
        let parent = self.open.last().copied();
        let line = self.line_of(tag.start);
        self.tree.elements.push(Element {
            name: start..start + name,
            tag,
            close: None,
            attributes,
            children: Vec::new(),
            parent,
            line,
            text: String::new(),
        });
        match parent {
            Some(parent) => self.tree.elements[parent].children.push(index),
            None => self.tree.roots.push(index),
        }
        Ok(())
    }

    fn text(&mut self, span: Range<usize>) -> Result<(), Error> {
        let raw = self.tree.text.get(span.clone()).unwrap_or_default();
        let decoded = decode(raw).map_err(|(at, problem)| self.error(span.start + at, &problem))?;
        match self.open.last() {
            Some(&index) => self.tree.elements[index].text.push_str(&decoded),
            None if decoded.trim_matches([' ', '\t', '\r', '\n']).is_empty() => {}
            None => {
                let at = span.start + raw.find(|character: char| !character.is_whitespace()).unwrap_or(0);
                return Err(self.error(at, "there is text outside of all elements"));
            }
        }
        Ok(())
    }

    /// The line of a byte. Calls come in the order of the text, so every line end is counted once.
    fn line_of(&mut self, at: usize) -> usize {
        let between = self.tree.text.as_bytes().get(self.counted..at).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count();
        self.counted = at.max(self.counted);
        self.line
    }

    fn error(&self, at: usize, problem: &str) -> Error {
        let before = &self.tree.text.as_bytes()[..at.min(self.tree.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Error::new(
            self.name,
            format!("it is not well-formed XML (column {column}, byte {at}): {problem}"),
            FORM,
        )
        .at_line(line)
    }

    fn finish(self) -> Result<Tree<'t>, Error> {
        if let Some(&index) = self.open.last() {
            let element = &self.tree.elements[index];
            let name = &self.tree.text[element.name.clone()];
            let mut error = self.error(element.tag.start, &format!("<{name}> is not closed before its end"));
            error.advice = "Is the file complete?".into();
            return Err(error);
        }
        if self.tree.roots.is_empty() {
            return Err(Error::new(self.name, "it has no element", FORM));
        }
        Ok(self.tree)
    }
}

/// The bytes as text, or the reason why they are not accepted.
fn plain_text<'t>(name: &str, bytes: &'t [u8]) -> Result<&'t str, Error> {
    if bytes.len() > MOST_BYTES {
        let problem = format!("it has {} bytes; more than 100 MiB are not read", bytes.len());
        return Err(Error::new(name, problem, FORM));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Error::new(name, "it is written in UTF-16; only UTF-8 is read", recode("UTF-16")));
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
    if let Some(encoding) = encoding(head.trim_start_matches('\u{feff}'))
        && !["utf-8", "utf8", "us-ascii", "ascii"].contains(&encoding.to_ascii_lowercase().as_str())
    {
        let problem = format!("it is written in {encoding:?}; only UTF-8 is read");
        return Err(Error::new(name, problem, recode(encoding)));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::new(name, format!("it is not UTF-8 at byte {at}"), recode("ENCODING")).at_line(line)
    })
}

fn recode(encoding: &str) -> String {
    format!("Convert it: iconv -f {encoding} -t UTF-8, and remove the encoding from its first line")
}

/// The encoding in the XML declaration.
fn encoding(head: &str) -> Option<&str> {
    let declaration = head.strip_prefix("<?xml")?.split("?>").next()?;
    let value = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    value[1..].split(quote).next()
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
