//! An element in its tree.

use super::tree::{Element, Tree};
use crate::{Place, Set};

/// The largest number of characters of a part that is shown as evidence.
const LONGEST: usize = 160;
/// Attributes that hold secrets: passwords of `<graphics>`.
pub(crate) const SECRET: [&str; 2] = ["passwd", "password"];

/// An element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'t> {
    pub(crate) tree: &'t Tree<'t>,
    pub(crate) index: usize,
}

/// A value with its place: an attribute's, or an element's text.
#[derive(Debug, Clone)]
pub(crate) struct Value<'t> {
    pub(crate) text: &'t str,
    pub(crate) place: Place,
}

impl<'t> Value<'t> {
    /// Another value with the same place.
    pub(crate) fn set<T>(&self, value: T) -> Set<T> {
        Set::new(value, self.place.clone())
    }

    /// The text as a value.
    pub(crate) fn string(&self) -> Set<String> {
        self.set(self.text.to_owned())
    }

    /// The text as a number, if it is one.
    pub(crate) fn number<N: std::str::FromStr>(&self) -> Option<Set<N>> {
        self.text.parse().ok().map(|number| self.set(number))
    }

    /// `on` and `yes`, `off` and `no`.
    pub(crate) fn switch(&self) -> Option<Set<bool>> {
        match self.text {
            "on" | "yes" => Some(self.set(true)),
            "off" | "no" => Some(self.set(false)),
            _ => None,
        }
    }
}

impl<'t> Node<'t> {
    pub(crate) fn element(self) -> &'t Element {
        &self.tree.elements[self.index]
    }

    const fn at(self, index: usize) -> Self {
        Self { tree: self.tree, index }
    }

    /// The name as written.
    pub(crate) fn full_name(self) -> &'t str {
        &self.tree.text[self.element().name.clone()]
    }

    /// The name without the prefix of its namespace; libvirt's own elements have none.
    pub(crate) fn name(self) -> &'t str {
        let name = self.full_name();
        name.split_once(':').map_or(name, |(_, local)| local)
    }

    /// The namespace of its prefix.
    pub(crate) fn namespace(self) -> Option<&'t str> {
        let declaration = match self.full_name().split_once(':') {
            Some((prefix, _)) => format!("xmlns:{prefix}"),
            None => "xmlns".to_owned(),
        };
        let mut at = Some(self);
        while let Some(node) = at {
            if let Some(value) = node.attribute(&declaration) {
                return Some(value.text);
            }
            at = node.parent();
        }
        None
    }

    pub(crate) fn parent(self) -> Option<Self> {
        self.element().parent.map(|index| self.at(index))
    }

    /// The children, in the order of the text.
    pub(crate) fn children(self) -> impl DoubleEndedIterator<Item = Self> + 't {
        self.element().children.iter().map(move |index| self.at(*index))
    }

    /// The children of this name.
    pub(crate) fn all(self, name: &'t str) -> impl DoubleEndedIterator<Item = Self> + 't {
        self.children().filter(move |child| child.full_name() == name)
    }

    /// The first child of this name, or of a path `a/b`.
    pub(crate) fn child(self, path: &str) -> Option<Self> {
        path.split('/').try_fold(self, |node, name| node.children().find(|child| child.full_name() == name))
    }

    /// An attribute's value.
    pub(crate) fn attribute(self, name: &str) -> Option<Value<'t>> {
        let tree = self.tree;
        let attribute = self.element().attributes.iter().find(|one| tree.text[one.name.clone()] == *name)?;
        let text = attribute.decoded.as_deref().unwrap_or(&tree.text[attribute.value.clone()]);
        // The place includes the name and the closing quotation mark, so that both name and value are shown.
        let written = &tree.text[attribute.name.start..attribute.value.end + 1];
        let before = &tree.text.as_bytes()[self.element().tag.start..attribute.name.start];
        let line = self.element().line + before.iter().filter(|byte| **byte == b'\n').count();
        let shown = if SECRET.contains(&name) { format!("{name}='***'") } else { shorten(written) };
        let place = Place { start: attribute.value.start, end: attribute.value.end, line, text: shown };
        Some(Value { text, place })
    }

    /// An attribute's value without its place.
    pub(crate) fn get(self, name: &str) -> Option<&'t str> {
        let tree = self.tree;
        let attribute = self.element().attributes.iter().find(|one| tree.text[one.name.clone()] == *name)?;
        Some(attribute.decoded.as_deref().unwrap_or(&tree.text[attribute.value.clone()]))
    }

    /// The value at a path: an attribute for `a/b@c` or `@c`, an element's text for `a/b`.
    pub(crate) fn value(self, path: &str) -> Option<Value<'t>> {
        match path.split_once('@') {
            Some(("", name)) => self.attribute(name),
            Some((path, name)) => self.child(path)?.attribute(name),
            None => Some(self.child(path)?.text()),
        }
    }

    /// The text at a path, as [`Self::value`], without its place.
    pub(crate) fn find(self, path: &str) -> Option<&'t str> {
        match path.split_once('@') {
            Some(("", name)) => self.get(name),
            Some((path, name)) => self.child(path)?.get(name),
            None => Some(self.child(path)?.element().text.trim()),
        }
    }

    /// Its text without the white space around it.
    pub(crate) fn text(self) -> Value<'t> {
        Value { text: self.element().text.trim(), place: self.place() }
    }

    /// The byte after its end.
    pub(crate) fn end(self) -> usize {
        self.element().close.as_ref().unwrap_or(&self.element().tag).end
    }

    /// Its whole place.
    pub(crate) fn place(self) -> Place {
        let element = self.element();
        let whole = element.tag.start..self.end();
        let text = if element.children.is_empty() { whole.clone() } else { element.tag.clone() };
        let mut shown = shorten(&self.tree.text[text]);
        for attribute in &element.attributes {
            let name = &self.tree.text[attribute.name.clone()];
            let value = &self.tree.text[attribute.value.clone()];
            if SECRET.contains(&name) && !value.is_empty() {
                shown = format!("<{} ...>", self.full_name());
            }
        }
        Place { start: whole.start, end: whole.end, line: element.line, text: shown }
    }
}

/// One line of at most [`LONGEST`] characters.
fn shorten(text: &str) -> String {
    let mut short = String::new();
    for (number, word) in text.split_whitespace().enumerate() {
        if number > 0 {
            short.push(' ');
        }
        short.push_str(word.get(..LONGEST).unwrap_or(word));
        if short.chars().count() > LONGEST {
            return short.chars().take(LONGEST).chain("...".chars()).collect();
        }
    }
    short
}
