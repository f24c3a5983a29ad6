/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Follows the exits of every vCPU in the kernel, by the rules of `perf kvm stat`: an exit is handled until the next
 * entry of the same thread; a port, an MSR, an APIC register or an MMIO write from its event to that entry; an MMIO
 * read from the exit to its event.
 *
 * Compiled in four variants: counting into cells (no macro); passing each exit to user space through a ring buffer
 * (RECORD_RING) or, before Linux 5.8, through perf's buffers (RECORD_PERF); counting into cells and sampling what the
 * CPUs do meanwhile (HOT_SPOTS).
 *
 * All state that a thread's exits change belongs to that thread and is only changed in its context, so that nothing
 * here needs a lock, an atomic operation or a per-CPU copy.
 */
#include "bpf.h"

/* Set by the loader for the running kernel; read-only here. */

/* 1: only exits of the processes in `watched`. */
volatile const u32 filtered;
/* 1: exit codes are SVM's. */
volatile const u32 svm;
/* Raw tracepoints: the index of the vCPU among kvm_exit's arguments (0, or 1 after the reason before Linux 5.17). */
volatile const u32 vcpu_argument;
/*
 * Raw tracepoints: offsets in struct kvm_vcpu of its ID; in struct vcpu_vmx of the exit reason, or in struct vcpu_svm
 * of the pointer to the VMCB and in that of the exit code.
 */
volatile const u32 vcpu_id_at;
volatile const u32 reason_at;
volatile const u32 vmcb_at;
/* Tracepoints: the offset of each field in the record, from the event's format file. */
volatile const u32 exit_reason_at;
volatile const u32 entry_vcpu_at;
volatile const u32 pio_rw_at, pio_port_at;
volatile const u32 mmio_type_at, mmio_gpa_at;
volatile const u32 fast_mmio_gpa_at;
volatile const u32 msr_write_at, msr_ecx_at;
volatile const u32 apic_rw_at, apic_reg_at;
volatile const u32 ipi_id_at;
volatile const u32 unaccelerated_offset_at, unaccelerated_rw_at;

/*
 * 1 while events are followed. Attaching and detaching programs one by one takes long (the kernel waits for all CPUs
 * each time), and an exit without its entry has no time. So all programs are attached before this is set, and stay
 * attached until it is cleared.
 */
volatile u32 running;

#define NO_VCPU 0xffffffff

/* The kind of a cell; its value is the reason or the access. */
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
	KIND_FAST_MMIO,
	/* Accesses that have no cell of their own. */
	KIND_OTHER_ACCESS,
	KINDS,
};

/*
 * The classes of accesses that wait for the entry: the last one of each class is kept. Those from SORT_WHOLE on
 * describe the exit itself, so they last as long as the exit: AVIC's, writes that KVM ends by their address, and those
 * of nested guests.
 */
enum sort { SORT_PORT, SORT_MMIO, SORT_MSR, SORT_APIC, SORT_WHOLE, SORT_NESTED, SORTS };

struct pending {
	u64 since_ns;
	u64 value;
	u32 kind;
	u32 unused;
};

/*
 * A vCPU. The key is the address of its structure with raw tracepoints, or the thread with the others, which do not
 * pass the vCPU.
 */
struct vcpu {
	u64 key;
	/* Process and thread, as bpf_get_current_pid_tgid() returns them. */
	u64 id;
	/* The time of the exit; 0 in the guest, and if no exit was seen. */
	u64 exit_ns;
	/* The start of the time of an MMIO read; 0 after the first one in an exit. */
	u64 mmio_start_ns;
	/* If only long exits are recorded: the time at which a short one was. */
	u64 told_ns;
	u32 number;
	u32 reason;
	u16 cpu;
	u8 ignored;
	/* A bit for each class that waits. */
	u8 waiting;
	/* The number of cells that its accesses have taken. */
	u16 access_cells;
	/* A bit for each class whose event came before the event of its exit. */
	u8 early;
	u8 unused;
	struct pending pending[SORTS];
};

/*
 * Finding a vCPU is the most expensive step here, so most vCPUs are in an array, at an index that is calculated from
 * the key. An element is taken by inserting its index into `places_taken`; if two elements are taken, the vCPU goes
 * into the hash map.
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

/* The key of the vCPU that a thread runs, for events that do not have it. */
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

/*
 * Records that were lost, exits for which there was no room, and samples of all CPUs. If only long exits are recorded:
 * all exits, and those that are not recorded because the guest slept.
 */
enum counter { LOST_RECORDS, EXITS_WITHOUT_ROOM, TICKS, EXITS, SLEPT, COUNTERS };

#ifdef HOT_SPOTS
/* Processes with vCPUs: their other threads belong to the device model. */
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

/* Distributes keys that differ in few bits (Fibonacci hashing). */
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

/* For a new vCPU, one that another thread runs now, or one that has the memory of a vCPU that no longer exists. */
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

/* The programs' return value. With 0, perf events of the same tracepoint, in any process, would not get the event. */
#define KEEP 1

/* Ends the previous exit, if it was not followed by an entry of its thread. */
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
 * Before Linux 6.5, KVM for AMD sends an IPI that the guest requests through its x2APIC, and traces both accesses,
 * before it traces the exit.
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

/* A new vCPU may have the memory of one whose thread ended during an exit: that exit has no entry. */
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

/* The value is the reason of the exit from the nested guest, whatever L1 is told. */
INLINE int nested(void *context, u32 kind)
{
	struct vcpu *vcpu = vcpu_of_thread();
	if (vcpu && vcpu->exit_ns)
		note_access(context, vcpu, kind, SORT_NESTED, vcpu->reason);
	return KEEP;
}

/* KVM traces a read that needs user space again when it is completed, and that event counts. */
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

/* The kernel offers most of these functions only to programs with a GPL-compatible licence. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
