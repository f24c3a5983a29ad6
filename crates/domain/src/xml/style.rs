//! New elements and attributes in the style of the text around them.

use super::node::Node;
use super::tree::Tree;
use std::fmt::Write;
use std::ops::Range;

/// A part of the text, and its replacement.
pub(crate) type Replacement = (Range<usize>, String);

/// A new element.
#[derive(Debug, Clone, Default)]
pub(crate) struct New {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) children: Vec<New>,
    pub(crate) text: String,
}

impl New {
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds an attribute.
    #[must_use]
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push((name.into(), value.into()));
        self
    }

    /// Adds a child.
    #[must_use]
    pub(crate) fn holding(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    /// Sets the text.
    #[must_use]
    pub(crate) fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }
}

/// The style of a text.
#[derive(Debug, Clone)]
pub(crate) struct Style {
    pub(crate) quote: char,
    pub(crate) newline: &'static str,
    /// One step of indentation.
    pub(crate) step: String,
}

impl Style {
    /// Detects the style of a text.
    pub(crate) fn of(tree: &Tree<'_>) -> Self {
        let quotes = |wanted: u8| {
            let attributes = tree.elements.iter().flat_map(|element| &element.attributes);
            attributes.filter(|one| tree.text.as_bytes().get(one.value.end) == Some(&wanted)).count()
        };
        let step = tree.roots.first().and_then(|&root| {
            let root = Node { tree, index: root };
            let outer = indentation(tree.text, root.element().tag.start)?;
            root.children().find_map(|child| {
                let inner = indentation(tree.text, child.element().tag.start)?;
                inner.strip_prefix(outer).filter(|step| !step.is_empty()).map(str::to_owned)
            })
        });
        Self {
            quote: if quotes(b'"') > quotes(b'\'') { '"' } else { '\'' },
            newline: if tree.text.contains("\r\n") { "\r\n" } else { "\n" },
            step: step.unwrap_or_else(|| "  ".into()),
        }
    }

    /// The element as text. `line` is the line end and indentation before it; `None` writes everything on one
    /// line.
    pub(crate) fn render(&self, new: &New, line: Option<&str>) -> String {
        let mut whole = format!("<{}", new.name);
        for (name, value) in &new.attributes {
            whole.push_str(&self.attribute(name, value));
        }
        if new.children.is_empty() && new.text.is_empty() {
            whole.push_str("/>");
            return whole;
        }
        whole.push('>');
        whole.push_str(&escape(&new.text, None));
        let deeper = line.map(|line| format!("{line}{}", self.step));
        for child in &new.children {
            whole.push_str(deeper.as_deref().unwrap_or_default());
            whole.push_str(&self.render(child, deeper.as_deref()));
        }
        if !new.children.is_empty() {
            whole.push_str(line.unwrap_or_default());
        }
        let _ = write!(whole, "</{}>", new.name);
        whole
    }

    /// An attribute with the space before it.
    fn attribute(&self, name: &str, value: &str) -> String {
        format!(" {name}={}{}{}", self.quote, escape(value, Some(self.quote)), self.quote)
    }

    /// Sets an attribute of an element.
    pub(crate) fn set_attribute(&self, node: Node<'_>, name: &str, value: &str) -> Vec<Replacement> {
        let text = node.tree.text;
        let element = node.element();
        match element.attributes.iter().find(|one| text[one.name.clone()] == *name) {
            Some(_) if node.get(name) == Some(value) => Vec::new(),
            Some(attribute) => {
                let quote = if text.as_bytes().get(attribute.value.end) == Some(&b'"') { '"' } else { '\'' };
                vec![(attribute.value.clone(), escape(value, Some(quote)))]
            }
            None => {
                let at = element.attributes.last().map_or(element.name.end, |last| last.value.end + 1);
                vec![(at..at, self.attribute(name, value))]
            }
        }
    }

    /// Removes an attribute, with the space before it.
    pub(crate) fn remove_attribute(&self, node: Node<'_>, name: &str) -> Vec<Replacement> {
        let text = node.tree.text;
        let attributes = &node.element().attributes;
        let found = attributes.iter().position(|one| text[one.name.clone()] == *name);
        let Some(position) = found else { return Vec::new() };
        let before = match position.checked_sub(1).and_then(|before| attributes.get(before)) {
            Some(before) => before.value.end + 1,
            None => node.element().name.end,
        };
        vec![(before..attributes[position].value.end + 1, String::new())]
    }

    /// Sets the text of an element without children.
    pub(crate) fn set_text(&self, node: Node<'_>, new: &str) -> Vec<Replacement> {
        let element = node.element();
        let new = escape(new, None);
        match &element.close {
            Some(close) => {
                let between = element.tag.end..close.start;
                let old = &node.tree.text[between.clone()];
                let start = between.start + (old.len() - old.trim_start().len());
                let end = (between.start + old.trim_end().len()).max(start);
                vec![(start..end, new)]
            }
            None => {
                let kept = node.tree.text[element.tag.clone()]
                    .trim_end_matches('>')
                    .trim_end_matches('/')
                    .trim_end();
                let part = element.tag.start + kept.len()..element.tag.end;
                vec![(part, format!(">{new}</{}>", node.full_name()))]
            }
        }
    }

