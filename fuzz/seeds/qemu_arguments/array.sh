#!/usr/bin/env bash
# The arguments in parts, so that one can be left out.
REPO="${BASH_SOURCE%/*}"

args=(
  -enable-kvm -m 4096 -cpu Penryn,kvm=on,vendor=GenuineIntel,+invtsc,check
  -machine q35
  -smp 4,cores=2,sockets=1      # threads follow
  # -device usb-kbd
  -device ich9-ahci,id=sata
  -drive id=disk,if=none,format=qcow2,file="$REPO/disk.qcow2"
  -device ide-hd,bus=sata.4,drive=disk
  -object iothread,id=io0
  -object iothread,id=io1
)
args+=(-netdev user,id=net0 -device vmxnet3,netdev=net0,id=net0)
args+=(-device '{"driver": "virtio-blk-pci", "drive": "disk2", "iothread-vq-mapping": [{"iothread": "io0"}, {"iothread": "io1"}]}'
       -blockdev driver=host_device,node-name=disk2,filename=/dev/nvme0n1,cache.direct=on,aio=io_uring)

qemu-system-x86_64 "${args[@]}" $EXTRA
