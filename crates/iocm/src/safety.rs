//! The privileges that the daemon gives up once its files are open: its user, its capabilities, and most system calls.
//!
//! One thread does this before it starts others, because the kernel keeps users, capabilities and filters per thread:
//! new threads inherit those of the thread that starts them.

mod filter;

use crate::accounts::{Account, AccountError, user_of};
use crate::config::{SafetyConfig, Seccomp};
use crate::worker::scheduling::MOST_STEPS;
use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;

/// A failure to drop privileges.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetyError {
    /// A user or group does not exist.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// A capability does not exist.
    #[error(
        "`{0}` under keep-capabilities is not a capability; the names are those of capabilities(7), such as CAP_DAC_OVERRIDE"
    )]
    Capability(String),
    /// Other threads run, and would keep their privileges.
    #[error("{0} threads run already, and would keep the privileges")]
    Threads(usize),
    /// The kernel refused.
    #[error("Cannot drop privileges: {what}")]
    Kernel {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The filter cannot be made.
    #[error("Cannot limit the system calls; `seccomp = \"off\"` under [safety] runs without a filter")]
    Filter(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The privileges to give up, with all names resolved.
#[derive(Debug)]
pub struct Safety {
    account: Option<Account>,
    keep: CapabilitySet,
    seccomp: Seccomp,
}

impl Safety {
    /// Resolves the names of a configuration.
    ///
    /// # Errors
    ///
    /// [`SafetyError`] when a name does not exist.
    pub fn new(config: &SafetyConfig) -> Result<Self, SafetyError> {
        let mut keep = CapabilitySet::empty();
        for name in &config.keep_capabilities {
            let flag = name.strip_prefix("CAP_").and_then(CapabilitySet::from_name);
            keep |= flag.ok_or_else(|| SafetyError::Capability(name.clone()))?;
        }
        let account = match config.user.as_deref() {
            Some(name) => Some(user_of(name)?),
            None => usual_account(),
        };
        Ok(Self { account, keep, seccomp: config.seccomp })
    }

    /// The user that the daemon becomes.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.account.as_ref().map_or_else(|| rustix::process::geteuid().as_raw(), |account| account.user)
    }

    /// Tests whether a filter limits the system calls from [`Self::take_effect`] on.
    pub(crate) fn is_filtered(&self) -> bool {
        self.seccomp != Seccomp::Off
    }

    /// Drops the privileges for good.
    ///
    /// # Errors
    ///
    /// [`SafetyError`]; some privileges may be gone then.
    pub(crate) fn take_effect(&self) -> Result<(), SafetyError> {
        let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        if threads > 1 {
            return Err(SafetyError::Threads(threads));
        }
        let_workers_have_weight();
        self.drop_capabilities_of_children()?;
        if let Some(account) = &self.account {
            and_end_with_parent(|| become_user(account, !self.keep.is_empty()))?;
        }
        let kernel =
            |what| move |error: rustix::io::Errno| SafetyError::Kernel { what, source: error.into() };
        let keep = keep_capabilities(self.keep)?;
        rustix::thread::set_no_new_privs(true).map_err(kernel("getting new ones by running programs"))?;
        // Without the capability there are no interfaces to configure.
        let interfaces = keep.contains(CapabilitySet::NET_ADMIN);
        match self.seccomp {
            Seccomp::Off => Ok(()),
            Seccomp::Refuse => filter::install(false, interfaces).map_err(SafetyError::Filter),
            Seccomp::Kill => filter::install(true, interfaces).map_err(SafetyError::Filter),
        }
    }

    /// Clears the bounding set, so that no program that is run regains a capability that is not kept.
    fn drop_capabilities_of_children(&self) -> Result<(), SafetyError> {
        for capability in CapabilitySet::all().difference(self.keep).iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // The kernel does not know it, or this user cannot drop it because it has none.
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
                Err(error) => {
                    let what = "capabilities of programs run from here";
                    return Err(SafetyError::Kernel { what, source: error.into() });
                }
            }
        }
        Ok(())
    }
}

/// Raises the limit on `nice` values (RLIMIT_NICE), as long as this process may do so: workers lower theirs later, without
/// privileges (see [`worker::scheduling`](crate::worker::scheduling)).
fn let_workers_have_weight() {
    let lowest = rustix::process::getpriority_process(None).unwrap_or(0) - MOST_STEPS;
    // The limit of a `nice` value of -20 is 40, that of 19 is 1 (getrlimit(2)).
    let wanted = Some(u64::from((20 - lowest.max(-20)).unsigned_abs()));
    let limit = getrlimit(Resource::Nice);
    // `None` is no limit, and below all others here.
    let is_enough = |limit: Option<u64>| limit.is_none() || limit >= wanted;
    if !is_enough(limit.current) {
        let maximum = if is_enough(limit.maximum) { limit.maximum } else { wanted };
        if let Err(error) = setrlimit(Resource::Nice, Rlimit { current: wanted, maximum }) {
            tracing::debug!("I/O workers lower their nice values only as far as RLIMIT_NICE allows: {error}");
        }
    }
}

/// The user that root becomes by default, if it exists.
pub(crate) const DEFAULT_USER: &str = "exitless";

