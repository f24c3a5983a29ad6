/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counting in the kernel. A cell has the handling times of one octave, of one thread and one reason or access, in the
 * buckets of the histogram of `exits::HandlingTime`. Cells are counted in epochs: user space increments the epoch,
 * waits until all programs that may have read the old one have ended, and reads the old cells, which no longer
 * change, while the new ones fill.
 */
#define BUCKETS_BITS 5
#define BUCKETS (1 << BUCKETS_BITS)
/* The octave of exits and accesses without a handling time: only their number is kept. */
#define UNTIMED 255

struct cell_key {
	u64 value;
	u32 thread;
	u8 kind;
	u8 octave;
	/* The lowest bit of the epoch. */
	u8 turn;
	u8 unused;
};

struct cell {
	struct cell_key key;
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

/* As with vCPUs, most are in an array, at an index that is calculated from the key. */
#define DIRECT_BITS 15

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1 << DIRECT_BITS);
	TYPE(key, u32);
	TYPE(value, struct cell);
} direct_cells SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 1 << DIRECT_BITS);
	TYPE(key, u32);
	TYPE(value, struct cell_key);
} direct_cells_taken SEC(".maps");

/* The loader sets the size. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, struct cell_key);
	TYPE(value, struct cell);
} cells SEC(".maps");

/*
 * The counts for which the maps above have no room. The key has the CPU instead of the thread, so each CPU has its
 * own elements. The loader sets the size. Not a per-CPU hash map: it would have to be preallocated, with a value of
 * each key for all possible CPUs, because tracepoint programs may not allocate one on demand before Linux 6.1.
 */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 2048);
	TYPE(key, struct cell_key);
	TYPE(value, struct cell);
} other_cells SEC(".maps");

/*
 * Cleared once a map is full: the kernel looks for a free element in the lists of all possible CPUs, so an update
 * that fails takes the longer the larger the host is. User space sets both with each reading, because it may have
 * freed cells. They are the only variables in `.data`.
 */
volatile u32 cells_have_room = 1, other_cells_have_room = 1;

/*
 * The limits of cells for accesses, of all vCPUs and of one vCPU. A guest chooses its ports, registers and addresses,
 * and must not take the room that other guests' exits need: the first limit is half of all cells. A vCPU whose
 * accesses have as many cells as 250 addresses in 8 octaves and two epochs need has further addresses counted by
 * page, because an emulated display can have a million addresses. Beyond the second limit, accesses are counted
 * together.
 */
volatile const u32 most_access_cells;
#define MOST_ADDRESS_CELLS_OF_VCPU 4096
#define MOST_ACCESS_CELLS_OF_VCPU 16384
#define PAGE_OF(address) ((address) & ~4095ULL)

/* The number of cells taken by accesses; user space updates it when it frees some. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} access_cells SEC(".maps");

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
		/* (high * 2^32 + low)^2 without the term low^2. */
		u64 twice = high * low;
		u64 middle = twice << 33;
		cell->squares_low += middle;
		cell->squares_high += (cell->squares_low < middle) + (twice >> 31) + high * high;
	}
}

INLINE u32 same_key(const struct cell_key *one, const struct cell_key *other)
{
	/* As two words, because this is on the path of every exit. */
	const u64 *a = (const u64 *)one, *b = (const u64 *)other;
	return a[0] == b[0] && a[1] == b[1];
}

INLINE u32 place_of(const struct cell_key *key)
{
	const u64 *words = (const u64 *)key;
	return spread(words[0] * 31 + words[1], DIRECT_BITS);
}

INLINE struct cell *direct_cell(const struct cell_key *key)
{
	u32 at = place_of(key);
	struct cell *cell = map_lookup_elem(&direct_cells, &at);
	if (cell && same_key(&cell->key, key))
		return cell;
	at ^= 1;
	cell = map_lookup_elem(&direct_cells, &at);
	return cell && same_key(&cell->key, key) ? cell : 0;
}

INLINE struct cell *known_cell(const struct cell_key *key)
{
	struct cell *cell = direct_cell(key);
	return cell ? cell : map_lookup_elem(&cells, key);
}

