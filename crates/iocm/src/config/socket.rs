//! The owner, group and mode of device sockets.

use super::ConfigError;
use crate::accounts::{AccountError, group_of, user_of};
use crate::socket_file::SocketAccess;
use serde::{Deserialize, Serialize};

/// The section `[sockets]`: values for all devices that have none of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SocketsConfig {
    /// The user who owns the sockets: a name or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Their group: a name or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Their mode in octal digits, such as `0660`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

impl SocketsConfig {
    /// These values; missing ones come from `others`.
    pub(crate) fn or(&self, others: &Self) -> Self {
        let either = |one: &Option<String>, other: &Option<String>| one.clone().or_else(|| other.clone());
        Self {
            owner: either(&self.owner, &others.owner),
            group: either(&self.group, &others.group),
            mode: either(&self.mode, &others.mode),
        }
    }

    /// Checks the mode.
    pub(super) fn check(&self, of: &str) -> Result<(), ConfigError> {
        match self.mode.as_deref().filter(|text| mode(text).is_none()) {
            Some(text) => Err(ConfigError::Invalid(format!(
                "`{text}` is not the mode of a socket of {of}: expected octal digits such as 0660, up to 0777"
            ))),
            None => Ok(()),
        }
    }

    /// Looks up the names. Without a mode, the sockets are for the group if one is named, else for the owner alone.
    pub(crate) fn access(&self) -> Result<SocketAccess, AccountError> {
        let user = self.owner.as_deref().map(user_of).transpose()?.map(|account| account.user);
        let group = self.group.as_deref().map(group_of).transpose()?;
        let usual = match (user, group) {
            (_, Some(_)) => Some(0o660),
            (Some(_), None) => Some(0o600),
            (None, None) => None,
        };
        let mode = self.mode.as_deref().and_then(mode).or(usual);
        Ok(SocketAccess { user, group, mode, less_umask: false })
    }
}

fn mode(text: &str) -> Option<u32> {
    let is_octal = !text.is_empty() && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    is_octal.then(|| u32::from_str_radix(text, 8).ok()).flatten().filter(|mode| *mode <= 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const DEVICE: &str = "[[device]]\nname = \"a\"\ntype = \"block\"\nsocket = \"/run/a\"\n";

    fn access(sockets: &str, device: &str) -> SocketAccess {
        let config = Config::parse(&format!("[sockets]\n{sockets}\n{DEVICE}{device}")).unwrap();
        config.devices[0].sockets().or(&config.sockets).access().unwrap()
    }

    #[test]
    fn a_device_has_what_it_says_and_else_what_all_have() {
        let none = SocketAccess::default();
        assert_eq!(access("", ""), none);
        assert_eq!(access("group = \"12\"", ""), SocketAccess { group: Some(12), mode: Some(0o660), ..none });
        assert_eq!(access("owner = \"7\"", ""), SocketAccess { user: Some(7), mode: Some(0o600), ..none });
        let all = "owner = \"7\"\ngroup = \"8\"\nmode = \"0600\"";
        let own = "socket-owner = \"root\"\nsocket-mode = \"0666\"";
        assert_eq!(
            access(all, own),
            SocketAccess { user: Some(0), group: Some(8), mode: Some(0o666), ..none }
        );
    }

    #[test]
    fn what_is_no_mode_is_refused_and_so_is_nobody() {
        for mode in ["", "rw", "0o660", "-1", "1777", "888", "77777777777777777777"] {
            let text = format!("{DEVICE}socket-mode = \"{mode}\"");
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.contains("of a: expected octal digits"), "{error}");
            let error = Config::parse(&format!("[sockets]\nmode = \"{mode}\"")).unwrap_err().to_string();
            assert!(error.contains("of [sockets]"), "{error}");
        }
        let nobody = SocketsConfig { owner: Some("nobody-at-all".to_owned()), ..SocketsConfig::default() };
        assert!(nobody.access().unwrap_err().to_string().contains("no user `nobody-at-all`"));
        let nobody = SocketsConfig { group: Some("nobody-at-all".to_owned()), ..SocketsConfig::default() };
        assert!(nobody.access().unwrap_err().to_string().contains("no group `nobody-at-all`"));
    }
}
