/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Passes each exit to user space. */

enum record_type { RECORD_EXIT, RECORD_ACCESS };

/* An exit, or an access of the exit, which precedes it. */
struct record {
	u64 exit_ns;
	/*
	 * The time of an exit, or of an access that is complete; UNKNOWN if the next event of the thread was another
	 * exit, or if the access is not complete.
	 */
	u64 handling_ns;
	/* The reason, or what was accessed. */
	u64 value;
	/* Of an access, the start of its time. Of an exit, its end. */
	u64 since_ns;
	u32 process;
	u32 thread;
	u32 vcpu;
	u32 kind;
	u16 cpu;
	u16 type;
	u32 unused;
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

INLINE void fill(struct record *record, struct vcpu *vcpu)
{
	record->exit_ns = vcpu->exit_ns;
	record->process = vcpu->id >> 32;
	record->thread = vcpu->id;
	record->vcpu = vcpu->number;
	record->cpu = vcpu->cpu;
	record->unused = 0;
}

INLINE void give(void *context, struct vcpu *vcpu, u64 handling_ns, u64 since_ns, u32 type, u32 kind, u64 value)
{
#ifdef RECORD_RING
	struct record *record = ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		if (type == RECORD_EXIT)
			count(LOST_RECORDS);
		return;
	}
#else
	struct record place, *record = &place;
#endif
	fill(record, vcpu);
	record->handling_ns = handling_ns;
	record->since_ns = since_ns;
	record->type = type;
	record->kind = kind;
	record->value = value;
#ifdef RECORD_RING
	/* User space polls: waking it for each exit would cost more than the exit. */
	ringbuf_submit(record, RINGBUF_NO_WAKEUP);
#else
	if (perf_event_output(context, &records, CURRENT_CPU, record, sizeof(*record)) && type == RECORD_EXIT)
		count(LOST_RECORDS);
#endif
}

INLINE void close_exit(void *context, struct vcpu *vcpu, u64 now, u32 timed)
{
	u64 handling_ns = timed ? now - vcpu->exit_ns : UNKNOWN;
	give(context, vcpu, handling_ns, now, RECORD_EXIT, KIND_REASON, vcpu->reason);
}

INLINE void note_exit(struct vcpu *vcpu)
{
	vcpu->cpu = get_smp_processor_id();
}

INLINE void note_access(void *context, struct vcpu *vcpu, u32 kind, u32 sort, u64 value)
{
	u64 now = ktime_get_ns();
	u64 handling_ns = UNKNOWN;
	if (kind == KIND_MMIO_READ) {
		/* It is complete. Of two reads in one exit, only the first is timed. */
		if (vcpu->mmio_start_ns)
			handling_ns = now - vcpu->mmio_start_ns;
		vcpu->mmio_start_ns = 0;
	}
	u64 since_ns = sort >= SORT_WHOLE ? vcpu->exit_ns : now;
	give(context, vcpu, handling_ns, since_ns, RECORD_ACCESS, kind, value);
}

INLINE void note_early(void *context, struct vcpu *vcpu, u32 sort, u32 follows)
{
	struct pending *pending = &vcpu->pending[sort];
	if (follows)
		give(context, vcpu, UNKNOWN, vcpu->exit_ns, RECORD_ACCESS, pending->kind, pending->value);
}
