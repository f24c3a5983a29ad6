//! A forecast of a plan's cost and requirements, without running it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::Root;
use serde::Serialize;

use super::plan::{Plan, StepLimits};
use super::schedule::{ArmRuns, Schedule};
use super::workload::{Place, WorkloadPlan};
use guests::{GuestPlan, pass_through_obstacle};

/// The approximate boot time of a guest with the guest image on hardware.
const GUEST_START: Duration = Duration::from_secs(10);

/// The size of a plan, and its requirements on the host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// The number of combinations of levels.
    pub arms: usize,
    /// The least number of blocks.
    pub blocks: u32,
    /// A stop rule may require more blocks.
    pub more_blocks: bool,
    /// The number of runs in these blocks.
    pub runs: u64,
    /// The number of warm-up runs in these blocks, whose results are discarded.
    pub warm_up_runs: u64,
    /// The number of starts of guests in these blocks.
    pub guest_starts: u64,
    /// Approximate seconds for these blocks on hardware, with guests that start in 10 s.
    pub seconds_about: u64,
    /// The upper bound of the seconds for these blocks, if every step takes as long as its limit.
    pub seconds_at_most: u64,
    /// Programs that the plan needs and this host lacks.
    pub missing_programs: Vec<MissingProgram>,
    /// Rights that the plan needs.
    pub rights: Vec<Right>,
    /// Reasons why Xen domains could not get the devices and files that their definitions name, as sentences.
    pub obstacles: Vec<String>,
}

/// A program that is not in the search path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingProgram {
    /// Its name.
    pub name: String,
    /// The Debian package that contains it.
    pub package: String,
    /// The part of the plan that needs it.
    pub needed_by: String,
}

/// A program that a plan needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededProgram {
    /// The machine that runs it.
    pub place: Place,
    /// Its name, or its path if the plan gives one.
    pub name: String,
    /// The Debian package that contains it.
    pub package: String,
    /// The part of the plan that needs it.
    pub needed_by: String,
}

/// A right that a plan needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Right {
    /// The right: `root`, `/dev/kvm`.
    pub what: String,
    /// The part of the plan that needs it.
    pub needed_by: String,
    /// This process has it.
    pub there: bool,
    /// The study runs without it, with fewer figures.
    pub optional: bool,
}

/// The host of the forecast.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The directories of the search path.
    pub programs: Vec<PathBuf>,
    /// This process runs as root.
    pub is_root: bool,
    /// `/dev/kvm` can be opened.
    pub has_kvm: bool,
    /// The root directory of the host's files, if the host is a control domain of Xen.
    pub xen: Option<PathBuf>,
}

impl Host {
    /// This host.
    pub fn here() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut programs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        programs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
        Self {
            programs,
            is_root: rustix::process::geteuid().is_root(),
            has_kvm: host::kvm::usable(Path::new("/")).access.is_ok(),
            xen: host::XenControl::read(&Root::live()).map(|_| PathBuf::from("/")),
        }
    }

    fn has(&self, name: &str) -> bool {
        if name.contains('/') {
            return Path::new(name).is_file();
        }
        self.programs.iter().any(|folder| folder.join(name).is_file())
    }
}

/// The forecast of a checked plan.
pub fn forecast(plan: &Plan, host: &Host) -> Forecast {
    let schedule = Schedule::new(plan, 0);
    let blocks = plan.order.repeats;
    let times = u64::from(blocks);
    let guest_starts = schedule.guest_starts_per_block() * times;
    let warm_ups = schedule.counts_per_block() * plan.workloads.len() as u64 * u64::from(plan.order.warm_up);
    Forecast {
        arms: plan.arms().len(),
        blocks,
        more_blocks: plan.order.until.is_some(),
        runs: u64::from(schedule.runs_per_block()) * times,
        warm_up_runs: warm_ups * times,
        guest_starts,
        seconds_about: typical(plan, &schedule) * times + guest_starts * GUEST_START.as_secs(),
        seconds_at_most: longest(plan, &schedule).saturating_mul(times),
        missing_programs: missing(plan, host),
        rights: rights(plan, host),
        obstacles: host.xen.as_deref().map(|root| obstacles(plan, root)).unwrap_or_default(),
    }
}

/// The approximate seconds of one block without the starts of guests.
fn typical(plan: &Plan, schedule: &Schedule) -> u64 {
    let all: Duration = plan.workloads.iter().map(WorkloadPlan::typical).sum();
    let all = all.as_secs().saturating_mul(u64::from(plan.executions()));
    all.saturating_mul(schedule.counts_per_block())
}

