# A guest that is a host itself: a Linux of the laboratory's own kernel whose kvm_amd runs the micro VM of `probe`. Two
# observers and perf count the same exits.

mkdir -p out l1/bin l1/lib64 l1/proc l1/sys l1/dev l1/tmp l1/modules
for program in sh insmod mount exitless; do
    file=$(command -v $program)
    # exitless is static, and too large for two copies: cpio follows the link.
    if [ $program = exitless ]; then ln -s "$file" l1/bin/; continue; fi
    cp -L "$file" l1/bin/$program
    for library in $(LD_TRACE_LOADED_OBJECTS=1 "$file" | grep -o '/[^ ]*'); do
        mkdir -p l1"${library%/*}" && cp -L "$library" l1"$library"
    done
done
find /lib/modules/"$(uname -r)" -name irqbypass.ko -o -name kvm.ko -o -name kvm-amd.ko | xargs -I{} cp {} l1/modules
cat >l1/init <<'EOF'
#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
insmod /modules/irqbypass.ko; insmod /modules/kvm.ko; insmod /modules/kvm-amd.ko
exitless probe --measure cpuid --samples 100 --warm-up 0 --blocks 1 >/dev/null && echo L2 ran
echo b >/proc/sysrq-trigger
EOF
chmod +x l1/init
(cd l1 && find . | cpio --quiet -L -o -H newc) >l1.img
# QEMU puts it at a page boundary right below the top of a microvm's memory, whose last page holds the ACPI tables.
truncate -s %4096 l1.img

cat >guest <<'EOF'
qemu-system-x86_64 -M microvm,accel=kvm,pit=off,pic=off,rtc=on,isa-serial=on,kernel-irqchip=split -cpu host -smp 1 -m 640 \
    -kernel /opt/exitless/guest/vmlinux -initrd l1.img -append "console=ttyS0 panic=-1 reboot=t quiet $QUICK" \
    -nographic -no-reboot -nodefaults -no-user-config -serial stdio >out/l1.txt </dev/null
EOF
perf stat -x, -o out/perf.csv -a -e kvm:kvm_nested_vmexit -e kvm:kvm_nested_vmexit_inject -- \
    exitless record -o l1.exits -- \
    exitless stat --by nested --json -- sh guest >out/stat.json 2>out/err
exitless report --by nested --json l1.exits >out/report.json 2>>out/err
exitless predict --json l1.exits >out/predict.json 2>>out/err
