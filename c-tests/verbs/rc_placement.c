/* SPDX-License-Identifier: BSD-3-Clause */
/* rc_placement.c -- atomic writes over RoCE, by the functions of extended queue pairs (ibv_wr_post(3)) */
#include "rc.h"

#include <sched.h>

#define DEVICE_ATOMIC_WRITE ((uint64_t)1 << 40) /* IBV_DEVICE_ATOMIC_WRITE, which rdma-core 44 does not define */
#define OPERATIONS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE)

#define ROUNDS 200
#define RECORD 64
#define RECORDS 4096 /* the offset of the records; the word is at the beginning of the memory */
#define LENGTH (RECORDS + (ROUNDS + 1) * RECORD)
#define REPEATED 0x0101010101010101ULL /* a word all of whose bytes are n is n times this */

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

/*
 * Records are written, and the number of each by an atomic write behind it. Whoever reads the number sees all
 * of it, never a smaller one later, and the record.
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
	check_bytes(rc.memory + 8, RECORDS - 8, 0, "the bytes behind the word");
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
		word = 0xee; /* the value belongs to the program again */
		wc = next_of(rc.send_cq);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1000 + n, "%s", ibv_wc_status_str(wc.status));
		EXPECT(wc.opcode == IBV_WC_ATOMIC_WRITE, "opcode %d", wc.opcode);
	}
	expect_nothing(rc.send_cq);
	meet(&rc);
	close_rc(&rc);
}

/* Many at once, more than may be outstanding: they are carried out in order. */
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

/* A word that is not aligned, and a region without the right: the connection ends. */
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

const struct test rc_placement[] = {
	{.name = "roce-atomic-write", .target = atomic_write_t, .initiator = atomic_write_i, .missing = not_soft},
	{.name = "roce-atomic-writes", .target = atomic_writes_t, .initiator = atomic_writes_i, .missing = not_soft},
	{.name = "roce-atomic-write-refused", .target = refused_t, .initiator = refused_i, .missing = not_soft},
	{.name = NULL},
};
