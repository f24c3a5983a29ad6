#!/bin/sh
# Collects the files by which `exitless doctor` judges a host, where exitless cannot be installed.
#
#   sh collect.sh > host.tar          # on the host; root can read everything
#   exitless doctor --root host.tar   # anywhere
#
# It needs cat, tar and the usual tools, changes nothing, loads no module, and writes to standard output and to a
# temporary directory, which it removes. What it could not read is listed on standard error.
#
# Command lines of VMs and libvirt's definitions are copied as they are, with any passwords in them. On your own
# machine, `exitless snapshot --root host.tar clean.tar.zst` makes an archive without passwords and keys.

set -u
umask 077
LC_ALL=C
export LC_ALL
PATH="$PATH:/usr/sbin:/sbin:/usr/local/sbin"

if [ -t 1 ]; then
    echo "The archive cannot go to a terminal: sh $0 > host.tar" >&2
    exit 2
fi
tree=$(mktemp -d "${TMPDIR:-/tmp}/exitless-collect.XXXXXX") || exit 125
trap 'rm -rf "$tree"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

errors=
# Notes a path that exists and cannot be read.
lack() {
    echo "lacking: $1" >&2
    case $1 in
    *[!A-Za-z0-9/._:+@-]*) ;; # it would not be plain JSON
    *) errors="$errors${errors:+,}\"$1\":$2" ;;
    esac
}

above() { mkdir -p "$tree${1%/*}"; }

# The limit of time for each program that reads about a process: a process can block its readers.
within=
# The processes that did.
blocked=0
# Tests for the status of a program that timeout(1), or a signal of it, ended.
late() { [ "$1" = 124 ] || [ "$1" -gt 128 ]; }
# Notes that reading a path took too long.
block() {
    lack "$1" 110
    blocked=$((blocked + 1))
    return 1
}

# Copies files as they read now. Nothing waits for a FIFO or a device: only regular files are opened. Fails if a process
# blocks it.
copy() {
    for path in "$@"; do
        [ -f "$path" ] || continue
        above "$path"
        $within cat "$path" >"$tree$path" 2>/dev/null && continue
        why=$?
        rm -f "$tree$path"
        if late $why; then block "$path" || return; fi
        if [ -r "$path" ]; then lack "$path" 5; else lack "$path" 13; fi
    done
    return 0
}

# Notes that a path exists.
name() {
    for path in "$@"; do
        [ -e "$path" ] || continue
        above "$path"
        if [ -d "$path" ]; then mkdir -p "$tree$path"; else : >"$tree$path"; fi
    done
}

# Copies symbolic links. Fails if a process blocks it.
link() {
    for path in "$@"; do
        target=$($within readlink "$path")
        why=$?
        if late $why; then block "$path" || return; fi
        [ $why = 0 ] || continue
        above "$path"
        ln -s "$target" "$tree$path"
    done
    return 0
}

release=$(uname -r)
copy /etc/os-release /usr/lib/os-release \
    /proc/cpuinfo /proc/cmdline /proc/config.gz /proc/interrupts /proc/meminfo /proc/modules /proc/stat \
    /proc/irq/[0-9]*/smp_affinity_list /proc/irq/[0-9]*/effective_affinity_list \
    /proc/sys/kernel/arch /proc/sys/kernel/osrelease /proc/sys/kernel/tainted /proc/sys/kernel/version \
    "/boot/config-$release" "/lib/modules/$release/config" "/lib/modules/$release/modules.builtin" \
    "/usr/lib/modules/$release/config" \
    /proc/xen/capabilities /sys/hypervisor/type /sys/hypervisor/guest_type \
    /sys/hypervisor/version/major /sys/hypervisor/version/minor /sys/hypervisor/version/extra \
    /sys/kernel/security/lockdown /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name
for module in kvm kvm_amd kvm_intel vfio_iommu_type1 iommufd vfio_pci vhost vhost_net irqbypass; do
    name "/sys/module/$module" "/sys/module/$module/parameters"
    copy "/sys/module/$module/parameters"/*
done

# What the kernel has, whatever its number says: some five megabytes, of which `exitless snapshot` keeps a few lines.
copy /sys/kernel/btf/vmlinux /sys/kernel/btf/kvm /sys/kernel/btf/kvm_amd /sys/kernel/btf/kvm_intel

cpus=/sys/devices/system/cpu
copy $cpus/online $cpus/possible $cpus/isolated $cpus/nohz_full $cpus/smt/control $cpus/cpuidle/* \
    $cpus/vulnerabilities/* $cpus/cpu[0-9]*/topology/thread_siblings_list \
    $cpus/cpufreq/policy*/scaling_governor $cpus/cpufreq/policy*/scaling_driver \
    /sys/devices/system/node/online /sys/devices/system/node/node[0-9]*/cpulist \
    /sys/devices/system/clocksource/clocksource0/current_clocksource

