//! The steps of a workload for each guest.

use crate::factor::Level;
use crate::workload::{Place, Scene, Step, Steps, WorkloadPlan};
use guests::Guest;

/// The steps for each guest, or for the host if there are no guests.
pub(super) fn steps(workload: &WorkloadPlan, levels: &[&Level], guests: &[Box<dyn Guest>]) -> Vec<Steps> {
    let count = u32::try_from(guests.len()).unwrap_or(u32::MAX);
    let interrupt_virtualization = levels.iter().find_map(|level| level.interrupt_virtualization);
    let scene = Scene { guests: count, interrupt_virtualization, ..Scene::default() };
    if guests.is_empty() {
        return vec![workload.steps(&scene)];
    }
    let scenes = (0..).zip(guests).map(|(number, guest)| Scene {
        guest: number,
        vcpus: guest.vcpus(),
        address: guest.address(),
        host_address: guest.host_address(),
        ..scene.clone()
    });
    scenes.map(|scene| workload.steps(&scene)).collect()
}

/// The machine that a guest's step runs on.
pub(super) fn machine<'a>(
    step: &Step,
    number: usize,
    guests: &'a mut [Box<dyn Guest>],
    host: &'a mut Box<dyn Guest>,
) -> Result<&'a mut dyn Guest, String> {
    match step.place {
        Place::Host => Ok(host.as_mut()),
        Place::Guest => match guests.get_mut(number) {
            Some(guest) => Ok(guest.as_mut()),
            None => Err(format!("the step {:?} runs in a guest, and there is none", step.name)),
        },
    }
}
