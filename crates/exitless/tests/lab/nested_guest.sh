# A Linux guest with sysbench under QEMU, in each arm of the module's parameter: nested_guest.sh N Y.
# Prints a line "ready ARM SECONDS" when the guest is up, and the exits of a run of sysbench as JSON.

image=/tmp/guest.img
root=/tmp/guest

make_image() {
    mkdir -p $root/usr/bin
    cp /usr/bin/sysbench $root/usr/bin/
    LD_TRACE_LOADED_OBJECTS=1 /usr/bin/sysbench | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
    cat > $root/job.sh <<'JOB'
stty -echo
echo GUEST READY
read -r go
# What it says waits until the exits have been counted: each character of the console is an exit.
sysbench threads --threads=16 --thread-locks=8 --thread-yields=100 --events=320 --time=0 run > /said
echo GUEST DONE
read -r go
cat /said /proc/interrupts
echo GUEST OVER
read -r go
JOB
    # The kernel unpacks archives one behind the other.
    (cd $root && find . | busybox cpio -o -H newc 2> /dev/null) | cat /opt/exitless/guest/initrd.img - > $image
}

# Waits for $1 on the guest's console. What the guest's local APICs say tells most about one that stands still.
await() {
    for second in $(seq "$2"); do
        grep -q "$1" /tmp/console && return
        kill -0 "$qemu" || break
        sleep 1
    done
    printf '\001c\ninfo lapic 0\ninfo lapic 1\n' >&9
    sleep 3
    cat /tmp/console
    exit 1
}

run_arm() {
    modprobe -r kvm_intel && modprobe kvm_intel enable_apicv="$1" || exit 1
    rm -f /tmp/in && mkfifo /tmp/in && exec 9<> /tmp/in
    : > /tmp/console
    begin=$(cut -d. -f1 /proc/uptime)
    # Without a PIT, a PIC and a real-time clock there is less to emulate; split keeps the local APICs in KVM. The
    # emulated host's CPU has more than Linux needs: each feature less is less to set up.
    qemu-system-x86_64 -M microvm,accel=kvm,pit=off,pic=off,rtc=off,isa-serial=on,kernel-irqchip=split \
        -cpu Nehalem,+x2apic,+tsc-deadline -smp 2 -m 256 -kernel /opt/exitless/guest/vmlinux -initrd $image \
        -append "console=ttyS0 loglevel=4 panic=-1 reboot=t nokaslr mitigations=off no-kvmapf no_timer_check \
        cryptomgr.notests apparmor=0 audit=0 nowatchdog tsc=reliable rcupdate.rcu_expedited=1 \
        initcall_blacklist=load_system_certificate_list,jent_mod_init,bpf_tcp_ca_kfunc_init,bpf_dummy_struct_ops_init" \
        -nographic -no-reboot -nodefaults -no-user-config -serial mon:stdio < /tmp/in > /tmp/console 2>&1 &
    qemu=$!
    await 'GUEST READY' 150
    echo "ready $1 $(($(cut -d. -f1 /proc/uptime) - begin))"
    # The counting is under way before the guest is let go.
    exitless stat --json -- sh -c "echo go > /tmp/in
        until grep -q 'GUEST DONE' /tmp/console; do kill -0 $qemu || exit 1; sleep 0.2; done" \
        | grep '^{' | sed "s/^/exits $1 /"
    echo go >&9
    await 'GUEST OVER' 30
    sed "s/^/console $1 /" /tmp/console
    echo off >&9
    wait $qemu
    echo "ended $1 $?"
    exec 9>&-
}

make_image
for arm in "$@"; do run_arm "$arm"; done
