//! Guests that already exist, and how commands reach them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;

/// Domains of libvirt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibvirtPlan {
    /// Numbers of guests that run at once; all of them if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
    /// Their names, in the order in which they are started.
    pub domains: Vec<String>,
    /// The connection URI for virsh; qemu:///system if not given.
    #[serde(default = "system_connection")]
    pub connect: String,
    /// The channel for commands.
    #[serde(default)]
    pub channel: AgentChannel,
    /// The login of ssh, with channel = "ssh".
    #[serde(default)]
    pub ssh: SshAccess,
    /// Addresses, in the order of the domains; those that libvirt reports if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The time within which a started domain must answer.
    #[serde(default = "start_limit")]
    pub start_limit: Span,
}

/// The channel for commands to a domain of libvirt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentChannel {
    /// The QEMU guest agent, which must run in the guest with guest-exec allowed.
    #[default]
    GuestAgent,
    /// By ssh.
    Ssh,
}

/// Domains of Xen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct XenPlan {
    /// Numbers of guests that run at once; all of them if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
    /// Names of running domains, or paths of xl configuration files from which they are created and then shut down.
    pub domains: Vec<String>,
    /// The login of ssh.
    #[serde(default)]
    pub ssh: SshAccess,
    /// Their addresses, in the order of the domains: commands are sent by ssh.
    pub addresses: Vec<String>,
    /// The time within which a created domain must answer.
    #[serde(default = "start_limit")]
    pub start_limit: Span,
}

/// Machines reached by ssh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshPlan {
    /// Numbers of machines that take part at once; all of them if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
    /// Names or addresses, in the order of use. ssh's own configuration applies.
    pub addresses: Vec<String>,
    /// The login of ssh.
    #[serde(default)]
    pub ssh: SshAccess,
    /// The time within which a machine must answer.
    #[serde(default = "start_limit")]
    pub start_limit: Span,
}

/// The login of ssh: settings that are not given are left to ssh and its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshAccess {
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The private key's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Further options, each as for ssh -o.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The host as a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Numbers of scripts that run side by side; one if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
}

/// No guests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoPlan {}

fn system_connection() -> String {
    "qemu:///system".to_owned()
}

fn start_limit() -> Span {
    Span::seconds(180)
}
