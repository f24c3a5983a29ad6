//! The running domains of a Xen host.

use exits::XenGuestType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenDomain {
    /// Its name.
    pub name: String,
    /// Its domain ID.
    pub id: u32,
    /// vCPUs.
    pub vcpus: u32,
    /// State letters (`r-----`).
    pub state: String,
    /// Its type, from `xl list -l`: `None` for a domain that was not started by `xl`.
    pub guest_type: Option<XenGuestType>,
}

impl XenDomain {
    /// Parses the output of `xl list`, which does not contain the types.
    pub(crate) fn list(text: &str) -> impl Iterator<Item = Self> {
        text.lines().filter_map(Self::parse)
    }

    /// Parses a line of `xl list`: `Name ID Mem VCPUs State Time(s)`. A name may contain blanks.
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line.trim_end();
        let mut last = || last_word(&mut rest);
        let (_, state, vcpus, _, id) = (last()?, last()?, last()?, last()?, last()?);
        Some(Self {
            name: rest.to_owned(),
            id: id.parse().ok()?,
            vcpus: vcpus.parse().ok()?,
            state: state.to_owned(),
            guest_type: None,
        })
    }

    /// Tests whether the domain can run. `xl list` (xl(1)) may also list domains that are shut down (`s`), crashed
    /// (`c`) or dying (`d`).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.state.contains(['s', 'c', 'd'])
    }
}

/// Removes the last word of a line of a table of `xl`. Lines are parsed from the end, because the name in the
/// first column may contain blanks.
pub(crate) fn last_word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (before, word) = rest.rsplit_once(char::is_whitespace)?;
    *rest = before.trim_end();
    Some(word)
}

/// Parses the output of `xl list`, with the types.
pub(crate) fn domains(text: &str, types: &BTreeMap<u32, XenGuestType>) -> Vec<XenDomain> {
    XenDomain::list(text)
        .map(|domain| XenDomain { guest_type: types.get(&domain.id).copied(), ..domain })
        .collect()
}

/// A domain of `xl list -l`, whose definition has more fields, such as the password of its display.
#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    domid: u32,
    config: Config,
}

#[derive(Debug, Serialize, Deserialize)]
struct Config {
    c_info: Creation,
}

#[derive(Debug, Serialize, Deserialize)]
struct Creation {
    #[serde(rename = "type")]
    guest_type: XenGuestType,
}

fn listed(text: &str) -> Vec<Listed> {
    let all: Vec<serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    // An entry that cannot be parsed does not affect the others.
    all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect()
}

/// The output of `xl list -l`, reduced to the types of the domains, in the same format.
pub(crate) fn types_alone(text: &str) -> String {
    serde_json::to_string(&listed(text)).unwrap_or_default()
}

/// The types from `xl list -l`, by domain number.
pub(crate) fn types(text: &str) -> BTreeMap<u32, XenGuestType> {
    listed(text).into_iter().map(|one| (one.domid, one.config.c_info.guest_type)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Output of Xen 4.20 in the lab, shortened.
    const LISTED: &str = r#"[
        { "domid": 0, "config": { "c_info": { "type": "pv", "name": "Domain-0" }, "b_info": {} } },
        { "domid": 1, "config": { "c_info": { "type": "pvh", "name": "pvh", "domid": 4294967295 },
          "b_info": { "cmdline": "secret=1" }, "vfbs": [ { "vnc": { "passwd": "secret" } } ] } },
        { "domid": 2, "config": { "c_info": { "name": "without a type" } } }
    ]"#;

    #[test]
    fn domains_have_the_types_that_are_listed() {
        let list = "Name                ID   Mem VCPUs\tState\tTime(s)\n\
            Domain-0             0  4096     4     r-----      62.2\nmy vm                1   512     2     -b----       1.0\n\
            other                2   512     2     -b----       1.0\n";
        let found = domains(list, &types(LISTED));
        let told: Vec<_> = found
            .iter()
            .map(|one| (one.name.as_str(), one.id, one.vcpus, one.state.as_str(), one.guest_type))
            .collect();
        let expected = [
            ("Domain-0", 0, 4, "r-----", Some(XenGuestType::Pv)),
            ("my vm", 1, 2, "-b----", Some(XenGuestType::Pvh)),
            ("other", 2, 2, "-b----", None),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn of_definitions_the_types_alone_are_kept() {
        let kept = types_alone(LISTED);
        assert!(!kept.contains("secret") && !kept.contains("passwd"), "{kept}");
        assert_eq!(types(&kept), types(LISTED));
        assert_eq!(types_alone(&kept), kept);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,100}", json in r#"\[(\{"domid":[0-9]{1,12}(,"config":\{\})?\},?){0,3}\]?"#) {
            let _ = (XenDomain::parse(&text), types(&text), types_alone(&json));
        }
    }
}
