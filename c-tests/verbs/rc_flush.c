/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rc_flush.c -- atomic writes and flushes over RoCE, by the functions of extended queue pairs
 * (ibv_wr_post(3))
 */
#include "rc.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

/* Constants that rdma-core 44 lacks: IBV_DEVICE_FLUSH_GLOBAL and so on. */
#define DEVICE_FLUSH_GLOBAL ((uint64_t)1 << 38)
#define DEVICE_FLUSH_PERSISTENT ((uint64_t)1 << 39)
#define DEVICE_ATOMIC_WRITE ((uint64_t)1 << 40)
#define ACCESS_FLUSH_GLOBAL (1 << 8)
#define ACCESS_FLUSH_PERSISTENT (1 << 9)
#define QP_EX_WITH_FLUSH (1 << 11)
#define WC_FLUSH 8
enum { FLUSH_GLOBAL = 1, FLUSH_PERSISTENT = 2 };
enum { FLUSH_RANGE, FLUSH_MR };

#define OPERATIONS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE)
#define WITH_FLUSH (OPERATIONS | QP_EX_WITH_FLUSH)
#define GLOBAL (RC_FULL | ACCESS_FLUSH_GLOBAL)
#define PERSISTENT (GLOBAL | ACCESS_FLUSH_PERSISTENT)

#define ROUNDS 200
#define RECORD 64
#define RECORDS 4096 /* the offset of the records; the word is at the beginning of the memory */
#define LENGTH (RECORDS + (ROUNDS + 1) * RECORD)
#define REPEATED 0x0101010101010101ULL /* n times this is a word whose bytes are all n */

static uint64_t
capabilities(struct ibv_context *device)
{
	struct ibv_device_attr_ex attr;

	DONE(ibv_query_device_ex(device, NULL, &attr));
	return attr.device_cap_flags_ex;
}

/* Begins a request; the caller adds its operation and calls ibv_wr_complete(3). */
static struct ibv_qp_ex *
begin(struct rc *rc, uint64_t wr_id, unsigned flags)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(rc->qps[0]);

	MADE(qp);
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = flags;
	return qp;
}

/* ibv_wr_flush() of rdma-core 45: its function is the member of the queue pair after that of atomic write. */
static void
wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	void (*function)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);

	memcpy(&function, (char *)qp + offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void *), sizeof(function));
	MADE(function);
	function(qp, rkey, addr, length, type, level);
}

/*
 * Writes records, each followed by an atomic write of its number. A reader of the number sees all its bytes,
 * never a smaller number afterwards, and the record.
 */
static void
atomic_write_t(struct side *side)
{
	volatile uint64_t *word;
	uint64_t last = 0, seen = 0;
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.length = LENGTH, .operations = OPERATIONS});
	EXPECT((capabilities(rc.device) & DEVICE_ATOMIC_WRITE) != 0, "the device has no atomic write");
	word = (volatile uint64_t *)rc.memory;
	meet(&rc);
	while (last < ROUNDS) {
		uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		uint64_t number = value & 0xff;

		EXPECT(value == number * REPEATED, "a part of a word: %#llx", (unsigned long long)value);
		EXPECT(number >= last, "%llu after %llu", (unsigned long long)number, (unsigned long long)last);
		if (number != last) {
			check_pattern(rc.memory + RECORDS + number * RECORD, RECORD, (uint32_t)number, "the record");
			seen++;
		} else {
			sched_yield();
		}
		last = number;
	}
	EXPECT(seen > 0, "");
	check_bytes(rc.memory + 8, RECORDS - 8, 0, "the bytes after the word");
	meet(&rc);
	close_rc(&rc);
}

