//! Domains of Xen: created and shut down by xl, reached by ssh.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use host::Root;

use super::plan::XenPlan;
use super::xl::Xl;
use super::{Armed, Guest, GuestError, Patience, SshGuest, pass_through_obstacle};
use crate::Output;

/// The time for a domain to shut down before it is destroyed.
const SHUT_DOWN: Duration = Duration::from_secs(120);

/// A domain of Xen. It is shut down in the end if it was created for the study.
pub struct XenGuest {
    xl: Xl,
    domain: String,
    created: bool,
    channel: SshGuest,
}

impl XenGuest {
    /// Creates domain `index` of the plan, if it is a configuration file whose domain does not run, and waits until ssh
    /// reaches it.
    ///
    /// # Errors
    /// [`GuestError::Start`] with the message of xl or ssh.
    pub fn start(plan: &XenPlan, index: u32, patience: Patience<'_>) -> Result<Self, GuestError> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let named = || format!("domain {index}");
        let missing = |field: &str| GuestError::Start {
            name: named(),
            why: format!("guests.{field} names too few; name one for each domain"),
        };
        let given = plan.domains.get(at).ok_or_else(|| missing("domains"))?;
        let address = plan.addresses.get(at).ok_or_else(|| missing("addresses"))?;
        let xl = Xl::default();
        let (domain, created) =
            create(&xl, given).map_err(|why| GuestError::Start { name: given.clone(), why })?;
        let channel = SshGuest::connect(&domain, address, &plan.ssh, patience);
        let channel = channel.inspect_err(|_| {
            if created {
                // Ignore errors: the first one is reported.
                let _ = xl.tell("destroy", &domain);
            }
        })?;
        Ok(Self { xl, domain, created, channel })
    }
}

/// The domain's name, and whether it was created by this call.
fn create(xl: &Xl, given: &str) -> Result<(String, bool), String> {
    if !given.contains('/') {
        return xl.ask(&["domid", given]).map(|_| (given.to_owned(), false));
    }
    let text = fs::read_to_string(given).map_err(|error| format!("Could not read {given}: {error}"))?;
    let domain =
        name_in(&text).ok_or_else(|| format!("{given} has no line name = \"...\" to find the domain by"))?;
    if xl.has(&domain)? {
        return Ok((domain, false));
    }
    if let Some(why) = pass_through_obstacle(&Root::live(), given, &text) {
        return Err(why);
    }
    xl.ask(&["create", given]).map(|_| (domain, true))
}

/// The domain's name in a configuration (xl.cfg(5)).
fn name_in(configuration: &str) -> Option<String> {
    let value = configuration.lines().rev().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "name").then(|| value.trim())
    })?;
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    value[1..].split_once(quote).map(|(name, _)| name.to_owned())
}

impl Guest for XenGuest {
    fn name(&self) -> &str {
        &self.domain
    }

    fn vcpus(&self) -> u32 {
        self.channel.vcpus()
    }

    fn address(&self) -> Option<IpAddr> {
        self.channel.address()
    }

    fn host_address(&self) -> Option<IpAddr> {
        self.channel.host_address()
    }

    fn run(&mut self, script: &str, limit: Duration) -> Result<Output, GuestError> {
        self.channel.run(script, limit)
    }

    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError> {
        self.channel.arm(script, limit)
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        self.channel.facts()
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        if !std::mem::take(&mut self.created) {
            return Ok(());
        }
        self.end().map_err(|why| GuestError::Unreachable { name: self.domain.clone(), why })
    }
}

impl XenGuest {
    /// Shuts the domain down, and destroys it if that takes too long or is refused: xl refuses to shut down an HVM
    /// domain without PV drivers.
    fn end(&self) -> Result<(), String> {
        if let Err(why) = self.xl.tell("shutdown", &self.domain) {
            tracing::warn!("{} is destroyed: {why}", self.domain);
            return self.xl.tell("destroy", &self.domain).map(drop);
        }
        self.xl.see_off(&self.domain, SHUT_DOWN)
    }
}

/// A domain that was created for the study must not go on running beside later guests.
impl Drop for XenGuest {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_configuration_names_its_domain() {
        assert_eq!(name_in("# name = \"no\"\nname = \"vm-1\" # here\nmemory = 512").as_deref(), Some("vm-1"));
        assert_eq!(name_in("name='two'").as_deref(), Some("two"));
        assert_eq!(name_in("name = vm\nvcpus = 1"), None);
    }

    #[test]
    fn a_domain_is_created_once_and_a_failure_keeps_the_words_of_xl() {
        let folder = tempfile::tempdir().unwrap();
        let (program, configuration) = (folder.path().join("xl"), folder.path().join("vm.cfg"));
        let fake = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\ncase \"$1\" in\ndomid) [ -e up ] || \
                    { echo \"invalid domain identifier\" >&2; exit 1; } ;;\ncreate) touch up ;;\nesac\n";
        fs::write(&program, fake).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&configuration, "name = \"vm\"\n").unwrap();
        let (xl, given) = (Xl(program), configuration.to_str().unwrap());
        assert!(create(&xl, "vm").unwrap_err().contains("invalid domain identifier"));
        assert_eq!(create(&xl, given), Ok(("vm".to_owned(), true)));
        assert_eq!(create(&xl, given), Ok(("vm".to_owned(), false)));
    }
}
