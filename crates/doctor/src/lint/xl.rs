//! Rules over definitions of Xen's guests (xl.cfg).

mod devices;
mod guest;
mod timers;

use super::rule::Rule;
use super::subject::Subject;
use domain::{Place, Set};

pub(super) use devices::RULES as DEVICES;
pub(super) use guest::RULES as GUEST;
pub(super) use timers::RULES as TIMERS;

impl<'a> Subject<'a> {
    /// A setting of xl.cfg for which the definition has no field, with its place.
    fn setting(&self, name: &str) -> Option<(&'a str, &'a Place)> {
        let set: &Set<(String, String)> = self.vm.other.iter().rev().find(|set| set.value.0 == name)?;
        Some((set.value.1.trim(), &set.place))
    }

    /// The value of a boolean setting: any number except zero is on (`xlu_cfg_get_defbool`).
    fn switched(&self, name: &str) -> Option<(bool, &'a Place)> {
        let (value, place) = self.setting(name)?;
        let digits = value.strip_prefix("0x").unwrap_or(value);
        Some((digits.bytes().any(|digit| digit != b'0') && !digits.is_empty(), place))
    }
}

/// A row of the table. Its changes are left to people: exitless does not edit xl.cfg.
const fn row(
    name: &'static str,
    title: &'static str,
    why: &'static str,
    source: &'static str,
    check: fn(&Subject<'_>) -> super::rule::Verdict,
) -> Rule {
    Rule { name, title, why, source, guest_follows: false, needs_kvm: false, check }
}

#[cfg(test)]
#[path = "xl/xl_tests.rs"]
mod tests;
