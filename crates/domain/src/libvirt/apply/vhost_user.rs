//! The requirements of vhost-user devices: shared memory, and a reconnect after a restart of the process behind
//! them.

use super::order::{DOMAIN, before};
use super::{Made, Step};
use crate::xml::New;

/// The seconds between two attempts to reconnect.
const SECONDS: &str = "1";

impl Step<'_> {
    pub(super) fn shared_memory(&self) -> Result<Made, String> {
        if self
            .domain
            .child("cpu/numa")
            .is_some_and(|numa| numa.all("cell").any(|cell| cell.get("memAccess").is_some()))
        {
            return Err(
                "The NUMA cells say how their memory is accessed (memAccess). Say 'shared' in each.".into()
            );
        }
        let source = || New::named("source").with("type", "memfd");
        let access = || New::named("access").with("mode", "shared");
        let Some(backing) = self.domain.child("memoryBacking") else {
            let backing = New::named("memoryBacking").holding(source()).holding(access());
            return Ok(Made::of(self.style.insert(self.domain, before(DOMAIN, "memoryBacking"), &backing)));
        };
        let file = backing.child("hugepages").is_some() || backing.find("source@type") == Some("file");
        let mut made = Made::default();
        // A new element goes after its existing sibling.
        match (backing.child("source"), backing.child("access")) {
            (Some(said), given) => {
                if !file {
                    made = made.and(self.style.set_attribute(said, "type", "memfd"));
                }
                made = made.and(match given {
                    Some(given) => self.style.set_attribute(given, "mode", "shared"),
                    None => self.style.insert_after(said, &access()),
                });
            }
            (None, Some(access)) => {
                made = made.and(self.style.set_attribute(access, "mode", "shared"));
                if !file {
                    made = made.and(self.style.insert_after(access, &source()));
                }
            }
            (None, None) if file => made = made.and(self.style.insert(backing, LAST, &access())),
            (None, None) => {
                made = made.and(self.style.insert(backing, LAST, &source()));
                made = made.and(self.style.insert(backing, LAST, &access()));
            }
        }
        Ok(made)
    }

    pub(super) fn reconnect(&self, device: usize) -> Result<Made, String> {
        let element = self.element(device)?;
        let Some(source) = element.child("source").filter(|_| element.get("type") == Some("vhostuser"))
        else {
            return Err("Only a disk or interface of type vhostuser connects to another process.".into());
        };
        Ok(Made::of(match source.child("reconnect") {
            Some(said) => {
                let mut edits = self.style.set_attribute(said, "enabled", "yes");
                if said.get("timeout").is_none() {
                    edits.extend(self.style.set_attribute(said, "timeout", SECONDS));
                }
                edits
            }
            None => {
                let new = New::named("reconnect").with("enabled", "yes").with("timeout", SECONDS);
                self.style.insert(source, &[], &new)
            }
        }))
    }
}

/// The children of `<memoryBacking>`; a new one is inserted after the last of them.
const LAST: &[&str] = &["hugepages", "nosharepages", "locked", "source", "access", "allocation", "discard"];
