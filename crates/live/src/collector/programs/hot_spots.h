/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What CPUs do while exits are handled: at each sample of a perf event, the stacks of the running thread with the
 * exit that it handles; and where, and for how long, a thread was off the CPU while it handled an exit.
 *
 * A sample may be taken at any instruction, in an NMI, so its program only writes to the ring and changes no state of
 * the other programs.
 */

/*
 * Raw tracepoints: the offset in struct kvm_vcpu of the field that is set while KVM handles an interrupt that arrived
 * in the guest; 0 if the kernel does not have it.
 */
volatile const u32 from_guest_at;
/* Tracepoints of the scheduler: the offset of each field in the record. */
volatile const u32 switch_state_at, switch_next_at;
volatile const u32 wakeup_thread_at;
/* Reasons of exits in which the vCPU waits for the guest's next interrupt: their stacks are all the same. */
volatile const u32 halt_reason, idle_halt_reason;

#define KERNEL_FRAMES 64
#define USER_FRAMES 96

enum tick_type {
	TICK_IN_GUEST,
	TICK_IN_EXIT,
	TICK_IN_MONITOR,
	/* The thread went off the CPU in an exit; with its stacks there. */
	TICK_AWAY,
	/* The thread is on a CPU again. */
	TICK_BACK,
};

struct tick {
	u64 away_ns;
	/* The part of it in which the thread was runnable and waited for a CPU. */
	u64 waited_ns;
	u32 process;
	u32 thread;
	u32 reason;
	u16 type;
	u16 cpu;
};

struct stacks {
	struct tick tick;
	/* The size of each stack in bytes; negative is the error. */
	s32 kernel_bytes;
	s32 user_bytes;
	u64 kernel[KERNEL_FRAMES];
	u64 user[USER_FRAMES];
};

struct {
	NUMBER(type, MAP_RINGBUF);
	NUMBER(max_entries, 16 << 20);
} ticks SEC(".maps");

/* Kernel threads that work for a device model (vhost before Linux 6.4), with its process. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u32);
	TYPE(value, u32);
} workers SEC(".maps");

/* Threads that went off the CPU in an exit. */
struct away {
	u64 since_ns;
	u64 woken_ns;
	u32 process;
	u32 reason;
	u32 runnable;
	u32 told;
};

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct away);
} away SEC(".maps");

/* The total time off the CPU. */
struct absence_key {
	u32 process;
	u32 thread;
	u32 reason;
	u32 runnable;
};

struct absence {
	u64 times;
	u64 away_ns;
	u64 waited_ns;
};

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, struct absence_key);
	TYPE(value, struct absence);
} absences SEC(".maps");

INLINE void fill_tick(struct tick *tick, u32 type, u64 id, u32 reason)
{
	tick->away_ns = 0;
	tick->waited_ns = 0;
	tick->process = id >> 32;
	tick->thread = id;
	tick->reason = reason;
	tick->type = type;
	tick->cpu = get_smp_processor_id();
}

/* A record without stacks. */
INLINE void give_tick(u32 type, u64 id, u32 reason)
{
	struct tick *tick = ringbuf_reserve(&ticks, sizeof(*tick), 0);
	if (!tick) {
		count(LOST_RECORDS);
		return;
	}
	fill_tick(tick, type, id, reason);
	ringbuf_submit(tick, RINGBUF_NO_WAKEUP);
}

INLINE int give_stacks(void *context, u32 type, u64 id, u32 reason)
{
	struct stacks *stacks = ringbuf_reserve(&ticks, sizeof(*stacks), 0);
	if (!stacks) {
		count(LOST_RECORDS);
		return 0;
	}
	fill_tick(&stacks->tick, type, id, reason);
	stacks->kernel_bytes = get_stack(context, stacks->kernel, sizeof(stacks->kernel), 0);
	stacks->user_bytes = get_stack(context, stacks->user, sizeof(stacks->user), USER_STACK);
	ringbuf_submit(stacks, RINGBUF_NO_WAKEUP);
	return 1;
}

/*
 * KVM handles an interrupt or NMI that caused the exit after kvm_exit. If a sample is taken in that, it is a sample
 * of the guest.
 */
INLINE u32 met_guest(struct vcpu *vcpu)
{
	u8 from_guest = 0;
	if (!vcpu->exit_ns)
		return 1;
	if (from_guest_at)
		probe_read(&from_guest, 1, (void *)vcpu->key + from_guest_at);
	return from_guest;
}

