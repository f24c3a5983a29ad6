//! Access to the control tree.

/// The users who may use the control tree: root, the daemon's user, and the members of a group if one is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The daemon's user.
    pub user: u32,
    /// The group, if one is set.
    pub group: Option<u32>,
}

impl Access {
    /// Access for the user of this process, and for root.
    #[must_use]
    pub fn own() -> Self {
        Self { user: rustix::process::geteuid().as_raw(), group: None }
    }

    /// Tests whether a user with these groups may use the tree.
    #[must_use]
    pub fn allows(&self, user: u32, groups: &[u32]) -> bool {
        user == 0 || user == self.user || self.group.is_some_and(|group| groups.contains(&group))
    }

    /// The group of files in the tree.
    #[must_use]
    pub(crate) fn owner_group(&self) -> u32 {
        self.group.unwrap_or_else(|| rustix::process::getegid().as_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_user_and_the_group_may() {
        let access = Access { user: 500, group: Some(77) };
        assert!(access.allows(0, &[]) && access.allows(500, &[]) && access.allows(9, &[1, 77]));
        assert!(!access.allows(9, &[1, 500]));
        assert!(!Access { group: None, ..access }.allows(9, &[77]));
    }
}