/* Turns the key into that of the vCPU's other accesses. Only their octaves differ, so there are few such cells. */
INLINE void make_other(struct cell_key *key)
{
	key->kind = KIND_OTHER_ACCESS;
	key->value = 0;
}

/* Takes one of the cells for accesses; 0 if the limit is reached. */
INLINE u32 take_access_cell(struct vcpu *vcpu)
{
	u32 zero = 0;
	u64 *taken = map_lookup_elem(&access_cells, &zero);
	if (!taken || *taken >= most_access_cells || vcpu->access_cells >= MOST_ACCESS_CELLS_OF_VCPU)
		return 0;
	/* Atomic, because all CPUs share it; it is rare. */
	__sync_fetch_and_add(taken, 1);
	vcpu->access_cells += 1;
	return 1;
}

static __attribute__((noinline)) struct cell *new_cell(struct vcpu *vcpu, struct cell_key *key)
{
	struct cell *cell = map_lookup_elem(&cells, key);
	if (cell)
		return cell;
	if ((key->kind == KIND_MMIO_READ || key->kind == KIND_MMIO_WRITE) &&
	    vcpu->access_cells >= MOST_ADDRESS_CELLS_OF_VCPU) {
		key->value = PAGE_OF(key->value);
		cell = known_cell(key);
		if (cell)
			return cell;
	}
	u32 has_room = cells_have_room;
	if (key->kind != KIND_REASON && (!has_room || !take_access_cell(vcpu))) {
		make_other(key);
		cell = known_cell(key);
		if (cell)
			return cell;
	}
	struct cell empty = {};
	if (has_room) {
		u32 at = place_of(key);
#pragma unroll
		for (int neighbour = 0; neighbour < 2; neighbour++, at ^= 1) {
			if (!map_update_elem(&direct_cells_taken, &at, key, UPDATE_NOEXIST)) {
				cell = map_lookup_elem(&direct_cells, &at);
				if (cell) {
					cell->epoch = 0;
					cell->key = *key;
				}
				return cell;
			}
		}
		empty.key = *key;
		long error = map_update_elem(&cells, key, &empty, UPDATE_NOEXIST);
		if (!error)
			return map_lookup_elem(&cells, key);
		if (HAS_NO_ROOM(error))
			cells_have_room = 0;
	}
	/* The room that is left is for exits by reason. */
	if (key->kind != KIND_REASON)
		make_other(key);
	key->thread = get_smp_processor_id();
	empty.key = *key;
	cell = map_lookup_elem(&other_cells, key);
	if (cell || !other_cells_have_room)
		return cell;
	if (HAS_NO_ROOM(map_update_elem(&other_cells, key, &empty, UPDATE_NOEXIST)))
		other_cells_have_room = 0;
	return map_lookup_elem(&other_cells, key);
}

INLINE struct cell *find_cell(struct vcpu *vcpu, struct cell_key *key)
{
	struct cell *cell = direct_cell(key);
	return cell ? cell : new_cell(vcpu, key);
}

struct sample {
	u64 value;
	u64 ns;
	u32 kind;
	u32 timed;
};

INLINE void add(struct vcpu *vcpu, const struct sample *sample)
{
	u32 zero = 0;
	volatile u64 *raised = map_lookup_elem(&epoch, &zero);
	if (!raised)
		return;
	/* Read only once: if user space increments the epoch now, the cell of the other epoch must not be changed. */
	u64 now = *raised;
	u64 ns = sample->ns;
	u32 octave = 0, bucket = ns;
	if (ns >= BUCKETS) {
		octave = logarithm(ns) - (BUCKETS_BITS - 1);
		bucket = ns >> (octave - 1);
	}
	struct cell_key key = {
		.value = sample->value,
		.thread = vcpu->id,
		.kind = sample->kind,
		.octave = sample->timed ? octave : UNTIMED,
		.turn = now & 1,
	};
	struct cell *cell = find_cell(vcpu, &key);
	if (!cell) {
		if (sample->kind == KIND_REASON)
			count(EXITS_WITHOUT_ROOM);
		return;
	}
	if (UNLIKELY(cell->epoch != now)) {
		struct cell_key kept = cell->key;
		__builtin_memset(cell, 0, sizeof(*cell));
		cell->key = kept;
		cell->epoch = now;
		cell->min_ns = ns;
		cell->process = vcpu->id >> 32;
		cell->vcpu = vcpu->number;
	}
	cell->total_ns += ns;
	add_square(cell, ns);
	if (ns < cell->min_ns)
		cell->min_ns = ns;
	if (ns > cell->max_ns)
		cell->max_ns = ns;
	cell->buckets[bucket & (BUCKETS - 1)] += 1;
}

