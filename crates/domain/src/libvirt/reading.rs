//! The state of the reader, which all its parts use.

use crate::xml::{Node, Value};
use crate::{Definition, Form, Set};
use std::str::FromStr;

/// The limit of vCPUs and I/O threads, which no machine type reaches.
pub(super) const MOST_THREADS: u32 = 4096;

/// A definition under construction.
#[derive(Debug)]
pub(super) struct Reading<'t> {
    pub(super) domain: Node<'t>,
    pub(super) definition: Definition,
}

impl<'t> Reading<'t> {
    pub(super) fn of(domain: Node<'t>) -> Self {
        Self { domain, definition: Definition::empty(Form::Libvirt) }
    }

    /// A number at a path; a doubt if it is something else.
    pub(super) fn number<N: FromStr>(&mut self, node: Node<'t>, path: &str) -> Option<Set<N>> {
        let value = node.value(path)?;
        let number = value.number();
        if number.is_none() {
            self.doubt(&value, "a number");
        }
        number
    }

    /// `on` or `off`, `yes` or `no` at a path; a doubt if it is something else.
    pub(super) fn switch(&mut self, node: Node<'t>, path: &str) -> Option<Set<bool>> {
        let value = node.value(path)?;
        let switch = value.switch();
        if switch.is_none() {
            self.doubt(&value, "on or off");
        }
        switch
    }

    /// `<x state='on'/>`, for which `<x/>` is short.
    pub(super) fn state(&mut self, node: Node<'t>) -> Option<Set<bool>> {
        match node.attribute("state") {
            None => Some(Set::new(true, node.place())),
            Some(_) => {
                let state = self.switch(node, "@state")?;
                Some(Set::new(state.value, node.place()))
            }
        }
    }

    pub(super) fn doubt(&mut self, value: &Value<'_>, expected: &str) {
        let place = &value.place;
        let doubt = format!("Line {}: {} is not known; {expected} was expected.", place.line, place.text);
        self.definition.doubts.push(doubt);
    }

    /// The entry of a list of known values; a doubt if it is not in the list.
    pub(super) fn one_of<T: Copy>(&mut self, value: &Value<'_>, known: &[(&str, T)]) -> Option<Set<T>> {
        let found = known.iter().find(|(name, _)| *name == value.text);
        if found.is_none() {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            self.doubt(value, &format!("one of {}", names.join(", ")));
        }
        found.map(|(_, meaning)| value.set(*meaning))
    }
}
