/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Each exit for itself, to user space. */

struct record {
	u64 exit_ns;
	/* UNKNOWN when the next event of the thread was another exit. */
	u64 handling_ns;
	u64 access_value;
	/* How long the last access took; UNKNOWN when there was none. */
	u64 access_ns;
	u32 access_kind;
	u32 reason;
	u32 process;
	u32 thread;
	u32 vcpu;
	u16 cpu;
	u16 unused;
};

#define UNKNOWN (~0ULL)

#ifdef RECORD_RING
struct {
	NUMBER(type, MAP_RINGBUF);
	NUMBER(max_entries, 16 << 20);
} records SEC(".maps");
#else
struct {
	NUMBER(type, MAP_PERF_EVENT_ARRAY);
	TYPE(key, u32);
	TYPE(value, u32);
} records SEC(".maps");
#endif

INLINE void fill(struct record *record, struct vcpu *vcpu, u64 now, u32 timed)
{
	record->exit_ns = vcpu->exit_ns;
	record->handling_ns = timed ? now - vcpu->exit_ns : UNKNOWN;
	record->access_value = vcpu->access_value;
	record->access_kind = vcpu->access_kind;
	/* The first of the waiting ones stands for the last access here. */
	struct pending *last = &vcpu->pending[0];
	if (vcpu->access_kind == KIND_MMIO_READ)
		record->access_ns = last->since_ns;
	else
		record->access_ns = vcpu->access_kind && timed ? now - last->since_ns : UNKNOWN;
	record->reason = vcpu->reason;
	record->process = vcpu->id >> 32;
	record->thread = vcpu->id;
	record->vcpu = vcpu->number;
	record->cpu = vcpu->cpu;
	record->unused = 0;
}

INLINE void close_exit(void *context, struct vcpu *vcpu, u64 now, u32 timed)
{
#ifdef RECORD_RING
	struct record *record = ringbuf_reserve(&records, sizeof(*record), 0);
	if (record) {
		fill(record, vcpu, now, timed);
		/* User space looks at fixed times: waking it for each exit would cost more than the exit. */
		ringbuf_submit(record, RINGBUF_NO_WAKEUP);
	} else {
		count(LOST_RECORDS);
	}
#else
	struct record record;
	fill(&record, vcpu, now, timed);
	if (perf_event_output(context, &records, CURRENT_CPU, &record, sizeof(record)))
		count(LOST_RECORDS);
#endif
	vcpu->access_kind = KIND_REASON;
}

INLINE void note_exit(struct vcpu *vcpu)
{
	vcpu->cpu = get_smp_processor_id();
}

INLINE void note_access(struct vcpu *vcpu, u32 kind, u32 sort, u64 value)
{
	struct pending *last = &vcpu->pending[0];
	u64 now = ktime_get_ns();
	if (kind == KIND_MMIO_READ) {
		/* Known at once. Of two in one exit only the first is measured. */
		last->since_ns = vcpu->mmio_start_ns ? now - vcpu->mmio_start_ns : UNKNOWN;
		vcpu->mmio_start_ns = 0;
	} else {
		last->since_ns = sort == SORT_AVIC ? vcpu->exit_ns : now;
	}
}
