/* SPDX-License-Identifier: BSD-3-Clause */

/* Internal declarations of the mock layer. Tests include mock.h only. */
#ifndef MOCK_IMPL_H
#define MOCK_IMPL_H

#include "mock.h"

struct obj {
	char name[16];
	const char *kind;
	void *ptr;
	size_t size;
	int refs;       /* objects that need this one */
	int destroyed;  /* attempts to destroy it */
	int pending;    /* events fetched and not acknowledged */
	bool original_leaks;
	bool static_storage;
};

/*
 * Begins a mock function: takes the lock (before the arguments are formatted), logs, and returns the
 * programmed error or -1.
 */
#define mock_call(...) (mock_lock(), mock_call_locked(__VA_ARGS__))
void mock_lock(void);
void mock_unlock(void);
int mock_call_locked(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Records the object that the current call creates. */
void mock_made(const struct obj *o);
void mock_made_text(const char *text);
/* Ends it; errno becomes err unless err is negative. */
void mock_done(int err);

struct obj *obj_new(const char *kind, size_t size);
struct obj *obj_adopt(const char *kind, void *ptr, size_t size);
struct obj *obj_find(const void *ptr);
/* The live object of a handle that the library passed; NULL is recorded as misuse. */
struct obj *obj_use(const void *ptr, const char *kind);
void obj_ref(const void *ptr);
void obj_unref(const void *ptr);
/* One attempt to destroy; poisons the memory when the attempt succeeds. */
void obj_destroy(const void *ptr, const char *kind, bool success);
const char *nm(const void *ptr);       /* object's name, "NULL", "ctx" or hex */
const char *quoted(const char *s);     /* "text" with quotes, or NULL */
const char *where(uint64_t addr);      /* address: name of a mapped page or hex */
int objects_check(void);               /* number of objects not destroyed once; forgets all */
void objects_forget(void);
void mock_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* mock_alloc.c */
void *real_calloc(size_t n, size_t size);
void real_free(void *p);
void mock_track_begin(void);
int mock_track_end(void); /* number of blocks still allocated */
void mock_enter(void);    /* nesting: allocations in mocks are not the library's */
void mock_leave(void);
void mock_fail_alloc_reset(void);

/* mock_verbs.c, mock_cm.c */
void mock_verbs_reset(void);
void mock_cm_reset(void);
struct rdma_cm_id *mock_new_id(struct rdma_event_channel *ch);

/* mock_native.c */
enum { MOCK_QP_FLUSH = 1 << 11, MOCK_QP_ATOMIC_WRITE = 1 << 12 }; /* send_ops_flags */
size_t mock_qp_size(void); /* room for the extended form */
void mock_native_qp(struct ibv_qp *qp, uint64_t ops);
void mock_native_reset(void);

#endif /* MOCK_IMPL_H */