SEC("perf_event") int tick(void *context)
{
	u64 id = get_current_pid_tgid();
	u32 thread = id, process = id >> 32;
	if (!running)
		return 0;
	count(TICKS);
	if (!thread)
		return 0;
	u64 *key = map_lookup_elem(&keys, &thread);
	struct vcpu *vcpu = key ? find_vcpu(*key) : 0;
	if (vcpu && vcpu->id == id) {
		if (vcpu->ignored)
			return 0;
		if (met_guest(vcpu))
			give_tick(TICK_IN_GUEST, id, 0);
		else
			give_stacks(context, TICK_IN_EXIT, id, vcpu->reason);
		return 0;
	}
	u32 *owner = map_lookup_elem(&workers, &thread);
	if (owner)
		id = (u64)*owner << 32 | thread;
	else if (!map_lookup_elem(&monitors, &process))
		return 0;
	give_stacks(context, TICK_IN_MONITOR, id, 0);
	return 0;
}

INLINE void went_away(void *record, struct vcpu *vcpu, u32 thread)
{
	/* TASK_RUNNING, or preempted: the lowest bits are zero (TASK_REPORT_MAX is above them). */
	u32 runnable = !(field(record, switch_state_at, 8) & 0xff);
	u32 reason = vcpu->reason;
	u32 told = 0;
	if (reason != halt_reason && reason != idle_halt_reason)
		told = give_stacks(record, TICK_AWAY, vcpu->id, reason);
	struct away gone = {
		.since_ns = ktime_get_ns(),
		.process = vcpu->id >> 32,
		.reason = reason,
		.runnable = runnable,
		.told = told,
	};
	map_update_elem(&away, &thread, &gone, UPDATE_ANY);
}

INLINE void came_back(struct away *gone, u32 thread)
{
	u64 now = ktime_get_ns();
	u64 away_ns = now - gone->since_ns;
	u64 waited_ns = gone->runnable ? away_ns : gone->woken_ns ? now - gone->woken_ns : 0;
	gone->since_ns = 0;
	struct absence_key key = {
		.process = gone->process,
		.thread = thread,
		.reason = gone->reason,
		.runnable = gone->runnable,
	};
	struct absence *absence = map_lookup_elem(&absences, &key);
	if (!absence) {
		struct absence none = {};
		map_update_elem(&absences, &key, &none, UPDATE_NOEXIST);
		absence = map_lookup_elem(&absences, &key);
	}
	if (absence) {
		absence->times += 1;
		absence->away_ns += away_ns;
		absence->waited_ns += waited_ns;
	} else {
		count(LOST_RECORDS);
	}
	if (!gone->told)
		return;
	struct tick *tick = ringbuf_reserve(&ticks, sizeof(*tick), 0);
	if (!tick) {
		count(LOST_RECORDS);
		return;
	}
	fill_tick(tick, TICK_BACK, (u64)gone->process << 32 | thread, gone->reason);
	tick->away_ns = away_ns;
	tick->waited_ns = waited_ns;
	ringbuf_submit(tick, RINGBUF_NO_WAKEUP);
}

SEC("tracepoint/sched/sched_switch") int switched(void *record)
{
	if (!running)
		return KEEP;
	u64 id = get_current_pid_tgid();
	u32 thread = id;
	u32 next = field(record, switch_next_at, 4);
	u64 *key = thread ? map_lookup_elem(&keys, &thread) : 0;
	struct vcpu *vcpu = key ? find_vcpu(*key) : 0;
	if (vcpu && vcpu->id == id && vcpu->exit_ns && !vcpu->ignored)
		went_away(record, vcpu, thread);
	struct away *gone = next ? map_lookup_elem(&away, &next) : 0;
	if (gone && gone->since_ns)
		came_back(gone, next);
	return KEEP;
}

SEC("tracepoint/sched/sched_wakeup") int woken(void *record)
{
	if (!running)
		return KEEP;
	u32 thread = field(record, wakeup_thread_at, 4);
	struct away *gone = map_lookup_elem(&away, &thread);
	if (gone && gone->since_ns && !gone->woken_ns)
		gone->woken_ns = ktime_get_ns();
	return KEEP;
}