static void
atomic_write_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.length = LENGTH, .operations = OPERATIONS});
	for (uint32_t n = 1; n <= ROUNDS; n++)
		fill_pattern(rc.memory + RECORDS + n * RECORD, RECORD, n);
	meet(&rc);
	for (uint64_t n = 1; n <= ROUNDS; n++) {
		uint64_t word = n * REPEATED, at = RECORDS + n * RECORD;
		struct ibv_qp_ex *qp = begin(&rc, n, 0);
		struct ibv_wc wc;

		ibv_wr_rdma_write(qp, rc.peer.rkey, rc.peer.addr + at);
		ibv_wr_set_sge(qp, rc.mr->lkey, (uintptr_t)rc.memory + at, RECORD);
		qp->wr_id = 1000 + n;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_atomic_write(qp, rc.peer.rkey, rc.peer.addr, &word);
		DONE(ibv_wr_complete(qp));
		word = 0xee; /* the program may change the value again */
		wc = next_of(rc.send_cq);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1000 + n, "%s", ibv_wc_status_str(wc.status));
		EXPECT(wc.opcode == IBV_WC_ATOMIC_WRITE, "opcode %d", wc.opcode);
	}
	expect_nothing(rc.send_cq);
	meet(&rc);
	close_rc(&rc);
}

/* Many at once, more than may be outstanding: they are executed in order. */
static void
atomic_writes_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.operations = OPERATIONS});
	meet(&rc);
	EXPECT(*(uint64_t *)rc.memory == 99, "%llu", (unsigned long long)*(uint64_t *)rc.memory);
	for (uint64_t n = 0; n < 100; n++)
		EXPECT(((uint64_t *)rc.memory)[1 + n] == n, "word %llu", (unsigned long long)n);
	meet(&rc);
	close_rc(&rc);
}

static void
atomic_writes_i(struct side *side)
{
	struct ibv_qp_ex *qp;
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.operations = OPERATIONS});
	qp = begin(&rc, 0, IBV_SEND_SIGNALED);
	for (uint64_t n = 0; n < 100; n++) {
		qp->wr_id = n;
		qp->wr_flags = n == 99 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_atomic_write(qp, rc.peer.rkey, rc.peer.addr + 8 + 8 * n, &n);
		/* and all to one word */
		if (n < 50 || n == 99)
			ibv_wr_atomic_write(qp, rc.peer.rkey, rc.peer.addr, &n);
	}
	DONE(ibv_wr_complete(qp));
	expect_sent(&rc, 99, IBV_WC_SUCCESS);
	expect_sent(&rc, 99, IBV_WC_SUCCESS);
	meet(&rc);
	meet(&rc);
	close_rc(&rc);
}

/* An unaligned word, and a region without the right: the connection ends. */
static const struct {
	unsigned offset;
	int region;
	enum ibv_wc_status status;
} refused[] = {
	{4, RC_FULL, IBV_WC_REM_INV_REQ_ERR},
	{0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, IBV_WC_REM_ACCESS_ERR},
};

static void
refused_t(struct side *side)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.operations = OPERATIONS, .region = refused[i].region});
		meet(&rc);
		check_bytes(rc.memory, 4096, 0, "the memory");
		close_rc(&rc);
	}
}

static void
refused_i(struct side *side)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		uint64_t word = REPEATED;
		struct ibv_qp_ex *qp;
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.operations = OPERATIONS});
		qp = begin(&rc, 1, IBV_SEND_SIGNALED);
		ibv_wr_atomic_write(qp, rc.peer.rkey, rc.peer.addr + refused[i].offset, &word);
		DONE(ibv_wr_complete(qp));
		expect_sent(&rc, 1, refused[i].status);
		meet(&rc);
		close_rc(&rc);
	}
}

/*
 * A flush completes when the record before it is in the memory of the target, which then checks it. A range
 * and the whole region are flushed alternately.
 */
static void
flush_t(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.length = LENGTH, .operations = WITH_FLUSH, .access = GLOBAL, .region = GLOBAL});
	EXPECT((capabilities(rc.device) & DEVICE_FLUSH_GLOBAL) != 0, "the device has no flush");
	for (uint64_t n = 1; n <= ROUNDS; n++) {
		await(side, 'f');
		check_pattern(rc.memory + RECORDS + n * RECORD, RECORD, (uint32_t)n, "the record");
	}
	meet(&rc);
	close_rc(&rc);
}

