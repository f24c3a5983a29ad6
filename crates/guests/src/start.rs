//! Starting or finding one guest of a plan.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::plan::GuestPlan;
use super::{
    DataPlanes, Guest, GuestError, GuestFiles, HostGuest, LibvirtGuest, Patience, QemuGuest, SshGuest,
    XenGuest, XenImageGuest,
};

/// The resources of a study's guests.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The folder of guests' files: consoles, messages of QEMU, fresh disks.
    pub folder: PathBuf,
    /// The files of the guest image, for plans that need it.
    pub files: Option<GuestFiles>,
    /// The I/O daemon that guests share, if the plan uses one.
    pub planes: DataPlanes,
}

/// Starts guest `index` of the plan, counted from 0, or finds it, and waits until it answers, or until `ending` is set.
///
/// # Errors
/// [`GuestError::Start`] with the reason and the next step.
pub fn start(
    plan: &GuestPlan,
    index: u32,
    ground: &Ground,
    ending: &AtomicBool,
) -> Result<Box<dyn Guest>, GuestError> {
    let patience = Patience { limit: plan.start_limit(), ending };
    let refused = |why: &str| GuestError::Start { name: format!("guest-{index}"), why: why.to_owned() };
    let one_of = |names: &[String]| {
        let name = usize::try_from(index).ok().and_then(|index| names.get(index));
        name.cloned().ok_or_else(|| refused("the plan names fewer machines"))
    };
    let files = || {
        let files = ground.files.as_ref();
        files.ok_or_else(|| refused("there is no guest image; make it with `exitless guest build`"))
    };
    Ok(match plan {
        GuestPlan::Qemu(plan) => {
            Box::new(QemuGuest::start(plan, index, files()?, &ground.planes, &ground.folder, patience)?)
        }
        GuestPlan::XenImage(plan) => {
            Box::new(XenImageGuest::start(plan, index, files()?, &ground.folder, patience)?)
        }
        GuestPlan::Ssh(plan) => {
            let address = one_of(&plan.addresses)?;
            Box::new(SshGuest::connect(&address, &address, &plan.ssh, patience)?)
        }
        GuestPlan::Host(_) => Box::new(HostGuest::new(index, &ground.folder)?),
        GuestPlan::None(_) => return Err(refused("the plan has no guests")),
        GuestPlan::Libvirt(plan) => Box::new(LibvirtGuest::start(plan, index, patience)?),
        GuestPlan::Xen(plan) => Box::new(XenGuest::start(plan, index, patience)?),
    })
}