/// The seconds of one block in which every step takes as long as its limit. A guest is started once for an arm, and
/// prepared once for each workload of it.
fn longest(plan: &Plan, schedule: &Schedule) -> u64 {
    let limits: Vec<StepLimits> = plan.workloads.iter().map(StepLimits::of).collect();
    let sum = |one: fn(&StepLimits) -> Duration| limits.iter().map(one).sum::<Duration>().as_secs();
    let (prepare, run) = (sum(|limits| limits.prepare), sum(|limits| limits.run));
    let of_guests = |runs: &ArmRuns| {
        let most = runs.slots.last().map_or(0, |slot| slot.cell.guests);
        let started = runs.guests.start_limit().as_secs().saturating_mul(u64::from(most));
        // Without guests the host prepares itself.
        started.saturating_add(prepare.saturating_mul(u64::from(most.max(1))))
    };
    let guests = schedule.block(0).iter().map(of_guests).fold(0, u64::saturating_add);
    let runs = run.saturating_mul(u64::from(plan.executions()));
    runs.saturating_mul(schedule.counts_per_block()).saturating_add(guests)
}

/// The guests of a plan and, where they differ, those of its arms.
pub(crate) fn all_guests(plan: &Plan) -> Vec<GuestPlan> {
    let mut all = vec![plan.guests.clone()];
    for guests in plan.arms().iter().filter_map(|arm| plan.guests_of(arm).ok()) {
        if !all.contains(&guests) {
            all.push(guests);
        }
    }
    all
}

/// The programs that a plan needs on its host and in its guests, each once, sorted by name.
pub fn needed_programs(plan: &Plan) -> Vec<NeededProgram> {
    let mut needed: BTreeMap<(Place, String, String), String> = BTreeMap::new();
    for workload in plan.workloads.iter().filter(|workload| workload.check().is_ok()) {
        for program in workload.needs() {
            let key = (program.place, program.name.to_owned(), program.package.to_owned());
            needed.entry(key).or_insert_with(|| format!("the workload {}", workload.name));
        }
    }
    let mut need = |name: &str, package: &str, by: String| {
        needed.entry((Place::Host, name.to_owned(), package.to_owned())).or_insert(by);
    };
    for guests in all_guests(plan) {
        let by = "the guests".to_owned();
        match guests {
            GuestPlan::Qemu(qemu) => {
                let program = qemu.program.as_ref().map(|program| program.display().to_string());
                need(program.as_deref().unwrap_or("qemu-system-x86_64"), "qemu-system-x86", by);
            }
            GuestPlan::Libvirt(_) => need("virsh", "libvirt-clients", by),
            GuestPlan::Xen(_) | GuestPlan::XenImage(_) => need("xl", "xen-utils-common", by),
            GuestPlan::Ssh(_) => need("ssh", "openssh-client", by),
            GuestPlan::Host(_) | GuestPlan::None(_) => {}
        }
    }
    let needed = needed.into_iter();
    needed
        .map(|((place, name, package), needed_by)| NeededProgram { place, name, package, needed_by })
        .collect()
}

fn missing(plan: &Plan, host: &Host) -> Vec<MissingProgram> {
    let on_the_host = needed_programs(plan).into_iter().filter(|needed| needed.place == Place::Host);
    let absent = on_the_host.filter(|needed| !host.has(&needed.name));
    absent
        .map(|NeededProgram { name, package, needed_by, .. }| MissingProgram { name, package, needed_by })
        .collect()
}

/// Obstacles to creating domains from the definitions below `root`: files that cannot be read, devices that are in use.
fn obstacles(plan: &Plan, root: &Path) -> Vec<String> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let mut obstacles = Vec::new();
    for guests in all_guests(plan) {
        let GuestPlan::Xen(xen) = guests else { continue };
        for path in xen.domains.iter().filter(|domain| domain.contains('/')) {
            let obstacle = match std::fs::read_to_string(below(path)) {
                Ok(text) => pass_through_obstacle(&Root::directory(root), path, &text),
                Err(error) => Some(format!("Could not read {path}, which guests.domains names: {error}")),
            };
            obstacles.extend(obstacle.filter(|why| !obstacles.contains(why)));
        }
    }
    obstacles
}