name /sys/class/iommu /sys/class/iommu/* /sys/kernel/iommu_groups /sys/kernel/iommu_groups/* \
    /sys/kernel/iommu_groups/[0-9]*/devices/* \
    /sys/firmware/acpi/tables /sys/firmware/acpi/tables/IVRS /sys/firmware/acpi/tables/DMAR
copy /sys/class/iommu/*/intel-iommu/cap /sys/class/iommu/*/intel-iommu/ecap /sys/class/iommu/*/amd-iommu/features
name /sys/bus/pci/devices/*/vfio-dev/*
link /sys/bus/pci/devices/*/driver /sys/bus/pci/devices/*/iommu_group /sys/bus/pci/devices/*/physfn \
    /sys/class/vfio-dev/*/device
copy /sys/bus/pci/devices/*/class /sys/bus/pci/devices/*/vendor /sys/bus/pci/devices/*/device \
    /sys/bus/pci/devices/*/sriov_numvfs /sys/bus/pci/devices/*/sriov_totalvfs

# Lines of modprobe.d on other modules are nobody's business.
for file in /etc/modprobe.d/*.conf /run/modprobe.d/*.conf /usr/local/lib/modprobe.d/*.conf \
    /usr/lib/modprobe.d/*.conf /lib/modprobe.d/*.conf; do
    if [ -f "$file" ] && grep -Eq 'kvm|vfio|iommufd|vhost|irqbypass' "$file"; then copy "$file"; fi
done

copy /etc/libvirt/qemu/*.xml /run/libvirt/qemu/*.xml /run/libvirt/qemu/*.pid

# A container hides parts of the host.
set -- /run/systemd/container /.dockerenv /run/.containerenv /dev/termination-log
name "$@"
for mark in "$@"; do
    [ -e "$mark" ] || continue
    copy /proc/self/status
    # The second process of the host is the kernel's; of others the name is nobody's business.
    if grep -qx kthreadd /proc/2/comm 2>/dev/null; then copy /proc/2/comm; fi
    for place in /sys/module /sys/kernel/debug /sys/kernel/tracing; do
        name "$place"
        for entry in "$place"/*; do
            name "$entry"
            break
        done
    done
    break
done

# Processes that hold a VM, and vhost's workers.
closed=0
# Before 1.30 busybox took the time after -t, and would run a program named 2.
for limit in 'timeout 2' 'timeout -t 2'; do
    if $limit true >/dev/null 2>&1; then
        within=$limit
        break
    fi
done
now=0
# Reads the time since boot, in seconds.
clock() {
    read -r now _ </proc/uptime
    now=${now%.*}
}
clock
end=$((now + 600))
for process in /proc/[0-9]*; do
    if [ $blocked -ge 30 ]; then
        echo "lacking: $process and the processes after it, because $blocked others block their inspection" >&2
        break
    fi
    # A user can have any number of processes with any number of descriptors and threads.
    clock
    if [ "$now" -ge $end ]; then
        lack "$process/fd" 110
        echo "lacking: the processes after it, because those before it took ten minutes" >&2
        break
    fi
    pid=${process#/proc/}
    held=no
    worker=no
    # A process that ends meanwhile is no error.
    { read -r comm <"$process/comm"; } 2>/dev/null || continue
    # One `ls` for each process, and more only for those with a VM.
    # shellcheck disable=SC2012 # the kernel's names have no blanks
    descriptors=$($within ls -l "$process/fd" 2>&1)
    if late $?; then
        # It may be a VM.
        copy "$process/comm"
        block "$process/fd" || continue
    fi
    case $descriptors in
    *' -> anon_inode:kvm-'*)
        # Only the first target of a line counts, because any file can have KVM's name within its own.
        for number in $(printf '%s\n' "$descriptors" |
            sed -n -e 's|^[^>]* \([0-9]*\) -> anon_inode:kvm-.*|\1|p' -e 's|^[^>]* \([0-9]*\) -> /dev/vfio/.*|\1|p' |
            head -n 16384); do
            descriptor=$process/fd/$number
            target=$($within readlink "$descriptor")
            if late $?; then block "$descriptor" || continue 2; fi
            case $target in
            # A name with a line feed can make such a line.
            anon_inode:kvm-*) held=yes ;;
            /dev/vfio/*) ;;
            *) continue ;;
            esac
            link "$descriptor" || continue 2
        done
        ;;
    *'Permission denied'*)
        # Each may be a VM.
        closed=$((closed + 1))
        errors="$errors${errors:+,}\"$process/fd\":13"
        copy "$process/comm" "$process"/task/[0-9]*/comm
        ;;
    esac
    case $comm in vhost-[0-9]*) worker=yes ;; esac
    if [ "$held" = yes ] || [ "$worker" = yes ]; then
        copy "$process/comm" "$process/cmdline" "$process/stat" "$process/status" "$process/cgroup" || continue
    fi
    [ "$held" = yes ] || continue
    link "$process/exe" || continue
    threads=0
    for thread in "$process"/task/[0-9]*; do
        threads=$((threads + 1))
        [ $threads -le 16384 ] || break
        copy "$thread/comm" "$thread/stat" "$thread/status" || continue 2
    done
    for home in /sys/kernel/debug/kvm/"$pid"-*; do
        name "$home"
        copy "$home"/vcpu*/pid
    done