static void
flush_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.length = LENGTH, .operations = WITH_FLUSH, .access = GLOBAL, .region = GLOBAL});
	for (uint64_t n = 1; n <= ROUNDS; n++) {
		uint64_t at = RECORDS + n * RECORD;
		struct ibv_qp_ex *qp = begin(&rc, n, 0);
		struct ibv_wc wc;

		fill_pattern(rc.memory + at, RECORD, (uint32_t)n);
		ibv_wr_rdma_write(qp, rc.peer.rkey, rc.peer.addr + at);
		ibv_wr_set_sge(qp, rc.mr->lkey, (uintptr_t)rc.memory + at, RECORD);
		qp->wr_id = 1000 + n;
		qp->wr_flags = IBV_SEND_SIGNALED;
		wr_flush(qp, rc.peer.rkey, rc.peer.addr + at, RECORD, FLUSH_GLOBAL, n % 2 == 0 ? FLUSH_RANGE : FLUSH_MR);
		DONE(ibv_wr_complete(qp));
		wc = next_of(rc.send_cq);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1000 + n, "%s", ibv_wc_status_str(wc.status));
		EXPECT((int)wc.opcode == WC_FLUSH, "opcode %d", wc.opcode);
		notify(side, 'f');
	}
	meet(&rc);
	close_rc(&rc);
}

/*
 * A flush to persistence, of a file, with a slow msync(2): the atomic write of the record's number, which was
 * posted with the flush, waits for it, as programs require that replace a number in persistent memory. The
 * time is measured from before the requests are posted: a target without a processor sees the record late.
 */
#define PERSISTENT_ROUNDS 5
#define MSYNC_MS 150

static void
persistent_t(struct side *side)
{
	volatile uint64_t *word;
	uint64_t last = 0;
	struct rc rc;

	setenv("SOFTVERBS_FAULTS", "msync:delay=150ms@p=1", 1);
	make_rc(&rc, side, (struct rc_terms){.length = LENGTH, .operations = WITH_FLUSH, .access = PERSISTENT, .region = PERSISTENT, .file = true});
	EXPECT((capabilities(rc.device) & DEVICE_FLUSH_PERSISTENT) != 0, "the device has no flush");
	word = (volatile uint64_t *)rc.memory;
	while (last < PERSISTENT_ROUNDS) {
		char *record = rc.memory + RECORDS + (last + 1) * RECORD;
		uint64_t began = now_ms(), until = began + 10000, took;

		meet(&rc);
		while (*(volatile char *)(record + RECORD - 1) == 0)
			EXPECT(now_ms() < until, "no record");
		while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == last)
			EXPECT(now_ms() < until, "no number");
		took = now_ms() - began;
		last++;
		EXPECT(*word == last && took >= MSYNC_MS - 1, "number %llu after %llu ms", (unsigned long long)*word, (unsigned long long)took);
	}
	meet(&rc);
	close_rc(&rc);
}

static void
persistent_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.length = LENGTH, .operations = WITH_FLUSH});
	for (uint64_t n = 1; n <= PERSISTENT_ROUNDS; n++) {
		uint64_t at = RECORDS + n * RECORD, began;
		struct ibv_qp_ex *qp;

		meet(&rc);
		began = now_ms();
		qp = begin(&rc, n, 0);
		memset(rc.memory + at, (int)n, RECORD);
		ibv_wr_rdma_write(qp, rc.peer.rkey, rc.peer.addr + at);
		ibv_wr_set_sge(qp, rc.mr->lkey, (uintptr_t)rc.memory + at, RECORD);
		qp->wr_id = 1000 + n;
		qp->wr_flags = IBV_SEND_SIGNALED;
		wr_flush(qp, rc.peer.rkey, rc.peer.addr + at, RECORD, FLUSH_PERSISTENT | FLUSH_GLOBAL, n % 2 == 0 ? FLUSH_RANGE : FLUSH_MR);
		qp->wr_id = 2000 + n;
		ibv_wr_atomic_write(qp, rc.peer.rkey, rc.peer.addr, &n);
		DONE(ibv_wr_complete(qp));
		expect_sent(&rc, 1000 + n, IBV_WC_SUCCESS);
		EXPECT(now_ms() - began >= MSYNC_MS - 1, "after %llu ms", (unsigned long long)(now_ms() - began));
		expect_sent(&rc, 2000 + n, IBV_WC_SUCCESS);
	}
	meet(&rc);
	close_rc(&rc);
}

/* A flush whose data cannot be made durable. */
static void
not_durable_t(struct side *side)
{
	struct rc rc;

	setenv("SOFTVERBS_FAULTS", "msync:EIO@n=2", 1);
	make_rc(&rc, side, (struct rc_terms){.operations = WITH_FLUSH, .access = PERSISTENT, .region = PERSISTENT, .file = true});
	meet(&rc);
	close_rc(&rc);
}

