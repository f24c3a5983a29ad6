//! The CPUs that are online, and what is open on each of them.

use crate::Error;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The interval of looking for CPUs that came online or went offline.
pub(crate) const HOTPLUG_NS: u64 = 1_000_000_000;

/// The online CPUs, each with the number of a directory that the kernel makes when the CPU comes online, and removes when it
/// goes offline (drivers/base/cacheinfo.c, `cacheinfo_cpu_online` and `cacheinfo_cpu_pre_down`); `None` where there is none,
/// or none yet. A CPU that was offline between two looks has another one: after a suspend these are all CPUs but the first,
/// because processes do not run meanwhile.
pub(crate) type Online = BTreeMap<u32, Option<u64>>;

/// The online CPUs of the host below `root`.
///
/// # Errors
/// [`Error::Read`] if sysfs is missing or has an unexpected format.
pub(crate) fn online(root: &Path) -> Result<Online, Error> {
    let home = root.join("sys/devices/system/cpu");
    let path = home.join("online");
    let text = std::fs::read_to_string(&path).and_then(|text| {
        let cpus = parse(text.trim()).filter(|cpus| !cpus.is_empty());
        cpus.ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::InvalidData, format!("it says `{}`", text.trim()))
        })
    });
    let cpus =
        text.map_err(|source| Error::Read { path, expected: "a list of CPUs such as 0-3,5", source })?;
    let directory = |cpu: u32| std::fs::metadata(home.join(format!("cpu{cpu}/cache"))).ok();
    Ok(cpus.into_iter().map(|cpu| (cpu, directory(cpu).map(|found| found.ino()))).collect())
}

/// What is open on each online CPU. The kernel ends the perf events of a CPU that goes offline, and does not start them again
/// when it comes back (`perf_event_exit_cpu` of kernel/events/core.c); their descriptors do not say so.
#[derive(Debug)]
pub(crate) struct OfCpus<T>(BTreeMap<u32, (Option<u64>, T)>);

impl<T> OfCpus<T> {
    /// Opens it on these CPUs, except those for which `open` returns `None`.
    ///
    /// # Errors
    /// The first of `open`.
    pub(crate) fn open<E>(
        online: &Online,
        mut open: impl FnMut(u32) -> Result<Option<T>, E>,
    ) -> Result<Self, E> {
        let mut each = BTreeMap::new();
        for (&cpu, &since) in online {
            if let Some(opened) = open(cpu)? {
                each.insert(cpu, (since, opened));
            }
        }
        Ok(Self(each))
    }

    /// Opens it on CPUs that came online, and again on those that were offline since the last call. Returns the old ones of
    /// the latter, and those of CPUs that are offline. If `open` returns `None`, the next call tries again.
    pub(crate) fn follow(
        &mut self,
        online: &Online,
        mut open: impl FnMut(u32) -> Option<T>,
    ) -> Vec<(u32, T)> {
        let was_offline = |cpu: &u32, since: &Option<u64>| match online.get(cpu) {
            // Without a directory at one of the looks, nothing says that the CPU was offline between them.
            Some(now) => now.is_some() && since.is_some() && now != since,
            None => true,
        };
        let over = self.0.iter().filter(|&(cpu, (since, _))| was_offline(cpu, since));
        let over: Vec<u32> = over.map(|(&cpu, _)| cpu).collect();
        let over = over.into_iter().filter_map(|cpu| Some((cpu, self.0.remove(&cpu)?.1))).collect();
        for (&cpu, &now) in online {
            if let Some((since, _)) = self.0.get_mut(&cpu) {
                *since = since.or(now);
            } else if let Some(opened) = open(cpu) {
                self.0.insert(cpu, (now, opened));
            }
        }
        over
    }

    /// All of them, by CPU.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.0.iter().map(|(&cpu, (_, open))| (cpu, open))
    }

    /// As [`Self::iter`], to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.0.iter_mut().map(|(&cpu, (_, open))| (cpu, open))
    }
}

/// An upper bound, above any machine's (`CONFIG_NR_CPUS` is at most 8192): a larger range in the file would only use
/// memory.
const MOST: u32 = 1 << 16;

fn parse(text: &str) -> Option<Vec<u32>> {
    let cpus = host::CpuSet::parse(text)?;
    (cpus.last()? < MOST).then(|| cpus.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_ones() {
        assert_eq!(parse("0-2,5").unwrap(), [0, 1, 2, 5]);
        for wrong in ["", "a", "0-", "0-4294967295"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let root = tempfile::tempdir().unwrap();
        let error = online(root.path()).unwrap_err();
        assert!(error.to_string().contains("cpu/online"), "{error}");
    }

    /// A host with these CPUs online.
    fn host(online: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("sys/devices/system/cpu");
        for cpu in 0..4 {
            std::fs::create_dir_all(home.join(format!("cpu{cpu}/cache"))).unwrap();
        }
        std::fs::write(home.join("online"), online).unwrap();
        root
    }

    /// The CPU goes offline and comes online again.
    fn cycle(root: &Path, cpu: u32) {
        let home = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
        // Both exist at the same time, so they differ in their numbers.
        std::fs::create_dir(home.join("next")).unwrap();
        std::fs::remove_dir(home.join("cache")).unwrap();
        std::fs::rename(home.join("next"), home.join("cache")).unwrap();
    }

    #[test]
    fn on_a_cpu_that_was_offline_between_two_looks_it_is_opened_again() {
        let root = host("0-2\n");
        let root = root.path();
        let mut number = 0;
        let mut count = |_| {
            number += 1;
            Some(number)
        };
        let none: Result<_, ()> = OfCpus::open(&Online::new(), |_| Ok(None));
        let mut open = none.unwrap();
        let mut follow = || {
            let mut opened = Vec::new();
            let over = open.follow(&online(root).unwrap(), |cpu| {
                opened.push(cpu);
                count(cpu)
            });
            (opened, over)
        };
        assert_eq!(follow(), (vec![0, 1, 2], vec![]));
        assert_eq!(follow(), (vec![], vec![]));
        cycle(root, 1);
        assert_eq!(follow(), (vec![1], vec![(1, 2)]));
        assert_eq!(follow(), (vec![], vec![]));
        // One goes offline, and one comes online.
        std::fs::write(root.join("sys/devices/system/cpu/online"), "0-1,3\n").unwrap();
        assert_eq!(follow(), (vec![3], vec![(2, 3)]));
        // One is on its way, and its directory is not there at one look.
        let home = root.join("sys/devices/system/cpu/cpu3");
        std::fs::rename(home.join("cache"), home.join("other")).unwrap();
        assert_eq!(follow(), (vec![], vec![]));
        std::fs::rename(home.join("other"), home.join("cache")).unwrap();
        assert_eq!(follow(), (vec![], vec![]));
        let all: Vec<_> = open.iter().map(|(cpu, &number)| (cpu, number)).collect();
        assert_eq!(all, [(0, 1), (1, 4), (3, 5)]);
    }

    #[test]
    fn a_cpu_on_which_it_cannot_be_opened_is_tried_again() {
        let root = host("0\n");
        let online = online(root.path()).unwrap();
        let none: Result<_, ()> = OfCpus::open(&online, |_| Ok(None));
        let mut open = none.unwrap();
        let mut results = [None, Some(7)].into_iter();
        for expected in [0, 1, 1] {
            assert!(open.follow(&online, |_| results.next().unwrap()).is_empty());
            assert_eq!(open.iter().count(), expected);
        }
        assert!(OfCpus::<()>::open(&online, Err).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9,-]{0,20}") {
            let _ = parse(&text);
        }
    }
}
