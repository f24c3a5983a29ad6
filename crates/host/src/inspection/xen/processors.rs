//! Affinities of vCPUs, and the pools of processors with their schedulers.

use crate::CpuSet;
use crate::xen_domains::last_word;

/// A vCPU of a domain, as `xl vcpu-list` shows it (`tools/xl/xl_vcpu.c`, `print_vcpuinfo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenVcpu {
    /// The domain's name.
    pub domain: String,
    /// The domain's number.
    pub id: u32,
    /// The vCPU's number.
    pub vcpu: u32,
    /// The processor on which it runs, or ran last; `None` while it is offline.
    pub cpu: Option<u32>,
    /// The processors that it may use; `None` for all.
    pub hard: Option<CpuSet>,
}

/// A pool of processors, as `xl cpupool-list` shows it (`tools/xl/xl_cpupool.c`, `main_cpupoollist`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenPool {
    /// Its name.
    pub name: String,
    /// The number of its processors.
    pub cpus: u32,
    /// Its scheduler: `credit2`.
    pub scheduler: String,
    /// The number of its domains.
    pub domains: u32,
}

/// Parses the output of `xl vcpu-list`: `Name ID VCPU CPU State Time(s) Affinity (Hard / Soft)`.
pub(super) fn vcpus(text: &str) -> Vec<XenVcpu> {
    text.lines().filter_map(vcpu).collect()
}

fn vcpu(line: &str) -> Option<XenVcpu> {
    let (rest, _soft) = line.rsplit_once(" / ")?;
    let mut rest = rest.trim_end();
    let mut last = || last_word(&mut rest);
    let (hard, _time, _state, cpu, vcpu, id) = (last()?, last()?, last()?, last()?, last()?, last()?);
    Some(XenVcpu {
        domain: rest.to_owned(),
        id: id.parse().ok()?,
        vcpu: vcpu.parse().ok()?,
        cpu: cpu.parse().ok(),
        hard: if hard == "all" { None } else { Some(CpuSet::parse(hard)?) },
    })
}

/// Parses the output of `xl cpupool-list`: `Name CPUs Sched Active Domain count`.
pub(super) fn pools(text: &str) -> Vec<XenPool> {
    let pool = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name @ .., cpus, scheduler, _active, domains] = &words[..] else { return None };
        Some(XenPool {
            name: name.join(" "),
            cpus: cpus.parse().ok()?,
            scheduler: (*scheduler).to_owned(),
            domains: domains.parse().ok()?,
        })
    };
    text.lines().filter_map(pool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Output of Xen 4.20 in the lab; the last two lines follow print_vcpuinfo and print_bitmap of
    // RELEASE-4.20.0.
    const VCPUS: &str = "\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    1   r--      48.3  all / all
hvm                                  2     0    1   ---       5.3  all / all
my vm                                3     0    5   -b-       5.3  4-5 / 5
my vm                                3     1    -   --p       0.0  4-5 / all
";

    #[test]
    fn vcpus_and_where_they_may_run() {
        let found = vcpus(VCPUS);
        let told: Vec<_> = found
            .iter()
            .map(|one| (one.domain.as_str(), one.id, one.vcpu, one.cpu, one.hard.clone()))
            .collect();
        let some = CpuSet::parse("4-5");
        let expected = [
            ("Domain-0", 0, 0, Some(1), None),
            ("hvm", 2, 0, Some(1), None),
            ("my vm", 3, 0, Some(5), some.clone()),
            ("my vm", 3, 1, None, some),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn pools_and_their_schedulers() {
        let text = "Name               CPUs   Sched     Active   Domain count\n\
            Pool-0               2   credit2       y          3\nfor rtds          12      rtds       y          0\n";
        let pool = |name: &str, cpus, scheduler: &str, domains| XenPool {
            name: name.to_owned(),
            cpus,
            scheduler: scheduler.to_owned(),
            domains,
        };
        assert_eq!(pools(text), [pool("Pool-0", 2, "credit2", 3), pool("for rtds", 12, "rtds", 0)]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9 /\\-,\n]{0,100}") {
            let _ = (vcpus(&text), pools(&text));
        }
    }
}
