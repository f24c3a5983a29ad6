/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Follows the exits of every vCPU in the kernel, by the rules of `perf kvm stat`: an exit is handled until the next
 * entry of the same thread; a port, an MSR, an APIC register or a write to an address without memory from its event
 * to that entry; a read of such an address from the exit to its event.
 *
 * Compiled in four ways: counting into cells (no macro), or giving each exit to user space through a ring buffer
 * (RECORD_RING) or, before Linux 5.8, through perf's buffers (RECORD_PERF), or counting into cells and sampling what
 * the processors do meanwhile (HOT_SPOTS).
 *
 * All that a thread's exits change belongs to that thread and is changed in its own context, so that nothing here
 * needs a lock, an atomic operation or a copy for each processor.
 */
#include "bpf.h"

/* What the loader found out about the running kernel; never written here. */

/* 1: only exits of processes in `watched`. */
volatile const u32 filtered;
/* 1: exit codes are SVM's. */
volatile const u32 svm;
/* Raw tracepoints: which argument of kvm_exit is the vCPU (0, or 1 behind the reason before Linux 5.17). */
volatile const u32 vcpu_argument;
/* Raw tracepoints: bytes from struct kvm_vcpu to its number; to struct vcpu_vmx's exit reason, or to the pointer
 * to the VMCB and from there to the exit code. */
volatile const u32 vcpu_id_at;
volatile const u32 reason_at;
volatile const u32 vmcb_at;
/* Tracepoints: bytes from the start of the record to each field, from the event's format file. */
volatile const u32 exit_reason_at;
volatile const u32 entry_vcpu_at;
volatile const u32 pio_rw_at, pio_port_at;
volatile const u32 mmio_type_at, mmio_gpa_at;
volatile const u32 msr_write_at, msr_ecx_at;
volatile const u32 apic_rw_at, apic_reg_at;
volatile const u32 ipi_id_at;
volatile const u32 unaccelerated_offset_at, unaccelerated_rw_at;

/*
 * 1 while events are followed. Attaching and detaching one program after the other takes long (the kernel waits for all
 * processors each time), and an exit that is seen by itself, without its entry, has no time. So all programs are there
 * before this is raised, and all still are when it is lowered.
 */
volatile u32 running;

#define NO_VCPU 0xffffffff

/* What a cell counts; the reason or the access is its value. */
enum kind {
	KIND_REASON,
	KIND_PORT_READ,
	KIND_PORT_WRITE,
	KIND_MMIO_READ,
	KIND_MMIO_WRITE,
	KIND_MSR_READ,
	KIND_MSR_WRITE,
	KIND_APIC_READ,
	KIND_APIC_WRITE,
	KIND_INCOMPLETE_IPI,
	KIND_UNACCELERATED_READ,
	KIND_UNACCELERATED_WRITE,
	KIND_NESTED_EXIT,
	KIND_NESTED_TO_L1,
	/* Accesses that have no cell for themselves. */
	KIND_OTHER_ACCESS,
	KINDS,
};

/* Accesses that wait for the entry: one of each sort, the last. */
enum sort { SORT_PORT, SORT_MMIO, SORT_MSR, SORT_APIC, SORT_AVIC, SORT_NESTED, SORTS };

struct pending {
	u64 since_ns;
	u64 value;
	u32 kind;
	u32 unused;
};

/*
 * One vCPU, told apart by a key: the address of its structure from raw tracepoints, the thread from the others, which do
 * not say it.
 */
struct vcpu {
	u64 key;
	/* Process and thread, as the kernel gives them together. */
	u64 id;
	/* When it left the guest; 0 while it is there, or was not seen leaving. */
	u64 exit_ns;
	/* From when a read of an address is measured; 0 after one. */
	u64 mmio_start_ns;
	u32 number;
	u32 reason;
	u16 cpu;
	u8 ignored;
	/* A bit for each sort that waits. */
	u8 waiting;
	/* Cells that its accesses have got. */
	u16 access_cells;
	/* A bit for each sort that came before the event of its exit. */
	u8 early;
	u8 unused;
	struct pending pending[SORTS];
};

