/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Follows the exits of every vCPU in the kernel, by the rules of `perf kvm stat`: an exit is handled until the next
 * entry of the same thread; a port, an MSR, an APIC register or a write to an address without memory from its event
 * to that entry; a read of such an address from the exit to its event.
 *
 * Compiled in three ways: counting into cells (no macro), or giving each exit to user space through a ring buffer
 * (RECORD_RING) or, before Linux 5.8, through perf's buffers (RECORD_PERF).
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
	KINDS,
};

/* Accesses that wait for the entry: one of each sort, the last. */
enum sort { SORT_PORT, SORT_MMIO, SORT_MSR, SORT_APIC, SORT_AVIC, SORTS };

struct pending {
	u64 since_ns;
	u64 value;
	u32 kind;
	u32 unused;
};

/* One thread that runs a vCPU. */
struct thread {
	/* When it left the guest; 0 while it is there, or was not seen leaving. */
	u64 exit_ns;
	/* From when a read of an address is measured; 0 after one. */
	u64 mmio_start_ns;
	u32 process;
	u32 vcpu;
	u32 reason;
	u16 cpu;
	u8 ignored;
	/* A bit for each sort that waits. */
	u8 waiting;
	struct pending pending[SORTS];
	/* The last access, for records. */
	u64 access_value;
	u32 access_kind;
	u32 unused;
};

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 1024);
	TYPE(key, u32);
	TYPE(value, u8);
} watched SEC(".maps");

/* What could not be kept. */
enum counter { LOST_RECORDS, THREADS_FULL, CELLS_FULL, COUNTERS };

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

#if defined(RECORD_RING) || defined(RECORD_PERF)
#include "record.h"
#else
#include "cells.h"
#endif

INLINE struct thread *thread_of(u64 id)
{
	u32 tid = id;
	return map_lookup_elem(&threads, &tid);
}

static __attribute__((noinline)) struct thread *new_thread(u64 id, u32 vcpu)
{
	u32 tid = id;
	struct thread empty = {};
	empty.process = id >> 32;
	empty.vcpu = vcpu;
	empty.ignored = filtered && !map_lookup_elem(&watched, &empty.process);
	if (map_update_elem(&threads, &tid, &empty, UPDATE_ANY))
		count(THREADS_FULL);
	return map_lookup_elem(&threads, &tid);
}

INLINE int left_guest(void *context, struct thread *thread, u64 id, u32 reason)
{
	if (thread->ignored)
		return 0;
	u64 now = ktime_get_ns();
	if (UNLIKELY(thread->exit_ns))
		close_exit(context, thread, id, now, 0);
	thread->exit_ns = now;
	thread->mmio_start_ns = now;
	thread->reason = reason;
	thread->cpu = get_smp_processor_id();
	return 0;
}

INLINE int entered_guest(void *context, struct thread *thread, u64 id)
{
	if (!thread->exit_ns)
		return 0;
	close_exit(context, thread, id, ktime_get_ns(), 1);
	thread->exit_ns = 0;
	thread->mmio_start_ns = 0;
	return 0;
}

INLINE int accessed(u32 kind, u32 sort, u64 value)
{
	u64 id = get_current_pid_tgid();
	struct thread *thread = thread_of(id);
	/* Before the first exit that was seen there is nothing that it could be part of. */
	if (!thread || thread->ignored || !thread->exit_ns)
		return 0;
	thread->access_kind = kind;
	thread->access_value = value;
	note_access(thread, id, kind, sort, value);
	return 0;
}

/* A read that is not answered yet is followed by the one that is, which is the one that counts. */
#define MMIO_READ 1
#define MMIO_WRITE 2

INLINE int mmio(u64 type, u64 address)
{
	if (type == MMIO_READ)
		return accessed(KIND_MMIO_READ, SORT_MMIO, address);
	if (type == MMIO_WRITE)
		return accessed(KIND_MMIO_WRITE, SORT_MMIO, address);
	return 0;
}

#include "raw.h"
#include "tracepoints.h"

/* The kernel lends most of these functions to programs of a licence compatible with its own. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