    /// Inserts a child into an element, after the last one whose name is in `before`.
    pub(crate) fn insert(&self, parent: Node<'_>, before: &[&str], new: &New) -> Vec<Replacement> {
        let earlier = parent.children().rfind(|child| before.contains(&child.full_name()));
        match earlier {
            Some(sibling) => self.insert_after(sibling, new),
            None => self.insert_first(parent, new),
        }
    }

    /// Inserts an element after another one, on its own line if the other one is on its own line.
    pub(crate) fn insert_after(&self, sibling: Node<'_>, new: &New) -> Vec<Replacement> {
        let text = sibling.tree.text;
        match indentation(text, sibling.element().tag.start) {
            Some(indent) => {
                let line = format!("{}{indent}", self.newline);
                let at = end_of_line(text, sibling.end());
                vec![(at..at, format!("{line}{}", self.render(new, Some(&line))))]
            }
            None => vec![(sibling.end()..sibling.end(), self.render(new, None))],
        }
    }

    fn insert_first(&self, parent: Node<'_>, new: &New) -> Vec<Replacement> {
        let text = parent.tree.text;
        let element = parent.element();
        let outer = indentation(text, element.tag.start);
        // Put the new child on its parent's line if the other children are there.
        let first = parent.children().next();
        let inline = first.is_some_and(|child| indentation(text, child.element().tag.start).is_none());
        let indent = match (outer, first) {
            _ if inline => None,
            (_, Some(child)) => indentation(text, child.element().tag.start).map(str::to_owned),
            (Some(outer), None) => Some(format!("{outer}{}", self.step)),
            (None, None) => None,
        };
        let line = indent.map(|indent| format!("{}{indent}", self.newline));
        let body = format!("{}{}", line.as_deref().unwrap_or_default(), self.render(new, line.as_deref()));
        let back = match (&line, outer) {
            (Some(_), Some(outer)) => format!("{}{outer}", self.newline),
            _ => String::new(),
        };
        match &element.close {
            None => {
                // `<x/>` or `<x />` becomes `<x>...</x>`.
                let inside = &text[element.tag.clone()];
                let kept = inside.trim_end_matches('>').trim_end_matches('/').trim_end().len();
                let part = element.tag.start + kept..element.tag.end;
                vec![(part, format!(">{body}{back}</{}>", parent.full_name()))]
            }
            Some(close) => {
                let between = &text[element.tag.end..close.start];
                let at = element.tag.end;
                if between.contains('\n') || line.is_none() {
                    vec![(at..at, body)]
                } else {
                    vec![(at..at, format!("{body}{back}"))]
                }
            }
        }
    }

    /// Removes an element, with its line if nothing else is on it.
    pub(crate) fn remove(&self, node: Node<'_>) -> Vec<Replacement> {
        let text = node.tree.text;
        let start = node.element().tag.start;
        let end = node.end();
        let rest = &text[end..];
        let line_end = ["\r\n", "\n"].into_iter().find(|line_end| rest.starts_with(line_end));
        match (indentation(text, start), line_end) {
            (Some(indent), Some(line_end)) => {
                vec![(start - indent.len()..end + line_end.len(), String::new())]
            }
            _ => vec![(start..end, String::new())],
        }
    }
}

/// The indentation of a part that starts its line; `None` if something else precedes it on the line.
pub(crate) fn indentation(text: &str, start: usize) -> Option<&str> {
    let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let before = text[line..start].trim_start_matches('\u{feff}');
    before.bytes().all(|byte| byte == b' ' || byte == b'\t').then_some(before)
}

/// The end of a part's line if only comments follow there, else the end of the part.
fn end_of_line(text: &str, end: usize) -> usize {
    let mut at = end;
    loop {
        let rest = text[at..].trim_start_matches([' ', '\t']);
        let skipped = text.len() - rest.len();
        if rest.is_empty() || rest.starts_with(['\n', '\r']) {
            return at;
        }
        let Some(comment) = rest.strip_prefix("<!--").and_then(|rest| rest.find("-->")) else { return end };
        if rest[..comment].contains('\n') {
            return end;
        }
        at = skipped + 4 + comment + 3;
    }
}

/// The text with references for XML's special characters.
pub(crate) fn escape(text: &str, quote: Option<char>) -> String {
    let mut whole = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => whole.push_str("&amp;"),
            '<' => whole.push_str("&lt;"),
            '>' => whole.push_str("&gt;"),
            '\'' if quote == Some('\'') => whole.push_str("&apos;"),
            '"' if quote == Some('"') => whole.push_str("&quot;"),
            // XML 1.0 cannot represent other control characters, not even as character references.
            '\n' | '\r' | '\t' if quote.is_some() => {
                let _ = write!(whole, "&#{};", u32::from(character));
            }
            '\n' | '\t' => whole.push(character),
            _ if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {
                whole.push('\u{fffd}')
            }
            _ => whole.push(character),
        }
    }
    whole
}

#[cfg(test)]
#[path = "style_tests.rs"]
mod tests;