/*
 * Where a vCPU is found costs more than anything else here, so most are in an array at a place that follows from the
 * key. A place is taken by whoever puts its number into `places_taken`; who finds two taken goes into the hash.
 */
#define PLACES_BITS 13

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1 << PLACES_BITS);
	TYPE(key, u32);
	TYPE(value, struct vcpu);
} places SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 1 << PLACES_BITS);
	TYPE(key, u32);
	TYPE(value, u64);
} places_taken SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u64);
	TYPE(value, struct vcpu);
} vcpus SEC(".maps");

/* The key of the vCPU that a thread runs, for events that do not say it. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u32);
	TYPE(value, u64);
} keys SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 1024);
	TYPE(key, u32);
	TYPE(value, u8);
} watched SEC(".maps");

/* What could not be kept: records, and exits for which there was no room; and how often processors were sampled. */
enum counter { LOST_RECORDS, EXITS_WITHOUT_ROOM, TICKS, COUNTERS };

#ifdef HOT_SPOTS
/* Processes that have vCPUs: their other threads work for the device model. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u32);
	TYPE(value, u8);
} monitors SEC(".maps");
#endif

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, COUNTERS);
	TYPE(key, u32);
	TYPE(value, u64);
} counters SEC(".maps");

INLINE void count(u32 which)
{
	u64 *counter = map_lookup_elem(&counters, &which);
	if (counter)
		*counter += 1;
}

/* Spreads keys that differ in few bits (Fibonacci hashing). */
INLINE u32 spread(u64 key, u32 bits)
{
	return (key * 0x9e3779b97f4a7c15ULL) >> (64 - bits);
}

INLINE struct vcpu *find_vcpu(u64 key)
{
	u32 at = spread(key, PLACES_BITS);
	struct vcpu *vcpu = map_lookup_elem(&places, &at);
	if (vcpu && vcpu->key == key)
		return vcpu;
	at ^= 1;
	vcpu = map_lookup_elem(&places, &at);
	if (vcpu && vcpu->key == key)
		return vcpu;
	return map_lookup_elem(&vcpus, &key);
}

#if defined(RECORD_RING) || defined(RECORD_PERF)
#include "record.h"
#else
#include "cells.h"
#endif

static __attribute__((noinline)) struct vcpu *new_vcpu(u64 key)
{
	u32 at = spread(key, PLACES_BITS);
#pragma unroll
	for (int neighbour = 0; neighbour < 2; neighbour++, at ^= 1)
		if (!map_update_elem(&places_taken, &at, &key, UPDATE_NOEXIST))
			return map_lookup_elem(&places, &at);
	struct vcpu empty = {};
	if (map_update_elem(&vcpus, &key, &empty, UPDATE_ANY))
		count(EXITS_WITHOUT_ROOM);
	return map_lookup_elem(&vcpus, &key);
}

/* It is new, another thread runs it now, or another VM has got the memory of one that ended. */
INLINE struct vcpu *begin_vcpu(struct vcpu *vcpu, u64 key, u64 id, u32 number)
{
	u32 thread = id, process = id >> 32;
	if (!vcpu)
		vcpu = new_vcpu(key);
	if (!vcpu)
		return 0;
	__builtin_memset(vcpu, 0, sizeof(*vcpu));
	vcpu->key = key;
	vcpu->id = id;
	vcpu->number = number;
	vcpu->ignored = filtered && !map_lookup_elem(&watched, &process);
	map_update_elem(&keys, &thread, &key, UPDATE_ANY);
#ifdef HOT_SPOTS
	u8 there = 1;
	if (!vcpu->ignored)
		map_update_elem(&monitors, &process, &there, UPDATE_ANY);
#endif
	return vcpu;
}

/*
 * What programs return: a perf event of the same tracepoint, be it of this or another process, gets only what every program
 * attached to it keeps.
 */
#define KEEP 1

