//! A laboratory as the target of a study.

use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use guests::GuestPlan;
use lab::{Cache, EmulatorTime, Happening, Image, Lab, Laboratory, PackageRecord, Put, Request, Speed};
use study::forecast::{NeededProgram, needed_programs};
use study::plan::Plan;
use study::stream;
use study::target::{Chunks, Connection, Remote, RemoteError};
use study::workload::Place;

use super::SERVE;
use crate::commands::guest;
use crate::commands::lab::{
    CPUS, MEMORY_MIB, SWITCH_CYCLES, parse_device, parse_kernel, prepare_kernel_and_devices, with_laboratory,
    within,
};
use crate::console::BuildProgress;
use crate::status::Usage;

const REQUEST: &str = "study-request";
const LAST_WORDS: usize = 4096;

/// Checks that the laboratory exists and can have the machine that the target describes.
pub(super) fn check(name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let lab = Lab::find(name)?;
    Ok(Machine::of(lab, arguments)?.request.check(lab)?)
}

/// Prepares a laboratory, and the guest image if the plan needs it. Returns the emulator's name too.
pub(super) fn make_ready(
    name: &str,
    arguments: &[String],
    plan: &Plan,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<(LabRemote, String)> {
    let lab = Lab::find(name)?;
    let mut machine = Machine::of(lab, arguments)?;
    prepare_kernel_and_devices(lab, &machine.request, stop)?;
    let arms = plan.arms();
    let guest_image = arms.iter().any(|arm| plan.guests_of(arm).is_ok_and(|guests| guests.needs_image()));
    let in_guests = match guest_image {
        true => Some(guest::image(&mut BuildProgress::new(), stop)?.manifest().packages.clone()),
        false => None,
    };
    let emulated = with_laboratory(lab, Arc::clone(stop), |laboratory| {
        let on_the_host = laboratory.packages();
        // The host itself takes the place of the guests.
        let in_guests = match &plan.guests {
            GuestPlan::Host(_) => Some(on_the_host),
            _ => in_guests.as_deref(),
        };
        let lacks = lacking(needed_programs(plan), on_the_host, in_guests);
        ensure!(
            lacks.is_empty(),
            "Could not run this plan in {}: {}. A lab has only the packages of its image; nothing was started",
            lab.name,
            lacks.join("; ")
        );
        Ok(laboratory.emulator_name())
    })?;
    machine.request.guest_image = guest_image;
    // Makes a study with a fixed seed reproducible.
    machine.request.seed = plan.order.seed;
    Ok((LabRemote { machine }, emulated))
}

/// The programs missing on the emulated host and in its guests, judged by the packages in their images, one
/// sentence each. Guests with a foreign image are not checked, nor are programs given by a path: the plan
/// makes or copies these.
fn lacking(
    needed: Vec<NeededProgram>,
    on_the_host: &[PackageRecord],
    in_guests: Option<&[PackageRecord]>,
) -> Vec<String> {
    let lacks = needed.into_iter().filter_map(|NeededProgram { place, name, package, needed_by }| {
        let (packages, whose) = match place {
            Place::Host => (on_the_host, "its host lacks"),
            Place::Guest => (in_guests?, "the guest image lacks"),
        };
        let has = name.contains('/') || packages.iter().any(|has| has.name == package);
        (!has).then(|| format!("{whose} {name} (Debian's package {package}), which {needed_by} needs"))
    });
    lacks.collect()
}

/// A laboratory that is ready. Each connection boots it anew.
pub(super) struct LabRemote {
    machine: Machine,
}

#[derive(Clone)]
struct Machine {
    lab: &'static Lab,
    /// The request to the lab, without the file that has the study's request.
    request: Request,
}

impl Machine {
    /// The machine that a target's words describe.
    fn of(lab: &'static Lab, words: &[String]) -> anyhow::Result<Self> {
        let command = ["exitless"].into_iter().chain(SERVE).chain(["--request", REQUEST]);
        let mut machine = Self { lab, request: Request::new(command) };
        for word in words {
            machine.set(word).map_err(|why| Usage(format!("The target says {word}: {why}")))?;
        }
        Ok(machine)
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let request = &mut self.request;
        match word.split_once('=') {
            Some(("device", name)) => request.devices.push(parse_device(name)?),
            Some(("kernel", name)) => request.kernel = Some(parse_kernel(name)?),
            Some(("cpus", number)) => request.cpus = within(number, CPUS)?,
            Some(("speed", mips)) => request.speed = Some(parse_speed(self.lab, mips)?),
            Some(("memory", mib)) => request.memory_mib = Some(within(mib, MEMORY_MIB)?),
            Some(("switch-cycles", cycles)) => request.switch_cycles = within(cycles, SWITCH_CYCLES)?,
            _ if self.lab.is_xen() => request.hypervisor_arguments.push(word.to_owned()),
            _ => request.kernel_arguments.push(word.to_owned()),
        }
        Ok(())
    }
}

/// Parses a speed in millions of instructions a second; fails if the laboratory's emulator has no such clock.
fn parse_speed(lab: &Lab, given: &str) -> Result<u32, String> {
    let mips = given.parse().map_err(|_| "expected a number of million instructions a second".to_owned())?;
    Speed::of(lab, Some(mips)).map(|_| mips).map_err(|error| error.to_string())
}

impl Remote for LabRemote {
    fn connect(&mut self, request: &stream::Request) -> Result<Box<dyn Connection>, RemoteError> {
        let hopeless = |error: anyhow::Error| RemoteError::Hopeless(format!("{error:#}"));
        let folder = tempfile::tempdir().context("Could not create a folder").map_err(hopeless)?;
        let path = folder.path().join(REQUEST);
        write_request(&path, request).map_err(hopeless)?;
        let end = Arc::new(AtomicBool::new(false));
        let (sender, chunks) = mpsc::sync_channel(16);
        let time = Arc::new(OnceLock::new());
        let (machine, stop, powered_on) = (self.machine.clone(), Arc::clone(&end), Arc::clone(&time));
        let machine = std::thread::spawn(move || {
            let said = run(&machine, &path, stop, &sender, &powered_on);
            drop(folder);
            said
        });
        Ok(Box::new(LabConnection { end, time, chunks: Chunks::new(chunks), machine: Some(machine) }))
    }
}

fn write_request(path: &Path, request: &stream::Request) -> anyhow::Result<()> {
    let file = std::fs::File::create(path).with_context(|| format!("Could not write {}", path.display()))?;
    stream::Writer::begin(file)?.message(request)?;
    Ok(())
}

/// Boots the laboratory, and forwards the output of the program inside. Returns its messages.
fn run(
    machine: &Machine,
    request: &Path,
    stop: Arc<AtomicBool>,
    sender: &SyncSender<Vec<u8>>,
    powered_on: &OnceLock<EmulatorTime>,
) -> String {
    let mut said = Vec::new();
    let finished = power_on(machine, request, stop, &mut |happening| match happening {
        // Fails if the study has ended; ignore that.
        Happening::Stdout(bytes) => drop(sender.send(bytes.to_vec())),
        Happening::Stderr(bytes) => {
            said.extend_from_slice(bytes);
            if said.len() > 2 * LAST_WORDS {
                said.drain(..said.len() - LAST_WORDS);
            }
        }
        Happening::PoweredOn(time) => drop(powered_on.set(time)),
        Happening::Reached(_) => {}
    });
    let said = String::from_utf8_lossy(&said).into_owned();
    match finished {
        Ok(()) => said,
        Err(error) => format!("{said}\n{error:#}"),
    }
}

fn power_on(
    machine: &Machine,
    request: &Path,
    stop: Arc<AtomicBool>,
    on_happening: &mut dyn FnMut(Happening<'_>),
) -> anyhow::Result<()> {
    let cache = Cache::of_user()?.stopped_by(Arc::clone(&stop));
    let image = Image::find(&cache)?.context("The labs' image is gone; run `exitless lab build`")?;
    let laboratory = Laboratory::open(&cache, machine.lab, &image, stop, &mut |_| ())?;
    let put = vec![Put { from: request.to_owned(), to: REQUEST.to_owned() }];
    let request = Request { put, ..machine.request.clone() };
    laboratory.run(&request, on_happening)?;
    Ok(())
}

struct LabConnection {
    end: Arc<AtomicBool>,
    /// Set once the emulator runs; making a snapshot first can take a while.
    time: Arc<OnceLock<EmulatorTime>>,
    chunks: Chunks,
    machine: Option<JoinHandle<String>>,
}

impl LabConnection {
    fn power_off(&mut self) -> Option<String> {
        self.end.store(true, Ordering::Relaxed);
        let machine = self.machine.take()?;
        // Keep reading: the machine's thread must not block on a full channel.
        while !machine.is_finished() {
            self.chunks.discard();
        }
        machine.join().ok()
    }
}

impl Read for LabConnection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.chunks.read(bytes)
    }
}