fn usual_account() -> Option<Account> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    match user_of(DEFAULT_USER) {
        Ok(account) => Some(account),
        Err(error) => {
            tracing::warn!(
                "The daemon stays root without capabilities: {error} (systemd-sysusers makes it), or name a `user` under \
                 [safety]"
            );
            None
        }
    }
}

/// Drops all capabilities of this thread except these. Returns those of them that it had.
fn keep_capabilities(wanted: CapabilitySet) -> Result<CapabilitySet, SafetyError> {
    let kernel = |what| move |error: rustix::io::Errno| SafetyError::Kernel { what, source: error.into() };
    let has = rustix::thread::capabilities(None).map_err(kernel("which capabilities there are"))?;
    let keep = wanted & has.permitted;
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    // A systemd unit may give none and refuse capset(2) (`SystemCallFilter=~@privileged`).
    if has != sets {
        rustix::thread::set_capabilities(None, sets).map_err(kernel("the capabilities"))?;
    }
    Ok(keep)
}

/// Changes the user, and sets the parent-death signal again, which the kernel clears then (PR_SET_PDEATHSIG(2const)).
fn and_end_with_parent(change: impl FnOnce() -> Result<(), SafetyError>) -> Result<(), SafetyError> {
    use rustix::process::{getppid, parent_process_death_signal, set_parent_process_death_signal};
    let kernel = |error: rustix::io::Errno| {
        let what = "the signal at the end of the parent";
        SafetyError::Kernel { what, source: error.into() }
    };
    let (parent, signal) = (getppid(), parent_process_death_signal().map_err(kernel)?);
    change()?;
    if signal.is_none() {
        return Ok(());
    }
    set_parent_process_death_signal(signal).map_err(kernel)?;
    // The parent may have ended in between.
    if getppid() == parent { Ok(()) } else { Err(kernel(rustix::io::Errno::SRCH)) }
}

fn become_user(account: &Account, keeps: bool) -> Result<(), SafetyError> {
    if rustix::process::geteuid().as_raw() == account.user {
        return Ok(());
    }
    let kernel = |what| move |error: rustix::io::Errno| SafetyError::Kernel { what, source: error.into() };
    rustix::thread::set_keep_capabilities(keeps).map_err(kernel("keeping capabilities"))?;
    let groups: Vec<Gid> = account.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    rustix::thread::set_thread_groups(&groups)
        .map_err(kernel("the groups; only root can be another user"))?;
    let group = Gid::from_raw(account.group);
    rustix::thread::set_thread_res_gid(group, group, group).map_err(kernel("the group"))?;
    let user = Uid::from_raw(account.user);
    rustix::thread::set_thread_res_uid(user, user, user).map_err(kernel("the user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        let config =
            SafetyConfig { keep_capabilities: vec!["CAP_FLY".to_owned()], ..SafetyConfig::default() };
        assert!(Safety::new(&config).unwrap_err().to_string().contains("CAP_FLY"));
        let config = SafetyConfig { user: Some("nobody-at-all".to_owned()), ..SafetyConfig::default() };
        assert!(Safety::new(&config).unwrap_err().to_string().contains("nobody-at-all"));
    }

    #[test]
    fn another_user_still_ends_with_the_parent() {
        if !rustix::process::geteuid().is_root() {
            println!("not tested: only root can become another user");
            return;
        }
        use rustix::process::{Signal, parent_process_death_signal, set_parent_process_death_signal};
        // The user and the signal belong to a thread, and end with it.
        let thread = std::thread::spawn(|| {
            set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
            let account = Account { user: 61_234, group: 61_234, groups: Vec::new() };
            and_end_with_parent(|| become_user(&account, false)).unwrap();
            (rustix::process::geteuid().as_raw(), parent_process_death_signal().unwrap())
        });
        assert_eq!(thread.join().unwrap(), (61_234, Some(Signal::KILL)));
    }

    #[test]
    fn without_capabilities_there_is_nothing_to_drop_where_capset_is_refused() {
        // Capabilities and filters belong to a thread, and end with it.
        let thread = std::thread::spawn(|| {
            keep_capabilities(CapabilitySet::empty()).unwrap();
            let capset = [(libc::SYS_capset, Vec::new())].into();
            let refuse = seccompiler::SeccompAction::Errno(libc::EPERM as u32);
            let filter = seccompiler::SeccompFilter::new(
                capset,
                seccompiler::SeccompAction::Allow,
                refuse,
                std::env::consts::ARCH.try_into().unwrap(),
            );
            let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
            seccompiler::apply_filter(&program).unwrap();
            let none = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            assert_eq!(rustix::thread::set_capabilities(None, none), Err(rustix::io::Errno::PERM));
            keep_capabilities(CapabilitySet::NET_ADMIN).unwrap()
        });
        assert_eq!(thread.join().unwrap(), CapabilitySet::empty());
    }

    #[test]
    fn it_is_refused_once_there_are_threads() {
        // The test runner has several.
        let error = Safety::new(&SafetyConfig::default()).unwrap().take_effect().unwrap_err();
        assert!(matches!(error, SafetyError::Threads(2..)), "{error}");
    }
}