/* The exit before this one, if no entry of its thread followed. */
INLINE void close_last(void *context, struct vcpu *vcpu)
{
	if (UNLIKELY(vcpu && vcpu->exit_ns)) {
		close_exit(context, vcpu, ktime_get_ns(), 0);
		vcpu->exit_ns = 0;
	}
}

/* `SVM_EXIT_MSR` of include/uapi/asm/svm.h. */
#define SVM_EXIT_MSR 0x7c

/*
 * Before Linux 6.5, KVM for AMD sends the IPI that a guest requests of its x2APIC, and traces both accesses, before it traces
 * the exit.
 */
INLINE u32 can_be_early(u32 sort)
{
	return svm && (sort == SORT_MSR || sort == SORT_APIC);
}

INLINE void keep_early(struct vcpu *vcpu, u32 kind, u32 sort, u64 value)
{
	struct pending *pending = &vcpu->pending[sort];
	pending->value = value;
	pending->kind = kind;
	vcpu->early |= 1 << sort;
}

INLINE void take_early(void *context, struct vcpu *vcpu)
{
	u32 early = vcpu->early, follows = vcpu->reason == SVM_EXIT_MSR;
	vcpu->early = 0;
	if (early & (1 << SORT_APIC))
		note_early(context, vcpu, SORT_APIC, follows);
	if (early & (1 << SORT_MSR))
		note_early(context, vcpu, SORT_MSR, follows);
}

INLINE int left_guest(void *context, struct vcpu *vcpu, u32 reason)
{
	if (!vcpu || vcpu->ignored)
		return KEEP;
	u64 now = ktime_get_ns();
	vcpu->exit_ns = now;
	vcpu->mmio_start_ns = now;
	vcpu->reason = reason;
	note_exit(vcpu);
	if (UNLIKELY(vcpu->early))
		take_early(context, vcpu);
	return KEEP;
}

/* A new vCPU may have the memory of one whose thread ended within an exit: that exit has no entry. */
INLINE int entered_guest(void *context, struct vcpu *vcpu)
{
	if (!running || !vcpu || !vcpu->exit_ns || vcpu->id != get_current_pid_tgid())
		return KEEP;
	close_exit(context, vcpu, ktime_get_ns(), 1);
	vcpu->exit_ns = 0;
	return KEEP;
}

/* The vCPU that this thread ran last. */
INLINE struct vcpu *vcpu_of_thread(void)
{
	if (!running)
		return 0;
	u32 thread = get_current_pid_tgid();
	u64 *key = map_lookup_elem(&keys, &thread);
	return key ? find_vcpu(*key) : 0;
}

INLINE int accessed(void *context, u32 kind, u32 sort, u64 value)
{
	struct vcpu *vcpu = vcpu_of_thread();
	if (vcpu && vcpu->exit_ns)
		note_access(context, vcpu, kind, sort, value);
	else if (can_be_early(sort) && vcpu && !vcpu->ignored && vcpu->id == get_current_pid_tgid())
		keep_early(vcpu, kind, sort, value);
	return KEEP;
}

/* Whose exit it was: it goes by the reason for which the processor left the nested guest, whatever L1 is told. */
INLINE int nested(void *context, u32 kind)
{
	struct vcpu *vcpu = vcpu_of_thread();
	if (vcpu && vcpu->exit_ns)
		note_access(context, vcpu, kind, SORT_NESTED, vcpu->reason);
	return KEEP;
}

/* A read that is not answered yet is followed by the one that is, which is the one that counts. */
#define MMIO_READ 1
#define MMIO_WRITE 2

INLINE int mmio(void *context, u64 type, u64 address)
{
	if (type == MMIO_READ)
		return accessed(context, KIND_MMIO_READ, SORT_MMIO, address);
	if (type == MMIO_WRITE)
		return accessed(context, KIND_MMIO_WRITE, SORT_MMIO, address);
	return KEEP;
}

#include "raw.h"
#include "tracepoints.h"
#ifdef HOT_SPOTS
#include "hot_spots.h"
#endif

/* The kernel lends most of these functions to programs of a licence compatible with its own. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