fn rights(plan: &Plan, host: &Host) -> Vec<Right> {
    let mut rights = Vec::new();
    let levels = plan.factors.iter().flat_map(|factor| &factor.levels);
    let changes = levels.filter(|level| level.changes_host());
    let names: Vec<&str> = changes.map(|level| level.name.as_str()).collect();
    if !names.is_empty() {
        let needed_by = format!("the levels {}, which change the host", names.join(", "));
        rights.push(Right { what: "root".to_owned(), needed_by, there: host.is_root, optional: false });
    }
    let kvm = |needed_by: &str| Right {
        what: "/dev/kvm".to_owned(),
        needed_by: needed_by.to_owned(),
        there: host.has_kvm,
        optional: false,
    };
    let accelerated = |guests: &GuestPlan| matches!(guests, GuestPlan::Qemu(qemu) if qemu.accel == guests::Accelerator::Kvm);
    if all_guests(plan).iter().any(accelerated) {
        rights.push(kvm("the guests"));
    }
    if plan.workloads.iter().any(|workload| matches!(workload.tool, super::workload::Tool::Probe(_))) {
        rights.push(kvm("the micro VM"));
    }
    if plan.samples.exits.is_on() && !matches!(plan.guests, GuestPlan::Host(_)) {
        let needed_by = "VM exits by reason; without it KVM's own counters are read".to_owned();
        rights.push(Right { what: "root".to_owned(), needed_by, there: host.is_root, optional: true });
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Shipped;

    #[test]
    fn runs_starts_and_needs_are_told() {
        let plan = Shipped::find("iozone-apicv").unwrap().plan().unwrap();
        let forecast = forecast(&plan, &Host::default());
        assert_eq!((forecast.arms, forecast.blocks, forecast.more_blocks), (2, 4, true));
        // 12 numbers of guests in 2 arms and 4 blocks, one workload.
        assert_eq!((forecast.runs, forecast.warm_up_runs, forecast.guest_starts), (96, 96, 96));
        assert_eq!(forecast.missing_programs[0].package, "qemu-system-x86");
        let rights: Vec<_> = forecast.rights.iter().map(|right| (right.what.as_str(), right.there)).collect();
        assert_eq!(rights, [("root", false), ("/dev/kvm", false), ("root", false)]);
        // 192 runs of 6 s (5 tests with two passes over 100 MB), and the guests' starts.
        assert_eq!(forecast.seconds_about, 192 * 6 + 960);
        assert!(forecast.seconds_at_most > forecast.seconds_about);
    }

    #[test]
    fn commands_of_levels_need_root() {
        let plan = Shipped::find("side-cores").unwrap().plan().unwrap();
        let rights = forecast(&plan, &Host::default()).rights;
        let needs = |right: &Right| right.what == "root" && right.needed_by.starts_with("the levels vhost,");
        assert!(rights.iter().any(|right| needs(right) && !right.optional), "{rights:?}");
    }

    #[test]
    fn the_longest_time_is_that_of_all_steps() {
        let text = include_str!("plan/small.toml")
            .replace("kind = \"host\"", "kind = \"qemu\"\nstart_limit = \"60s\"")
            .replace("script = \"echo 1\"", "script = \"echo 1\"\nprepare = \"true\"")
            .replace("script = ", "duration = \"10s\"\nscript = ");
        let plan = Plan::read(&text, "small.toml").unwrap();
        // The limit of a step is 140 s. In each of two arms and blocks two guests start and are prepared for one
        // workload. For each of two numbers of guests two workloads run, after a warm-up.
        let of_arm = 2 * 60 + 2 * 140 + 2 * 2 * 2 * 140;
        assert_eq!(forecast(&plan, &Host::default()).seconds_at_most, 4 * of_arm);
    }

    #[test]
    fn a_repetition_that_counts_exits_takes_its_time() {
        let text = include_str!("plan/small.toml").replace("script = ", "duration = \"10s\"\nscript = ");
        let seconds = |exits: &str| {
            let plan = Plan::read(&format!("{text}\n[samples]\nexits = {exits}\n"), "small.toml").unwrap();
            let forecast = forecast(&plan, &Host::default());
            [forecast.seconds_about, forecast.seconds_at_most]
        };
        let (during, apart) = (seconds("true"), seconds("\"apart\""));
        assert!(apart[0] > during[0] && apart[1] > during[1], "{during:?} {apart:?}");
    }

    #[test]
    fn a_program_that_is_there_is_not_missed() {
        let plan = Shipped::find("netperf-xen").unwrap().plan().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let host = Host { programs: vec![folder.path().to_owned()], ..Host::default() };
        let missing = |host: &Host| -> Vec<String> {
            forecast(&plan, host).missing_programs.into_iter().map(|program| program.name).collect()
        };
        assert_eq!(missing(&host), ["netserver", "xl"]);
        std::fs::write(folder.path().join("xl"), "").unwrap();
        assert_eq!(missing(&host), ["netserver"]);
    }

    #[test]
    fn a_domain_whose_device_is_not_free_is_told_before_the_study() {
        let plan = Shipped::find("netperf-xen").unwrap().plan().unwrap();
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let host = Host { xen: Some(root.path().to_owned()), ..Host::default() };
        let obstacles = || forecast(&plan, &host).obstacles;
        assert!(obstacles()[0].starts_with("Could not read /etc/xen/netperf.cfg"), "{:?}", obstacles());
        put("proc/xen/capabilities", "control_d\n");
        put("exitless/commands/xl-info", "virt_caps : hvm hvm_directio\n");
        put("exitless/commands/xl-pci-assignable-list", "\n");
        put("sys/bus/pci/devices/0000:03:10.0/class", "0x020000\n");
        put("etc/xen/netperf.cfg", "name = \"netperf\"\ntype = \"hvm\"\npci = [ \"03:10.0\" ]\n");
        let found = obstacles();
        assert!(found[0].contains("0000:03:10.0 is not ready for a guest"), "{found:?}");
        put("exitless/commands/xl-pci-assignable-list", "0000:03:10.0 \n");
        assert_eq!(obstacles(), [""; 0]);
    }
}