done
within=

[ $closed = 0 ] || echo "lacking: $closed processes that this user cannot inspect; each may be a VM" >&2

# Also without the device: what lacks the directory is a copy without devices.
name /dev
if [ -e /dev/kvm ]; then
    name /dev/kvm
    # shellcheck disable=SC2046 # three words
    set -- $(stat -c '%a %u %g' /dev/kvm)
    owners="\"/dev/kvm\":[$((0$1)),$2,$3]"
fi

mkdir -p "$tree/exitless/commands"
# The kernel's messages on virtualization and interrupts.
if messages=$(dmesg 2>/dev/null); then
    # The first line shows that the log is whole.
    printf '%s\n' "$messages" | grep -Ei 'linux version |amd-vi|dmar|kvm|svm|avic|apic|vmx|iommu|irq remapping|interrupt remapping|posted interrupt|hypervisor|locked down|lockdown|microcode|xen|vfio|secure boot|warning: cpu|rip: 0010:|hyper-v' |
        grep -Fiv 'command line:' >"$tree/exitless/dmesg"
else
    lack /exitless/dmesg 1
fi

# CPUID and registers of the first processor, where the kernel has devices for them or the tool is installed.
number() { od -An -tx"$1" -v | tr -s ' \n' ' '; }
if command -v cpuid >/dev/null 2>&1; then
    cpuid -1 -r 2>/dev/null | grep -E '0x(0000000[01]|40000[01]00|8000000[01a]) ' >"$tree/exitless/cpuid"
elif [ -r /dev/cpu/0/cpuid ]; then
    for leaf in 0 1 0x40000000 0x40000100 0x80000000 0x80000001 0x8000000a; do
        # shellcheck disable=SC2046 # four words
        set -- $(dd if=/dev/cpu/0/cpuid bs=16 count=1 iflag=skip_bytes skip=$((leaf)) 2>/dev/null | number 4)
        [ $# -eq 4 ] && printf '0x%08x 0x00: eax=0x%s ebx=0x%s ecx=0x%s edx=0x%s\n' $((leaf)) "$@" >>"$tree/exitless/cpuid"
    done
else
    lack "CPUID (as root, after \`modprobe cpuid\`, or with the tool cpuid installed)" 2
fi
if [ -r /dev/cpu/0/msr ]; then
    if grep -q GenuineIntel /proc/cpuinfo; then
        registers='0x3a 0x480 0x481 0x482 0x48b 0x48c 0x48d 0x48e 0x492'
    else
        registers=0xc0010114
    fi
    for register in $registers; do
        # shellcheck disable=SC2046 # one word
        set -- $(dd if=/dev/cpu/0/msr bs=8 count=1 iflag=skip_bytes skip=$((register)) 2>/dev/null | number 8)
        if [ $# -eq 1 ]; then
            printf '0x%08x: 0x%s\n' $((register)) "$1"
        else
            printf '0x%08x: error 5\n' $((register))
        fi
    done >"$tree/exitless/msr"
else
    lack "registers of VMX or SVM (as root, after \`modprobe msr\`)" 2
fi

# Xen's own answers, in its control domain.
if grep -q control_d /proc/xen/capabilities 2>/dev/null; then
    for line in 'xl info' 'xl dmesg' 'xl list -l' 'xl list' 'xl vcpu-list' 'xl cpupool-list' \
        'xl pci-assignable-list' 'xenpm get-cpufreq-para'; do
        file="$tree/exitless/commands/$(echo "$line" | tr ' ' -)"
        # shellcheck disable=SC2086 # a command and its arguments
        timeout 12 $line >"$file" 2>/dev/null || { rm -f "$file"; lack "the output of $line" 5; }
    done
fi

printf '{"format":1,"tool":"collect.sh of exitless @VERSION@","created":%s,"files":{},"errors":{%s},"owners":{%s}}\n' \
    "$(date +%s)" "$errors" "${owners-}" >"$tree/MANIFEST.json"
cd "$tree" || exit 125
# The manifest is the first file.
set -- MANIFEST.json
for folder in * .dockerenv; do
    if [ -e "$folder" ] && [ "$folder" != MANIFEST.json ]; then set -- "$@" "$folder"; fi
done
tar -cf - "$@" || exit 125
[ -z "$errors" ] || exit 1
