/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The observed device. A test program is linked to librpma.so.0 and defines the
 * ibv_* and rdma_* functions that librpma calls, so the dynamic linker binds the
 * library to the definitions in this directory. Each of them
 *   - appends one line to the call log, with every relevant argument;
 *   - fails if the test has requested it (mock_fail);
 *   - returns objects with short names ("pd0", "cq1") for the log, and records misuse: destroyed or unknown
 *     handles, wrong destruction order, events acknowledged twice or never, objects destroyed twice or never.
 * A line is `function(arguments)`, then ` = object` if it created one, then ` ! ERRNO` if it failed on
 * request.
 */
#ifndef MOCK_H
#define MOCK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <librpma.h>

/* ---- test fixtures (use with cmocka_unit_test_setup_teardown) ---- */

int mock_setup(void **state);
int mock_teardown(void **state);

#define MOCK_TEST(f) cmocka_unit_test_setup_teardown(f, mock_setup, mock_teardown)

/*
 * True if the library under test is the original 1.2.0 (RPMA_TEST_ORIGINAL is set), against which the tests
 * are developed. A comment at each use explains the difference.
 */
bool original(void);

/* ---- the device that is handed to rpma_peer_new ---- */

extern struct ibv_context *const CTX;

void mock_transport(enum ibv_transport_type type);
void mock_odp(uint64_t general_caps, uint32_t rc_caps);

/* device_cap_flags_ex: the native operations of the device. */
#define MOCK_DEVICE_FLUSH_GLOBAL ((uint64_t)1 << 38)
#define MOCK_DEVICE_ALL_NATIVE ((uint64_t)7 << 38)
void mock_device_caps(uint64_t caps);
/* Queue pairs that were created for native operations lack them. */
void mock_native_missing(void);

/* From now on, binding and resolving an address select no device. */
void mock_no_device(void);

/* ---- failures ---- */

/*
 * The nth call (from now, 1 is the next) of fn fails with err. For rdma_getaddrinfo a negative err is
 * returned as it is (EAI_*). A requested failure that never happened makes the test fail in mock_teardown.
 */
void mock_fail(const char *fn, int nth, int err);
void mock_fail_always(const char *fn, int err);
void mock_fail_reset(void);

/* ---- what the device reports ---- */

/* Queues a CM event. For a CONNECT_REQUEST `id` is the listening one, and a new one is created. */
struct rdma_cm_event *mock_cm_event(enum rdma_cm_event_type type, struct rdma_cm_id *id,
		const void *pdata, uint8_t pdata_len);
/* The completion channel will report this CQ once. */
void mock_cq_event(struct ibv_cq *cq);
/* poll_cq will report these entries. */
void mock_wc(const struct ibv_wc *wc, int n);
/* poll_cq will return exactly this number, regardless of its entries. */
void mock_poll_returns(int n);

/* ---- the call log ---- */

/* The whole log since the last check equals these lines; then it is empty. */
void expect_calls_at(const char *const *lines, const char *file, int line);
#define CALLS(...) \
	expect_calls_at((const char *const[]){__VA_ARGS__, NULL}, __FILE__, __LINE__)
#define NO_CALLS() expect_calls_at((const char *const[]){NULL}, __FILE__, __LINE__)
void mock_forget_calls(void);
/* Line i since the last check, NULL after the last one. */
const char *mock_call_line(int i);
/* The misuse recorded so far; empty if there is none. */
const char *mock_misuse_text(void);

/*
 * A sequence of calls that a function makes, with the calls that undo each of them, separated by newlines.
 * `retry` is a second attempt that ours makes and the original does not: a queue pair without inline data,
 * where the device refuses one with it.
 */
struct step {
	const char *call;   /* "ibv_create_cq(...)"; NULL: made before the sequence, only undone in it */
	const char *result; /* "cq0" or NULL */
	const char *undo;   /* "ibv_destroy_cq(cq0)" or NULL */
	const char *retry;
};

/* Lets step `failing` fail with err, at the right occurrence of its function. */
void fail_step(const struct step *s, int failing, int err);
/* Steps up to the failing one were made, then undone in reverse order. */
void expect_unwound_at(const struct step *s, int failing, int err, const char *file, int line);
#define UNWOUND(s, failing, err) expect_unwound_at(s, failing, err, __FILE__, __LINE__)

/* ---- the library's own log ---- */

/*
 * Since the last check the library logged exactly one line at WARNING or above: an ERROR with this text in
 * it. Lines below that level are ignored.
 */
void expect_error_at(const char *part, const char *file, int line);
#define ONE_ERROR(part) expect_error_at(part, __FILE__, __LINE__)
/* The library logged nothing since the last check. */
void expect_silence_at(const char *file, int line);
#define SILENT() expect_silence_at(__FILE__, __LINE__)
/* Number of lines at a level since the last check; then the log is empty. */
int mock_logged(enum rpma_log_level level);
void mock_forget_log(void);
/* The last line: level and formatted text. */
const char *mock_last_log(enum rpma_log_level *level);
void mock_log_function(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...);

/* ---- objects ---- */

/* Latest object of a kind: "pd", "mr", "chan", "cq", "srq", "evch", "id", "qp". */
void *mock_latest(const char *kind);
/* By name, "cq1". NULL when there is none. */
void *mock_named(const char *name);
/* The original leaks this object here, ours does not (see the caller's comment). */
void mock_original_leaks(const char *name);

/* ---- memory ---- */

/* The nth allocation (1 is the next) that the library makes returns NULL. */
void mock_fail_alloc(int nth);
/* Allocations made while paused are not counted. */
void mock_fail_alloc_pause(bool pause);
/* True when that allocation was reached. */
bool mock_alloc_failed(void);
/* This test does not count blocks: some memory is intentionally retained. */
void mock_ignore_memory(void);
/* Bracket allocations of the test itself that outlive it. Of the calling thread only. */
void mock_untracked_begin(void);
void mock_untracked_end(void);

/* unit/mt: calls are counted instead of logged (the log is finite); all else is as usual. */
void mock_quiet(void);
int mock_called(const char *fn);

#endif /* MOCK_H */