static __attribute__((noinline)) int add_pending(struct vcpu *vcpu, u32 sort, u64 now, u32 timed)
{
	if (sort >= SORTS)
		return 0;
	struct pending *pending = &vcpu->pending[sort];
	struct sample sample = {
		.value = pending->value,
		.ns = timed ? now - pending->since_ns : 0,
		.kind = pending->kind,
		.timed = timed,
	};
	add(vcpu, &sample);
	return 0;
}

/*
 * Global functions, which the verifier (since Linux 5.6) checks once instead of for each call on each path: 12,000
 * instructions for kvm_entry instead of 43,000. One with the time and one without, because a constant leaves less to
 * check.
 */
__attribute__((noinline)) int add_timed_access(u64 key, u32 sort, u64 now)
{
	struct vcpu *vcpu = find_vcpu(key);
	return vcpu ? add_pending(vcpu, sort, now, 1) : 0;
}

__attribute__((noinline)) int add_untimed_access(u64 key, u32 sort)
{
	struct vcpu *vcpu = find_vcpu(key);
	return vcpu ? add_pending(vcpu, sort, 0, 0) : 0;
}

INLINE void add_access(struct vcpu *vcpu, u32 sort, u64 now, u32 timed)
{
	if (timed)
		add_timed_access(vcpu->key, sort, now);
	else
		add_untimed_access(vcpu->key, sort);
}

INLINE void close_exit(void *context, struct vcpu *vcpu, u64 now, u32 timed)
{
	struct sample sample = {
		.value = vcpu->reason,
		.ns = timed ? now - vcpu->exit_ns : 0,
		.kind = KIND_REASON,
		.timed = timed,
	};
	add(vcpu, &sample);
	u32 waiting = vcpu->waiting;
	if (!waiting)
		return;
	vcpu->waiting = 0;
#pragma unroll
	for (u32 sort = 0; sort < SORTS; sort++)
		if (waiting & (1 << sort))
			add_access(vcpu, sort, now, timed);
}

INLINE void note_exit(struct vcpu *vcpu)
{
}

INLINE void note_access(void *context, struct vcpu *vcpu, u32 kind, u32 sort, u64 value)
{
	struct pending *pending = &vcpu->pending[sort];
	u64 now = ktime_get_ns();
	/* Of two accesses of one class, the first is counted and only the second is timed. */
	if (vcpu->waiting & (1 << sort))
		add_access(vcpu, sort, now, 0);
	pending->value = value;
	pending->kind = kind;
	pending->since_ns = now;
	if (kind == KIND_MMIO_READ) {
		u64 start = vcpu->mmio_start_ns;
		vcpu->mmio_start_ns = 0;
		pending->since_ns = start;
		add_access(vcpu, sort, now, start != 0);
		vcpu->waiting &= ~(1 << sort);
		return;
	}
	if (sort >= SORT_WHOLE)
		pending->since_ns = vcpu->exit_ns;
	vcpu->waiting |= 1 << sort;
}

/* If the exit that belongs to it follows, it is timed from there on; otherwise it is only counted. */
INLINE void note_early(void *context, struct vcpu *vcpu, u32 sort, u32 follows)
{
	if (follows) {
		vcpu->pending[sort].since_ns = vcpu->exit_ns;
		vcpu->waiting |= 1 << sort;
	} else {
		add_access(vcpu, sort, 0, 0);
	}
}
