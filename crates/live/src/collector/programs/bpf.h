/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The parts of the kernel's eBPF interface that the programs use: numbers of include/uapi/linux/bpf.h, which never
 * change. Written out here so that compiling needs only clang, and no distribution's headers.
 */
#ifndef EXITLESS_BPF_H
#define EXITLESS_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Maps are described to the loader by types: a number is the length of an array. */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name

enum map_type {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERF_EVENT_ARRAY = 4,
	MAP_PERCPU_ARRAY = 6,
	MAP_RINGBUF = 27,
};

enum {
	UPDATE_ANY = 0,
	UPDATE_NOEXIST = 1,
	RINGBUF_NO_WAKEUP = 1,
	USER_STACK = 1 << 8,
};

#define CURRENT_CPU 0xffffffffULL

/*
 * The error of an update for which a preallocated hash map has no room. Compare the lower half: before Linux 6.4 the
 * upper half of an error of these helpers may be anything.
 */
#define E2BIG 7
#define HAS_NO_ROOM(error) ((s32)(error) == -E2BIG)

static void *(*const map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
/*
 * Deprecated since Linux 5.5, because user and kernel addresses may overlap; on x86 they do not, and all kernels
 * still have it.
 */
static long (*const probe_read)(void *to, u32 size, const void *from) = (void *)4;
static u64 (*const ktime_get_ns)(void) = (void *)5;
static u32 (*const get_smp_processor_id)(void) = (void *)8;
static u64 (*const get_current_pid_tgid)(void) = (void *)14;
static long (*const perf_event_output)(void *context, void *map, u64 flags, void *data, u64 size) = (void *)25;
static long (*const get_stack)(void *context, void *to, u32 size, u64 flags) = (void *)67;
static void *(*const ringbuf_reserve)(void *map, u64 size, u64 flags) = (void *)131;
static void (*const ringbuf_submit)(void *data, u64 flags) = (void *)132;

#endif
