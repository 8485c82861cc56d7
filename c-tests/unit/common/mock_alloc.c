/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Memory of the library under test: counts the blocks that it allocates between mock_setup and mock_teardown,
 * and can make one allocation fail. These definitions call the C library's allocator by its internal names.
 */

#include <malloc.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mock_impl.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);
void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off_t offset);

enum { PAGE = 4096, SLOTS = 1 << 14 }; /* open addressing; tests hold a few hundred blocks */

static void *slots[SLOTS];
static char tombstone;
static int live;
static bool tracking;
static int fail_in; /* 0: none, 1: the next one */
static bool fail_hit;
static bool fail_paused;
static _Thread_local int depth;
static atomic_flag spin = ATOMIC_FLAG_INIT;

static void acquire(void)
{
	while (atomic_flag_test_and_set_explicit(&spin, memory_order_acquire))
		;
}

static void release(void)
{
	atomic_flag_clear_explicit(&spin, memory_order_release);
}

static size_t slot_of(const void *p)
{
	return ((uintptr_t)p >> 4) * 2654435761u % SLOTS;
}

static bool library_calls(void)
{
	return tracking && depth == 0;
}

/* Counts an allocation of the library. True: it must fail. */
static bool must_fail(void)
{
	bool fail = false;

	if (!library_calls() || fail_paused)
		return false;
	acquire();
	if (fail_in > 0 && --fail_in == 0) {
		fail_hit = true;
		fail = true;
	}
	release();
	return fail;
}

static void *note(void *p)
{
	if (p == NULL || !library_calls())
		return p;
	acquire();
	for (size_t i = slot_of(p), n = 0; n < SLOTS; i = (i + 1) % SLOTS, n++) {
		if (slots[i] == NULL || slots[i] == &tombstone) {
			slots[i] = p;
			live++;
			break;
		}
	}
	release();
	return p;
}

static void forget(const void *p)
{
	if (!tracking || p == NULL)
		return;
	acquire();
	for (size_t i = slot_of(p), n = 0; n < SLOTS && slots[i]; i = (i + 1) % SLOTS, n++) {
		if (slots[i] == p) {
			slots[i] = &tombstone;
			live--;
			break;
		}
	}
	release();
}

void *malloc(size_t size)
{
	if (must_fail()) {
		errno = ENOMEM;
		return NULL;
	}
	return note(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	if (must_fail()) {
		errno = ENOMEM;
		return NULL;
	}
	return note(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
	if (must_fail()) {
		errno = ENOMEM;
		return NULL;
	}
	forget(p);
	return note(__libc_realloc(p, size));
}

void *memalign(size_t align, size_t size)
{
	if (must_fail()) {
		errno = ENOMEM;
		return NULL;
	}
	return note(__libc_memalign(align, size));
}

void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
	void *p = memalign(align, size);

	if (p == NULL)
		return ENOMEM;
	*out = p;
	return 0;
}

void free(void *p)
{
	forget(p);
	__libc_free(p);
}

void *real_calloc(size_t n, size_t size)
{
	return __libc_calloc(n, size);
}

void real_free(void *p)
{
	__libc_free(p);
}

void mock_enter(void)
{
	depth++;
}

void mock_leave(void)
{
	depth--;
}

void mock_untracked_begin(void)
{
	depth++;
}

void mock_untracked_end(void)
{
	depth--;
}

void mock_track_begin(void)
{
	memset(slots, 0, sizeof(slots));
	live = 0;
	depth = 0;
	fail_in = 0;
	fail_paused = false;
	tracking = true;
}

int mock_track_end(void)
{
	int blocks = tracking ? live : 0;

	tracking = false;
	return blocks;
}

void mock_ignore_memory(void)
{
	tracking = false;
}

void mock_fail_alloc(int nth)
{
	fail_in = nth;
	fail_hit = false;
}

void mock_fail_alloc_pause(bool pause)
{
	fail_paused = pause;
}

bool mock_alloc_failed(void)
{
	return fail_hit;
}

void mock_fail_alloc_reset(void)
{
	fail_in = 0;
	fail_paused = false;
}

/* ---- pages: the buffer that a read-after-write flush reads into ---- */

static bool one_page(size_t length, int prot, int flags)
{
	return length == PAGE && prot == (PROT_READ | PROT_WRITE) &&
		(flags & MAP_ANONYMOUS);
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	bool ours = library_calls() && one_page(length, prot, flags);

	if (ours) {
		int err = mock_call("mmap(page, RW, %s)", flags & MAP_SHARED ? "shared" : "private");
		if (err >= 0) {
			mock_done(err);
			return MAP_FAILED;
		}
	}
	void *p = (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
	if (ours) {
		mock_made(obj_adopt("page", p, length));
		mock_done(-1);
	}
	return p;
}

void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	return mmap(addr, length, prot, flags, fd, offset);
}

int munmap(void *addr, size_t length)
{
	struct obj *o = NULL;

	if (tracking && depth == 0) {
		mock_lock();
		o = obj_find(addr);
		mock_unlock();
	}
	if (o != NULL && strcmp(o->kind, "page") == 0 && !o->destroyed) {
		int err = mock_call("munmap(%s)", o->name);
		if (length != o->size)
			mock_misuse("%s is unmapped with another length", o->name);
		obj_destroy(addr, "page", err < 0);
		mock_done(err);
		if (err >= 0)
			return -1;
	}
	return (int)syscall(SYS_munmap, addr, length);
}
