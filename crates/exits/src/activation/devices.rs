//! How the interrupts of an assigned device reach its VM.

use super::Status;
use serde::Serialize;

/// Why the hardware cannot post a device's interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PostingObstacle {
    /// Interrupt virtualization is not active for the VM.
    Inhibited,
    /// The IOMMU cannot (Intel: capability bit 59; AMD: GASup and GAMSup).
    Iommu,
    /// KVM's `enable_device_posted_irqs` is off.
    Parameter,
    /// The host's kernel is told not to (`intremap=nopost`, `amd_iommu_intr=legacy`).
    KernelArgument,
    /// A level-triggered interrupt (INTx), which is never posted.
    LevelTriggered,
}

/// What was seen of one device's interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceEvidence {
    /// What stands in the way of posting; `None` when nothing that was looked at does.
    pub obstacle: Option<PostingObstacle>,
    /// Whether the IOMMU can post; `None` when that cannot be told.
    pub iommu_posts: Option<bool>,
    /// Interrupts of the device that are set up on the host (`vfio-msi` and others in `/proc/interrupts`).
    pub host_vectors: usize,
    /// How many of its interrupts the host itself took while it was watched.
    pub host_interrupts: u64,
    /// The last change that KVM made to its remapping entries while it was watched: posted or not.
    pub last_update_posts: Option<bool>,
    /// Whether KVM keeps posted interrupts for a vCPU of the VM (AMD's `ir_list`).
    pub vm_has_posted: Option<bool>,
    /// Whether it is the VM's only device, so that what is known of the VM is known of it.
    pub only_device: bool,
}

/// How they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceDelivery {
    /// From the device to the vCPU.
    Posted,
    /// The host takes them and injects them.
    ByHost,
    /// It has none set up.
    None,
    /// None came, or what would tell is missing.
    Unknown,
}

/// One device's verdict, with what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceVerdict {
    /// The device's PCI address, or its name.
    pub device: String,
    /// The answer.
    pub delivery: DeviceDelivery,
    /// What was seen.
    pub evidence: DeviceEvidence,
}

impl DeviceEvidence {
    /// What stands in the way whatever the host's devices do.
    #[must_use]
    pub fn obstacle_of(status: Status) -> Option<PostingObstacle> {
        (status == Status::Inhibited).then_some(PostingObstacle::Inhibited)
    }

    /// The answer that follows.
    #[must_use]
    pub fn judge(&self) -> DeviceDelivery {
        if self.host_vectors == 0 {
            return DeviceDelivery::None;
        }
        // A posted interrupt does not reach the host as the device's own, so one that did was not posted.
        if self.host_interrupts > 0 || self.obstacle.is_some() {
            return DeviceDelivery::ByHost;
        }
        match (self.last_update_posts, self.vm_has_posted) {
            (Some(true), _) => DeviceDelivery::Posted,
            (Some(false), _) => DeviceDelivery::ByHost,
            (None, Some(true)) if self.only_device => DeviceDelivery::Posted,
            (None, Some(false)) => DeviceDelivery::ByHost,
            _ => DeviceDelivery::Unknown,
        }
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
            last_update_posts: None,
            vm_has_posted: None,
            only_device: true,
        };
        let table = [
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
            (
                DeviceEvidence { obstacle: DeviceEvidence::obstacle_of(Status::Inhibited), ..seen },
                DeviceDelivery::ByHost,
            ),
        ];
        for (evidence, expected) in table {
            assert_eq!(evidence.judge(), expected, "{evidence:?}");
        }
    }
}
