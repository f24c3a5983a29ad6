# The devices of the laboratories' QEMU; what is not named here is not built. Each with its reason.

# The machine of both laboratories (AHCI and the PCIe root complex come with it).
CONFIG_Q35=y
# Xen's platform timer, and what Linux calibrates by.
CONFIG_HPET=y
# Root ports: an assigned device must lie behind one, or the IOMMU's table covers it only if it is there at boot.
CONFIG_PCIE_PORT=y
# The agent's frames, the disks, a network, and a seed for the kernel's random numbers.
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_RNG=y
# IOMMUs that remap interrupts.
CONFIG_VTD=y
CONFIG_AMD_IOMMU=y
# Devices to assign to guests: a disk, a network card with one function, and one with virtual functions (SR-IOV).
CONFIG_NVME_PCI=y
CONFIG_E1000E_PCI_EXPRESS=y
CONFIG_IGB_PCI_EXPRESS=y
# What a #VMEXIT costs, of patch 07.
CONFIG_VMEXIT_COST=y
# isa-debugcon and isa-debug-exit, for small programs that run without a kernel.
CONFIG_ISA_DEBUG=y

# What the machine would bring along.
CONFIG_PCI_DEVICES=n
CONFIG_TEST_DEVICES=n
CONFIG_I440FX=n
CONFIG_ISAPC=n
CONFIG_MICROVM=n
