# What exitless does on one kernel of the matrix, each result in a file of its own below out/. All observers watch the
# same exits of one micro VM.
mkdir -p out; cd out
uname -v >version

exitless trace --json >trace.out 2>trace.err & trace=$!
until grep -q 'ends it' trace.err || ! kill -0 $trace 2>/dev/null; do sleep 0.2; done
cat >stat.sh <<'END'
exitless stat --no-raw-tracepoints --json -- exitless stat --json -- sh -c 'exitless probe --json --samples 50 \
    --warm-up 5 --blocks 1 --measure eoi --measure hlt >probe.json 2>probe.err' >stat.json 2>stat.err
END
perf stat -x, -o perf.csv -a -e kvm:kvm_exit \
    perf record -q -B -N -a -m 8M -e kvm:kvm_exit -e kvm:kvm_entry -o perf.data \
    trace-cmd record -q -o trace.dat -e kvm:kvm_exit -e kvm:kvm_entry \
    exitless record -o own.exits -- sh stat.sh >observers.out 2>observers.err
kill -INT $trace; wait $trace
for file in perf.data trace.dat own.exits; do exitless report --json $file >$file.json 2>$file.err; done

# KVM's state of a VM can be read while it rests, and then the emulated CPUs are free.
exitless probe --measure timer-fire --samples 200 --warm-up 10 --blocks 600 >/dev/null 2>&1 & vm=$!; sleep 1
kill -STOP $vm; exitless verify --vm $vm --json --duration 200ms >verify.json 2>verify.err
kill -9 $vm; wait

exitless prove --json --measure eoi --samples 20 --blocks 1 >prove.json 2>prove.err
rm perf.data trace.dat own.exits
exit 0
