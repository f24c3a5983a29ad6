# A process with a VM that holds whoever reads its command line: it begins a mapping of a file whose file system, this
# program's, never says that a page was written, and the kernel has the process's memory locked until then.
use strict;
use warnings;

my ($MMAP, $READ, $MOUNT) = (9, 0, 165);
my $file = "/tmp/held";
open(my $made, ">", $file) or die "making $file: $!";
close $made;
open(my $device, "+<", "/dev/fuse") or die "/dev/fuse: $!";
my $options = "fd=" . fileno($device) . ",rootmode=100600,user_id=0,group_id=0";
my ($source, $kind) = ("held", "fuse");
syscall($MOUNT, $source, $file, $kind, 0, $options) == 0 or die "mounting: $!";

my $opened = 0;
# linux/fuse.h: a header of length, error and number, and what the operation gives.
sub answer {
    my ($number, $body, $error) = @_;
    syswrite($device, pack("L l Q", 16 + length $body, $error // 0, $number) . $body);
}
sub serve {
    while (sysread($device, my $request, 1 << 18)) {
        my (undef, $operation, $number) = unpack("L L Q", $request);
        if ($operation == 26) {    # INIT: version 7.31, nothing special
            answer($number, pack("L4 S2 L2 S2 L8", 7, 31, 4096, 0, 0, 0, 65536, 0, 0, 0, (0) x 8));
        } elsif ($operation == 3) {    # GETATTR: a file of 4096 bytes
            answer($number, pack("Q L2 Q3 Q3 L3 L7", 3600, 0, 0, 1, 4096, 8, 0, 0, 0, 0, 0, 0, 0100600, 1, 0, 0, 0, 4096, 0));
        } elsif ($operation == 14) {    # OPEN: from the second time on past the page cache
            answer($number, pack("Q L2", 0, $opened++ ? 1 : 0, 0));
        } elsif ($operation == 15) {    # READ
            answer($number, "\0" x 4096);
        } elsif (!grep { $operation == $_ } 2, 16, 36, 42) {    # What is not there; WRITE waits for ever.
            answer($number, "", -38);
        }
    }
}

my $server = fork;
if ($server == 0) { serve(); exit }
close $device;
open(my $kvm, "+<", "/dev/kvm") or die "/dev/kvm: $!";
ioctl($kvm, 0xae01, 0) or die "making a VM: $!";    # KVM_CREATE_VM
open(my $cached, "+<", $file) or die "opening $file: $!";
-s $cached == 4096 or die "the size of $file";
open(my $direct, "+<", $file) or die "opening $file again: $!";
my $mapping = syscall($MMAP, 0, 4096, 3, 1, fileno($cached), 0);
$mapping > 0 or die "mapping: $!";
open(my $zero, "<", "/dev/zero") or die "/dev/zero: $!";
syscall($READ, fileno($zero), $mapping, 1) == 1 or die "changing the page: $!";
$| = 1;
print "server $server\nholding\n";
syscall($MMAP, 0, 4096, 1, 2, fileno($direct), 0);
