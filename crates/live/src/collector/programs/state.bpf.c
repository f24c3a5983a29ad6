/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads KVM's state of vCPUs, whether they run or not: iterates over the open files of all processes (Linux 5.8), and
 * follows paths of pointers from the wanted vCPUs. User space selects the vCPUs and the paths.
 */
#include "bpf.h"

/* Offsets in struct task_struct of the process ID, and in struct file of the pointer to the vCPU. */
volatile const u32 task_process_at;
volatile const u32 file_private_at;

#define PATHS 20
#define STEPS 4

/*
 * A path from a vCPU to a value: each step adds an offset, and all but the last follow a pointer. Without steps there
 * is no such value.
 */
struct path {
	u32 steps;
	u32 size;
	u32 at[STEPS];
};

struct place {
	u32 process;
	u32 descriptor;
};

struct values {
	u64 object;
	/* A bit for each value that was read. */
	u64 read;
	u64 value[PATHS];
};

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, PATHS);
	TYPE(key, u32);
	TYPE(value, struct path);
} paths SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, struct place);
	TYPE(value, struct values);
} vcpus SEC(".maps");

/* struct bpf_iter__task_file, unchanged since Linux 5.8. */
struct context {
	u64 meta;
	u64 task;
	u32 descriptor;
	u32 unused;
	u64 file;
};

INLINE int read_number(u64 *to, u32 size, u64 from)
{
	const void *address = (const void *)from;
	*to = 0;
	if (size == 1)
		return probe_read(to, 1, address) == 0;
	if (size == 4)
		return probe_read(to, 4, address) == 0;
	return probe_read(to, 8, address) == 0;
}

static __attribute__((noinline)) int follow(u64 object, u32 which, u64 *value)
{
	struct path *path = map_lookup_elem(&paths, &which);
	if (!path || !value)
		return 0;
	u64 at = object;
	for (u32 step = 0; step < STEPS; step++) {
		at += path->at[step];
		if (step + 1 >= path->steps)
			return path->steps && read_number(value, path->size, at);
		if (!read_number(&at, 8, at) || !at)
			return 0;
	}
	return 0;
}

SEC("iter/task_file") int state(void *arguments)
{
	struct context context = {};
	struct place place = {};
	u64 object = 0;
	/* Copied by the helper, so that the verifier sees plain numbers, to which offsets can be added. */
	probe_read(&context, sizeof(context), arguments);
	if (!context.task || !context.file)
		return 0;
	probe_read(&place.process, 4, (void *)context.task + task_process_at);
	place.descriptor = context.descriptor;
	struct values *values = map_lookup_elem(&vcpus, &place);
	if (!values)
		return 0;
	probe_read(&object, 8, (void *)context.file + file_private_at);
	u64 read = 0;
	for (u32 which = 0; which < PATHS; which++) {
		u64 value = 0;
		if (follow(object, which, &value))
			read |= 1ULL << which;
		values->value[which] = value;
	}
	values->object = object;
	values->read = read;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
