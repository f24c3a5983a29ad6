#!/bin/bash
# A guest with 380 vCPUs, as the text on AVIC shows one: the machine of 96-core CPUs.
set -e
IMAGE=${1:-/srv/images/ol8.qcow2}    # don't run it twice

exec /usr/libexec/qemu-kvm \
    -nodefaults -no-user-config \
    -machine q35,accel=kvm,kernel-irqchip=split \
    -cpu host,topoext=on,x2apic=on \
    -smp 380 \
    -m 64G \
    -drive if=pflash,format=raw,unit=0,file=/usr/share/OVMF/OVMF_CODE.fd,readonly=on \
    -blockdev node-name=drive0,driver=qcow2,file.driver=file,file.filename="$IMAGE" \
    -device virtio-blk-pci,drive=drive0,id=disk0 \
    -device vfio-pci,host=a1:00.1 \
    -serial mon:stdio -nographic > /tmp/ol8.log 2>&1
