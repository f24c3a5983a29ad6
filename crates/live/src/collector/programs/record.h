/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Passes exits to user space: each, or only long ones. */

/*
 * The least time of exits to record; 0 records all. With such a bound, accesses wait in the vCPU until the time is
 * known, so only the last one of a class is recorded.
 */
volatile const u64 longer_than_ns;
/* 1: of the long exits, not those in which the guest sleeps. */
volatile const u32 without_sleep;
/* The reasons of these exits. */
volatile const u32 halt_reason, idle_halt_reason;
/* A short exit of a vCPU is recorded at this interval, so that user space knows the vCPUs. */
#define TELL_NS (1ULL << 30)

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

/* Keeps an access until its exit ends. */
INLINE void keep(struct vcpu *vcpu, u32 kind, u32 sort, u64 value, u64 since_ns)
{
	struct pending *pending = &vcpu->pending[sort];
	pending->value = value;
	pending->kind = kind;
	pending->since_ns = since_ns;
	vcpu->waiting |= 1 << sort;
}

static __attribute__((noinline)) int give_pending(void *context, struct vcpu *vcpu, u32 sort)
{
	if (sort >= SORTS)
		return 0;
	struct pending *pending = &vcpu->pending[sort];
	give(context, vcpu, UNKNOWN, pending->since_ns, RECORD_ACCESS, pending->kind, pending->value);
	return 0;
}

/* Tests whether an exit with this time is not to be recorded. */
INLINE u32 is_passed_over(struct vcpu *vcpu, u64 handling_ns, u64 now)
{
	u32 reason = vcpu->reason;
	u32 is_long = handling_ns >= longer_than_ns;
	u32 sleeps = without_sleep && (reason == halt_reason || reason == idle_halt_reason);
	if (is_long && !sleeps)
		return 0;
	if (now - vcpu->told_ns >= TELL_NS) {
		vcpu->told_ns = now;
		return 0;
	}
	if (is_long)
		count(SLEPT);
	return 1;
}

INLINE void close_exit(void *context, struct vcpu *vcpu, u64 now, u32 timed)
{
	u64 handling_ns = timed ? now - vcpu->exit_ns : UNKNOWN;
	if (longer_than_ns) {
		u32 waiting = vcpu->waiting;
		vcpu->waiting = 0;
		count(EXITS);
		if (timed && is_passed_over(vcpu, handling_ns, now))
			return;
		/* Downwards: of two that begin with their exit, KVM traces the APIC's before the MSR's (`take_early`). */
#pragma unroll
		for (int sort = SORTS - 1; sort >= 0; sort--)
			if (waiting & (1 << sort))
				give_pending(context, vcpu, sort);
	}
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
	if (longer_than_ns)
		keep(vcpu, kind, sort, value, since_ns);
	else
		give(context, vcpu, handling_ns, since_ns, RECORD_ACCESS, kind, value);
}

INLINE void note_early(void *context, struct vcpu *vcpu, u32 sort, u32 follows)
{
	struct pending *pending = &vcpu->pending[sort];
	if (!follows)
		return;
	if (longer_than_ns)
		keep(vcpu, pending->kind, sort, pending->value, vcpu->exit_ns);
	else
		give(context, vcpu, UNKNOWN, vcpu->exit_ns, RECORD_ACCESS, pending->kind, pending->value);
}