impl Connection for LabConnection {
    /// Powers the host off. Nothing needs to be undone: changes of an emulated host do not outlive it.
    fn ask_to_stop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }

    fn time(&self) -> Option<Duration> {
        Some(self.time.get().map(EmulatorTime::spent).unwrap_or_default())
    }

    fn end(mut self: Box<Self>) -> Option<String> {
        self.power_off()
    }
}

impl Drop for LabConnection {
    fn drop(&mut self) {
        self.power_off();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(names: &[&str]) -> Vec<PackageRecord> {
        let record = |name: &&str| PackageRecord {
            name: (*name).to_owned(),
            version: "1".to_owned(),
            sha256: String::new(),
        };
        names.iter().map(record).collect()
    }

    #[test]
    fn words_of_a_target_set_its_machine_or_are_arguments() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            Machine::of(Lab::find("amd-avic").unwrap(), &words)
        };
        let plain = of(&[]).unwrap().request;
        assert_eq!((plain.cpus, plain.memory_mib, plain.switch_cycles), (2, None, 0));
        assert!(plain.kernel.is_none());
        assert_eq!(of(&["kernel=5.10"]).unwrap().request.kernel.map(|kernel| kernel.name), Some("5.10"));
        let set = of(&[
            "cpus=4",
            "speed=500",
            "device=igb",
            "memory=512",
            "switch-cycles=1200",
            "kvm_amd.avic=1",
            "quiet",
        ])
        .unwrap()
        .request;
        assert_eq!((set.cpus, set.memory_mib, set.switch_cycles), (4, Some(512), 1200));
        assert_eq!((plain.speed, set.speed), (None, Some(500)));
        assert_eq!(set.devices.len(), 1);
        assert_eq!(set.kernel_arguments, ["kvm_amd.avic=1", "quiet"]);
        let xen = Machine::of(Lab::find("xen-apicv").unwrap(), &["apicv=0".to_owned()]).unwrap().request;
        assert_eq!(
            (xen.hypervisor_arguments, xen.kernel_arguments),
            (vec!["apicv=0".to_owned()], Vec::new())
        );
        for (word, why) in [
            ("cpus=9", "from 1 to 8"),
            ("cpus=", "from 1 to 8"),
            ("speed=300", "possible: 125, 250, 500, 1000"),
            ("speed=1G", "expected a number"),
            ("memory=4G", "from 256 to 2048"),
            ("switch-cycles=20000000", "from 0 to 16777215"),
            ("device=e1000", "no such device"),
            ("kernel=4.19", "known: 5.10, 6.1"),
        ] {
            let refused = of(&[word]).err().unwrap().to_string();
            assert!(refused.contains(word) && refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn what_a_laboratory_lacks_is_told_by_its_images() {
        let text = r#"
            name = "web"
            title = "Requests"
            question = "How many?"
            [guests]
            kind = "qemu"
            net = { backend = "tap" }
            [[factors]]
            name = "vcpus"
            baseline = "one"
            levels = [{ name = "one", guests = { vcpus = 1 } }, { name = "two", guests = { vcpus = 2 } }]
            [[workloads]]
            name = "requests"
            tool = "http"
            generator = "wrk"
        "#;
        let needed = || needed_programs(&Plan::read(text, "web.toml").unwrap());
        let (host, guest) = (packages(&["qemu-system-x86", "wrk"]), packages(&["nginx-light"]));
        assert_eq!(lacking(needed(), &host, Some(&guest)), [""; 0]);
        assert_eq!(
            lacking(needed(), &host[..1], Some(&host)),
            [
                "the guest image lacks nginx (Debian's package nginx-light), which the workload requests needs",
                "its host lacks wrk (Debian's package wrk), which the workload requests needs"
            ]
        );
        assert_eq!(lacking(needed(), &host, None), [""; 0], "guests that are not known");
    }
}
