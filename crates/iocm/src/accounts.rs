//! Users and groups by name, from `/etc/passwd` and `/etc/group` alone: a static program cannot use NSS.

use std::io;
use std::path::{Path, PathBuf};

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user.
    pub user: u32,
    /// The user's primary group.
    pub group: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

/// The reason why a name cannot be looked up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// The file has no such entry.
    #[error("{path} has no {kind} `{name}`: add it, or give a number")]
    Missing {
        /// The file.
        path: PathBuf,
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The file cannot be read.
    #[error("Cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

fn read(path: &str) -> Result<String, AccountError> {
    std::fs::read_to_string(path).map_err(|source| AccountError::Read { path: path.into(), source })
}

/// The user with this name or number.
///
/// # Errors
/// [`AccountError`].
pub fn user_of(name: &str) -> Result<Account, AccountError> {
    let missing =
        || AccountError::Missing { path: Path::new(USERS).into(), kind: "user", name: name.to_owned() };
    match (read(USERS), read(GROUPS)) {
        (Ok(users), groups) => find(name, &users, &groups.unwrap_or_default()).ok_or_else(missing),
        (Err(error), _) => by_number(name).ok_or(error),
    }
}

/// The group with this name or number.
///
/// # Errors
/// [`AccountError`].
pub fn group_of(name: &str) -> Result<u32, AccountError> {
    if let Some(number) = number(name) {
        return Ok(number);
    }
    let text = read(GROUPS)?;
    let found = text.lines().map(fields).find(|group| group.first() == Some(&name));
    found.and_then(|group| group.get(2)?.parse().ok()).ok_or_else(|| AccountError::Missing {
        path: GROUPS.into(),
        kind: "group",
        name: name.to_owned(),
    })
}

fn fields(line: &str) -> Vec<&str> {
    line.split(':').collect()
}

/// The number of a user or group. The last one is none: it tells setresuid(2) and chown(2) to change nothing.
fn number(name: &str) -> Option<u32> {
    name.parse::<u32>().ok().filter(|number| *number != u32::MAX)
}

/// A number without an entry: the user gets the group of the same number.
fn by_number(name: &str) -> Option<Account> {
    let user = number(name)?;
    Some(Account { user, group: user, groups: Vec::new() })
}

fn find(name: &str, users: &str, groups: &str) -> Option<Account> {
    let mut lines = users.lines().map(fields);
    let Some(line) = lines.find(|line| line.first() == Some(&name) || line.get(2) == Some(&name)) else {
        return by_number(name);
    };
    let own = line.first()?;
    let has = |group: &Vec<&str>| group.get(3).is_some_and(|users| users.split(',').any(|user| user == *own));
    let further = groups.lines().map(fields).filter(has).filter_map(|group| group.get(2)?.parse().ok());
    Some(Account {
        user: line.get(2)?.parse().ok()?,
        group: line.get(3)?.parse().ok()?,
        groups: further.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found() {
        let users = "root:x:0:0:root:/root:/bin/sh\nio:x:990:991::/:/sbin/nologin\nbroken\n";
        let groups = "disk:x:6:io,other\nkvm:x:104:other\nio:x:991:\nx:y\n";
        let io = Account { user: 990, group: 991, groups: vec![6] };
        assert_eq!(find("io", users, groups), Some(io.clone()));
        assert_eq!(find("990", users, groups), Some(io));
        assert_eq!(find("7", users, groups), Some(Account { user: 7, group: 7, groups: Vec::new() }));
        assert_eq!((find("broken", users, groups), find("none", users, groups)), (None, None));
        assert_eq!(group_of("12").unwrap(), 12);
        assert_eq!(find("4294967295", users, groups), None);
        assert!(group_of("4294967295").is_err());
    }
}