static void
not_durable_i(struct side *side)
{
	struct rc rc;

	make_rc(&rc, side, (struct rc_terms){.operations = WITH_FLUSH});
	for (uint64_t n = 1; n <= 2; n++) {
		struct ibv_qp_ex *qp = begin(&rc, n, IBV_SEND_SIGNALED);

		wr_flush(qp, rc.peer.rkey, rc.peer.addr, 4096, FLUSH_PERSISTENT, FLUSH_RANGE);
		DONE(ibv_wr_complete(qp));
		expect_sent(&rc, n, n == 1 ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
	}
	meet(&rc);
	close_rc(&rc);
}

/*
 * Flushes without the right of the queue pair or of the region, past the region, and of an invalid type. The
 * regions are not for persistence, which rxe permits in persistent memory only.
 */
static const struct {
	int access;
	int region;
	uint64_t offset;
	uint8_t type;
	uint8_t level;
	enum ibv_wc_status status;
} flushes[] = {
	{RC_FULL, GLOBAL, 0, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR},
	{GLOBAL, GLOBAL, 0, FLUSH_GLOBAL | FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR},
	{PERSISTENT, GLOBAL, 0, FLUSH_PERSISTENT, FLUSH_MR, IBV_WC_REM_ACCESS_ERR},
	{PERSISTENT, RC_FULL, 0, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR},
	{PERSISTENT, GLOBAL, 4089, FLUSH_GLOBAL, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR},
	{PERSISTENT, GLOBAL, 4089, FLUSH_GLOBAL, FLUSH_MR, IBV_WC_SUCCESS},
};
#define FLUSHES (sizeof(flushes) / sizeof(flushes[0]))

static void
flush_refused_t(struct side *side)
{
	for (size_t i = 0; i < FLUSHES; i++) {
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.operations = WITH_FLUSH, .access = flushes[i].access, .region = flushes[i].region});
		meet(&rc);
		close_rc(&rc);
	}
}

static void
flush_refused_i(struct side *side)
{
	for (size_t i = 0; i < FLUSHES; i++) {
		struct ibv_qp_ex *qp;
		struct rc rc;

		make_rc(&rc, side, (struct rc_terms){.operations = WITH_FLUSH});
		/* the user-space driver of rxe does not check these values */
		for (int wrong = on_device() ? 4 : 0; wrong < 4; wrong++) {
			qp = begin(&rc, 1, IBV_SEND_SIGNALED);
			wr_flush(qp, rc.peer.rkey, rc.peer.addr, wrong == 0 ? (size_t)1 << 32 : 8, wrong == 1 ? 0 : wrong == 2 ? 4 : 1, wrong == 3 ? 2 : 0);
			EXPECT(ibv_wr_complete(qp) == EINVAL, "%d", wrong);
		}
		qp = begin(&rc, 1, IBV_SEND_SIGNALED);
		wr_flush(qp, rc.peer.rkey, rc.peer.addr + flushes[i].offset, 8, flushes[i].type, flushes[i].level);
		DONE(ibv_wr_complete(qp));
		expect_sent(&rc, 1, flushes[i].status);
		meet(&rc);
		close_rc(&rc);
	}
}

const struct test rc_flush[] = {
	{.name = "roce-atomic-write", .target = atomic_write_t, .initiator = atomic_write_i, .missing = not_soft},
	{.name = "roce-atomic-writes", .target = atomic_writes_t, .initiator = atomic_writes_i, .missing = not_soft},
	{.name = "roce-atomic-write-refused", .target = refused_t, .initiator = refused_i, .missing = not_soft},
	{.name = "roce-flush", .target = flush_t, .initiator = flush_i, .missing = not_soft},
	{.name = "roce-flush-persistent", .target = persistent_t, .initiator = persistent_i, .missing = not_soft},
	{.name = "roce-flush-not-durable", .target = not_durable_t, .initiator = not_durable_i, .missing = not_soft},
	{.name = "roce-flush-refused", .target = flush_refused_t, .initiator = flush_refused_i, .missing = not_soft},
	{.name = NULL},
};
