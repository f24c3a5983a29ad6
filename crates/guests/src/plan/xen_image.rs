//! Domains of Xen that are created for the study from the guest image.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Size;
use crate::Span;

/// Settings of xl.cfg(5) that the study sets itself.
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

/// The settings of each domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct XenImagePlan {
    /// Numbers of domains that run at once: one point of the study each, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
    /// The domains' type.
    #[serde(default, rename = "type")]
    pub kind: XenDomainType,
    /// The number of vCPUs of each domain.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// The memory of each domain.
    #[serde(default = "memory")]
    pub memory: Size,
    /// Each domain has a network interface to dom0, served by xen-netback, with its own addresses.
    #[serde(default)]
    pub net: bool,
    /// The bytes a second that each domain may send: `rate` of xl-network-configuration(5), which xen-netback
    /// keeps to in steps of 50 ms. It does not limit what a domain receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_rate: Option<Size>,
    /// CPUs of the hypervisor to which vCPUs are pinned, in turn over the vCPUs of all domains, starting
    /// again at the end of the list. `[1]` pins the vCPUs of all domains to CPU 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<u32>,
    /// Further settings of xl.cfg(5) by name, such as `cap = 50` or `tsc_mode = "native"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, XlValue>,
    /// Further arguments for the domain's kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_arguments: Vec<String>,
    /// The time within which a domain must answer.
    #[serde(default = "start_limit")]
    pub start_limit: Span,
}

/// The type of a domain, of those whose exits can be counted.
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
    /// The name in xl.cfg(5).
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
            let what = "guests.memory is less than 128M, too little for the guest image";
            problems.push(what.to_owned());
        }
        if let Some(rate) = self.net_rate {
            if !self.net {
                problems.push("guests.net_rate needs net = true".to_owned());
            }
            if !(Size::kib(64)..=Size::mib(64 << 10)).contains(&rate) {
                problems.push(format!("guests.net_rate is {rate} a second; expected 64K to 64G"));
            }
        }
        for (name, value) in &self.settings {
            if OWN.contains(&name.as_str()) {
                problems.push(format!(
                    "guests.settings.{name} is set by the study; see the other fields of guests"
                ));
            }
            let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if name.is_empty() || !name.chars().all(letter) {
                problems.push(format!("guests.settings: {name:?} is not a setting of xl.cfg(5)"));
            }
            let texts = match value {
                XlValue::Number(_) => &[][..],
                XlValue::Text(text) => std::slice::from_ref(text),
                XlValue::List(texts) => texts,
            };
            check_texts(&format!("guests.settings.{name}"), texts, problems);
        }
        check_texts("guests.kernel_arguments", &self.kernel_arguments, problems);
    }
}

fn check_texts(field: &str, texts: &[String], problems: &mut Vec<String>) {
    if texts.iter().any(|text| text.contains(['"', '\n', '\\'])) {
        problems.push(format!(
            "{field}: expected text without quotation marks, backslashes and line ends, which xl.cfg(5) cannot have in a \
             string"
        ));
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
