//! Domains of Xen that are made for the study from the guest image.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Size;
use crate::study::Span;

/// Settings of xl.cfg(5) that the study gives by itself.
const OWN: [&str; 18] = [
    "name",
    "type",
    "builder",
    "kernel",
    "ramdisk",
    "cmdline",
    "extra",
    "root",
    "memory",
    "maxmem",
    "vcpus",
    "maxvcpus",
    "cpus",
    "disk",
    "vif",
    "on_poweroff",
    "on_reboot",
    "on_crash",
];

/// How each domain is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct XenImagePlan {
    /// How many run at once: one point of the study each, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
    /// The domains' type.
    #[serde(default, rename = "type")]
    pub kind: XenDomainType,
    /// vCPUs of each domain.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// Memory of each domain.
    #[serde(default = "memory")]
    pub memory: Size,
    /// Whether each has a network interface to dom0, carried by xen-netback, with addresses of its own.
    #[serde(default)]
    pub net: bool,
    /// CPUs of the hypervisor on which vCPUs are held: the first vCPU of the first domain on the first, and so on, over all
    /// domains, beginning anew at the end of the list. `[1]` puts the vCPUs of all domains on CPU 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<u32>,
    /// Further settings of xl.cfg(5) by name, such as `cap = 50` or `tsc_mode = "native"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, XlValue>,
    /// Arguments for the domain's kernel beyond those it is always given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_arguments: Vec<String>,
    /// Within which a domain must answer.
    #[serde(default = "start_limit")]
    pub start_limit: Span,
}

/// The type of a domain whose exits can be counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum XenDomainType {
    /// Hardware virtualization without a device model.
    #[default]
    Pvh,
    /// Hardware virtualization with QEMU as its device model.
    Hvm,
}

impl XenDomainType {
    /// As xl.cfg(5) has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pvh => "pvh",
            Self::Hvm => "hvm",
        }
    }
}

/// A value of xl.cfg(5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum XlValue {
    /// A number.
    Number(i64),
    /// A string.
    Text(String),
    /// A list of strings.
    List(Vec<String>),
}

impl XenImagePlan {
    pub(super) fn problems(&self, problems: &mut Vec<String>) {
        if !(1..=128).contains(&self.vcpus) {
            problems.push("guests.vcpus must be 1 to 128".to_owned());
        }
        if self.memory < Size::mib(128) {
            let what = "guests.memory is less than 128M, with which the guest image does not start";
            problems.push(what.to_owned());
        }
        for (name, value) in &self.settings {
            if OWN.contains(&name.as_str()) {
                problems.push(format!(
                    "guests.settings.{name} is given by the study; see the other fields of guests"
                ));
            }
            let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if name.is_empty() || !name.chars().all(letter) {
                problems.push(format!("guests.settings: {name:?} is no name of a setting of xl.cfg(5)"));
            }
            let texts = match value {
                XlValue::Number(_) => &[][..],
                XlValue::Text(text) => std::slice::from_ref(text),
                XlValue::List(texts) => texts,
            };
            if texts.iter().any(|text| text.contains(['"', '\n', '\\'])) {
                problems.push(format!(
                    "guests.settings.{name}: expected text without quotation marks, backslashes and line ends, which \
                     xl.cfg(5) cannot have in a string"
                ));
            }
        }
    }
}

fn one() -> u32 {
    1
}

fn memory() -> Size {
    Size::mib(512)
}

fn start_limit() -> Span {
    Span::seconds(180)
}
