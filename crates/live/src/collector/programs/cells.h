/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counting in the kernel. A cell holds one octave of handling times of one reason, or access, of one thread, in
 * buckets as the histogram of `exits::HandlingTime` has them. It is counted in epochs: user space raises the epoch,
 * waits until every program that may have seen the old one is done, and reads the cells of the old one at rest while
 * the next ones fill.
 */
#define BUCKETS_BITS 5
#define BUCKETS (1 << BUCKETS_BITS)
/* The octave of those without a handling time: only their count is kept. */
#define UNTIMED 255

struct cell_key {
	u64 value;
	u32 tid;
	u8 kind;
	u8 octave;
	/* Epochs take turns. */
	u8 turn;
	u8 unused;
};

struct cell {
	u64 epoch;
	u64 total_ns;
	/* The sum of squares, 128 bits. */
	u64 squares_low;
	u64 squares_high;
	u64 min_ns;
	u64 max_ns;
	u32 process;
	u32 vcpu;
	u32 buckets[BUCKETS];
};

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, struct cell_key);
	TYPE(value, struct cell);
} cells SEC(".maps");

/* For what the other has no room for: all threads together, so each processor has its own. */
struct {
	NUMBER(type, MAP_PERCPU_HASH);
	NUMBER(max_entries, 2048);
	TYPE(key, struct cell_key);
	TYPE(value, struct cell);
} other_cells SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} epoch SEC(".maps");

INLINE u32 logarithm(u64 value)
{
	u32 result = 0;
	if (value >> 32) { value >>= 32; result += 32; }
	if (value >> 16) { value >>= 16; result += 16; }
	if (value >> 8) { value >>= 8; result += 8; }
	if (value >> 4) { value >>= 4; result += 4; }
	if (value >> 2) { value >>= 2; result += 2; }
	return result + (value >> 1);
}

INLINE void add_square(struct cell *cell, u64 ns)
{
	u64 low = ns & 0xffffffff, high = ns >> 32;
	u64 square = low * low;
	cell->squares_low += square;
	cell->squares_high += cell->squares_low < square;
	if (UNLIKELY(high)) {
		/* (high * 2^32 + low)^2 without its last term. */
		u64 twice = high * low;
		u64 middle = twice << 33;
		cell->squares_low += middle;
		cell->squares_high += (cell->squares_low < middle) + (twice >> 31) + high * high;
	}
}

static __attribute__((noinline)) struct cell *new_cell(struct cell_key *key)
{
	struct cell empty = {};
	if (!map_update_elem(&cells, key, &empty, UPDATE_NOEXIST))
		return map_lookup_elem(&cells, key);
	count(CELLS_FULL);
	key->tid = 0;
	struct cell *cell = map_lookup_elem(&other_cells, key);
	if (cell)
		return cell;
	map_update_elem(&other_cells, key, &empty, UPDATE_NOEXIST);
	return map_lookup_elem(&other_cells, key);
}

struct sample {
	u64 value;
	u64 ns;
	u32 kind;
	u32 timed;
	u32 tid;
	u32 process;
	u32 vcpu;
	u32 unused;
};

static __attribute__((noinline)) int add(struct sample *sample)
{
	u32 zero = 0;
	u64 *now = map_lookup_elem(&epoch, &zero);
	if (!now)
		return 0;
	u64 ns = sample->ns;
	u32 octave = 0, bucket = ns;
	if (ns >= BUCKETS) {
		octave = logarithm(ns) - (BUCKETS_BITS - 1);
		bucket = ns >> (octave - 1);
	}
	struct cell_key key = {
		.value = sample->value,
		.tid = sample->tid,
		.kind = sample->kind,
		.octave = sample->timed ? octave : UNTIMED,
		.turn = *now & 1,
	};
	struct cell *cell = map_lookup_elem(&cells, &key);
	if (UNLIKELY(!cell)) {
		cell = new_cell(&key);
		if (!cell)
			return 0;
	}
	if (UNLIKELY(cell->epoch != *now)) {
		__builtin_memset(cell, 0, sizeof(*cell));
		cell->epoch = *now;
		cell->min_ns = ns;
		cell->process = sample->process;
		cell->vcpu = sample->vcpu;
	}
	cell->total_ns += ns;
	add_square(cell, ns);
	if (ns < cell->min_ns)
		cell->min_ns = ns;
	if (ns > cell->max_ns)
		cell->max_ns = ns;
	cell->buckets[bucket & (BUCKETS - 1)] += 1;
	return 0;
}

INLINE void add_access(struct thread *thread, u64 id, u32 sort, u64 now, u32 timed)
{
	struct pending *pending = &thread->pending[sort];
	struct sample sample = {
		.value = pending->value,
		.ns = timed ? now - pending->since_ns : 0,
		.kind = pending->kind,
		.timed = timed,
		.tid = id,
		.process = thread->process,
		.vcpu = thread->vcpu,
	};
	add(&sample);
}

static __attribute__((noinline)) int end_waiting(struct thread *thread, u64 id, u64 now, u32 timed)
{
	u32 waiting = thread->waiting;
	thread->waiting = 0;
#pragma unroll
	for (u32 sort = 0; sort < SORTS; sort++)
		if (waiting & (1 << sort))
			add_access(thread, id, sort, now, timed);
	return 0;
}

INLINE void close_exit(void *context, struct thread *thread, u64 id, u64 now, u32 timed)
{
	struct sample sample = {
		.value = thread->reason,
		.ns = timed ? now - thread->exit_ns : 0,
		.kind = KIND_REASON,
		.timed = timed,
		.tid = id,
		.process = thread->process,
		.vcpu = thread->vcpu,
	};
	add(&sample);
	if (thread->waiting)
		end_waiting(thread, id, now, timed);
}

INLINE void note_access(struct thread *thread, u64 id, u32 kind, u32 sort, u64 value)
{
	struct pending *pending = &thread->pending[sort];
	u64 now = ktime_get_ns();
	/* Of two of a sort the first is counted and only the second is timed. */
	if (thread->waiting & (1 << sort))
		add_access(thread, id, sort, now, 0);
	pending->value = value;
	pending->kind = kind;
	pending->since_ns = now;
	if (kind == KIND_MMIO_READ) {
		u64 start = thread->mmio_start_ns;
		thread->mmio_start_ns = 0;
		pending->since_ns = start;
		add_access(thread, id, sort, now, start != 0);
		thread->waiting &= ~(1 << sort);
		return;
	}
	/* AVIC's events say why there was an exit, so the whole exit is theirs. */
	if (sort == SORT_AVIC)
		pending->since_ns = thread->exit_ns;
	thread->waiting |= 1 << sort;
}
