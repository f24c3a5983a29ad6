//! The guest's disk.

use std::fs::File;
use std::path::{Path, PathBuf};

use guest::DATA_SERIAL;

use super::super::plan::{Aio, DiskBus, DiskCache, DiskPlan, QemuPlan};
use super::options::{escaped, virtio_suffix};

const FRESH: &str = "disk.raw";

/// Creates a guest's fresh, sparse disk image, if the plan asks for one.
pub(super) fn make_disk(plan: &QemuPlan, index: u32, folder: &Path) -> Result<(), String> {
    match plan.disk() {
        Some(disk) if disk.path.is_none() => {
            let path = folder.join(FRESH);
            File::create(&path)
                .and_then(|file| file.set_len(disk.size.bytes()))
                .map_err(|error| format!("Could not create the disk {}: {error}", path.display()))
        }
        Some(disk) => {
            let path = path(disk, index);
            match path.metadata() {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("guests.disk.path {}: {error}", path.display())),
            }
        }
        None => Ok(()),
    }
}

fn path(disk: &DiskPlan, index: u32) -> PathBuf {
    match &disk.path {
        None => PathBuf::from(FRESH),
        Some(path) => PathBuf::from(path.replace("{guest}", &index.to_string())),
    }
}

/// QEMU's arguments for the disk.
pub(super) fn disk(plan: &QemuPlan, index: u32) -> Vec<String> {
    let Some(disk) = plan.disk() else { return Vec::new() };
    let mut words = Vec::new();
    let mut drive = format!("if=none,id=data,format=raw,file={}", escaped(&path(disk, index)));
    if let Some(aio) = disk.aio {
        drive += match aio {
            Aio::Threads => ",aio=threads",
            Aio::Native => ",aio=native",
            Aio::IoUring => ",aio=io_uring",
        };
    }
    if let Some(cache) = disk.cache {
        drive += match cache {
            DiskCache::None => ",cache=none",
            DiskCache::Writeback => ",cache=writeback",
            DiskCache::Writethrough => ",cache=writethrough",
            DiskCache::Directsync => ",cache=directsync",
            DiskCache::Unsafe => ",cache=unsafe",
        };
    }
    if let Some(iops) = disk.iops {
        drive += &format!(",throttling.iops-total={iops}");
    }
    if let Some(bandwidth) = disk.bandwidth {
        drive += &format!(",throttling.bps-total={}", bandwidth.bytes());
    }
    words.extend(["-drive".to_owned(), drive]);
    let mut thread = "";
    if disk.iothread {
        words.extend(["-object", "iothread,id=io"].map(str::to_owned));
        thread = ",iothread=io";
    }
    let bus = virtio_suffix(plan);
    let queues = |name: &str| disk.queues.map_or_else(String::new, |count| format!(",{name}={count}"));
    let serial = format!("serial={DATA_SERIAL}");
    let devices = match disk.bus {
        DiskBus::None => vec![],
        DiskBus::VirtioBlk => {
            vec![format!("virtio-blk-{bus},drive=data,{serial}{thread}{}", queues("num-queues"))]
        }
        DiskBus::VirtioScsi => vec![
            format!("virtio-scsi-{bus},id=scsi{thread}{}", queues("num_queues")),
            format!("scsi-hd,bus=scsi.0,drive=data,{serial}"),
        ],
        DiskBus::Ide => vec![format!("ide-hd,bus=ide.0,drive=data,{serial}")],
        DiskBus::Nvme => vec![format!("nvme,drive=data,{serial}{}", queues("max_ioqpairs"))],
    };
    words.extend(devices.into_iter().flat_map(|device| ["-device".to_owned(), device]));
    words
}
