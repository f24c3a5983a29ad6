//! The delivery of an assigned device's interrupts to its VM.

use super::Status;
use serde::Serialize;

/// The reason why the hardware cannot post a device's interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PostingObstacle {
    /// Interrupt virtualization is not active for the VM.
    Inhibited,
    /// The IOMMU does not support it (Intel: capability bit 59; AMD: GASup and GAMSup).
    Iommu,
    /// KVM's `enable_device_posted_irqs` is off.
    Parameter,
    /// Disabled by an argument of the host's kernel (`intremap=nopost`, `amd_iommu_intr=legacy`).
    KernelArgument,
    /// A level-triggered interrupt (INTx), which is never posted.
    LevelTriggered,
    /// A mediated device: a driver on the host raises its interrupts, which are never posted.
    Mediated,
}

/// Evidence on one device's interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceEvidence {
    /// The obstacle to posting; `None` if none was found.
    pub obstacle: Option<PostingObstacle>,
    /// The IOMMU supports posting; `None` if unknown.
    pub iommu_posts: Option<bool>,
    /// Interrupts of the device that are registered on the host (`vfio-msi` and others in `/proc/interrupts`).
    pub host_vectors: usize,
    /// The number of its interrupts that the host handled during the observation.
    pub host_interrupts: u64,
    /// The number of its vectors whose interrupt remapping entries KVM wrote during the observation.
    pub updated_vectors: usize,
    /// The number of those that KVM last wrote as posted.
    pub posted_vectors: usize,
    /// What KVM last wrote for all of its vectors during the observation: true if posted. `None` if it did not write all,
    /// or if they differ.
    pub last_update_posts: Option<bool>,
    /// True if KVM has posted interrupts for a vCPU of the VM (AMD's `ir_list`).
    pub vm_has_posted: Option<bool>,
    /// True if no other device of the VM has interrupts that may be posted, so that facts about the VM's devices apply to
    /// it.
    pub only_device: bool,
}

/// The delivery of a device's interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceDelivery {
    /// Posted: delivered to the vCPU without the host's CPU.
    Posted,
    /// Handled by the host, which injects them into the guest.
    ByHost,
    /// No interrupts are registered.
    None,
    /// No interrupts were observed, or evidence is missing.
    Unknown,
}

/// One device's verdict, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceVerdict {
    /// The device's PCI address, or its name.
    pub device: String,
    /// The verdict.
    pub delivery: DeviceDelivery,
    /// The evidence.
    pub evidence: DeviceEvidence,
}

impl DeviceEvidence {
    /// The obstacle that follows from the VM's status, for all its devices.
    #[must_use]
    pub fn obstacle_of(status: Status) -> Option<PostingObstacle> {
        (status == Status::Inhibited).then_some(PostingObstacle::Inhibited)
    }

    /// The verdict that follows from the evidence.
    #[must_use]
    pub fn judge(&self) -> DeviceDelivery {
        // Its driver on the host has the vectors.
        if self.obstacle == Some(PostingObstacle::Mediated) {
            return DeviceDelivery::ByHost;
        }
        if self.host_vectors == 0 {
            return DeviceDelivery::None;
        }
        let in_force =
            matches!(self.obstacle, Some(PostingObstacle::Inhibited | PostingObstacle::LevelTriggered));
        // A posted interrupt never arrives at the host under the device's own vector. So if one arrived, it was not posted.
        if self.host_interrupts > 0 || in_force {
            return DeviceDelivery::ByHost;
        }
        match (self.last_update_posts, self.vm_has_posted) {
            // KVM's actions have priority over conclusions from the host's configuration.
            (Some(true), _) => DeviceDelivery::Posted,
            (Some(false), _) => DeviceDelivery::ByHost,
            // What it wrote for some vectors contradicts conclusions about all of them.
            (None, _) if self.obstacle.is_some() && self.posted_vectors == 0 => DeviceDelivery::ByHost,
            (None, Some(true)) if self.only_device && !self.is_mixed() => DeviceDelivery::Posted,
            (None, Some(false)) if self.posted_vectors == 0 => DeviceDelivery::ByHost,
            _ => DeviceDelivery::Unknown,
        }
    }

    /// Tests whether KVM left some of its vectors unposted, which says nothing about the others.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.last_update_posts.is_none() && self.posted_vectors < self.updated_vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reached_the_host_was_not_posted() {
        let seen = DeviceEvidence {
            obstacle: None,
            iommu_posts: Some(true),
            host_vectors: 2,
            host_interrupts: 0,
            updated_vectors: 0,
            posted_vectors: 0,
            last_update_posts: None,
            vm_has_posted: None,
            only_device: true,
        };
        let configured = Some(PostingObstacle::KernelArgument);
        let inhibited = DeviceEvidence::obstacle_of(Status::Inhibited);
        let one_unposted = DeviceEvidence { updated_vectors: 1, ..seen.clone() };
        let one_posted = DeviceEvidence { updated_vectors: 1, posted_vectors: 1, ..seen.clone() };
        let mediated = Some(PostingObstacle::Mediated);
        let table = [
            (one_unposted.clone(), DeviceDelivery::Unknown),
            (DeviceEvidence { vm_has_posted: Some(true), ..one_unposted.clone() }, DeviceDelivery::Unknown),
            (DeviceEvidence { vm_has_posted: Some(false), ..one_unposted.clone() }, DeviceDelivery::ByHost),
            (DeviceEvidence { obstacle: configured, ..one_unposted }, DeviceDelivery::ByHost),
            (one_posted.clone(), DeviceDelivery::Unknown),
            (DeviceEvidence { vm_has_posted: Some(true), ..one_posted.clone() }, DeviceDelivery::Posted),
            (DeviceEvidence { obstacle: configured, ..one_posted }, DeviceDelivery::Unknown),
            (DeviceEvidence { obstacle: mediated, host_vectors: 0, ..seen.clone() }, DeviceDelivery::ByHost),
            (seen.clone(), DeviceDelivery::Unknown),
            (DeviceEvidence { host_vectors: 0, ..seen.clone() }, DeviceDelivery::None),
            (DeviceEvidence { last_update_posts: Some(true), ..seen.clone() }, DeviceDelivery::Posted),
            (DeviceEvidence { last_update_posts: Some(false), ..seen.clone() }, DeviceDelivery::ByHost),
            (DeviceEvidence { vm_has_posted: Some(true), ..seen.clone() }, DeviceDelivery::Posted),
            (DeviceEvidence { vm_has_posted: Some(false), ..seen.clone() }, DeviceDelivery::ByHost),
            (
                DeviceEvidence { vm_has_posted: Some(true), only_device: false, ..seen.clone() },
                DeviceDelivery::Unknown,
            ),
            (
                DeviceEvidence { host_interrupts: 1, last_update_posts: Some(true), ..seen.clone() },
                DeviceDelivery::ByHost,
            ),
            (DeviceEvidence { obstacle: configured, ..seen.clone() }, DeviceDelivery::ByHost),
            (
                DeviceEvidence { obstacle: configured, last_update_posts: Some(true), ..seen.clone() },
                DeviceDelivery::Posted,
            ),
            (
                DeviceEvidence { obstacle: inhibited, last_update_posts: Some(true), ..seen.clone() },
                DeviceDelivery::ByHost,
            ),
            (DeviceEvidence { obstacle: inhibited, ..seen }, DeviceDelivery::ByHost),
        ];
        for (evidence, expected) in table {
            assert_eq!(evidence.judge(), expected, "{evidence:?}");
        }
    }
}
