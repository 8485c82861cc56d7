/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The completion calls of 0.9.0 to 0.11.0, which later releases lack: rpma_conn_completion_get in its two
 * forms, rpma_cq_get_completion, rpma_conn_completion_wait, rpma_conn_get_completion_fd.
 */

#include <arpa/inet.h>
#include <dlfcn.h>

#include "fixture.h"

enum { CANARY = 0xee, OLD_SIZE = 20 /* bytes the 24-byte form may write */ };

static struct rpma_peer *peer;
static struct rpma_conn_cfg *cfg;
static struct rpma_conn *conn, *shared;
static struct rpma_cq *cq, *rcq;
static union {
	struct rpma_completion c;
	unsigned char bytes[48];
} out;

/* cq0 and cq1 with separate channels; cq2 with a shared one */
static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	cfg = fx_cfg(10, 10, false, NULL);
	conn = fx_conn(peer, cfg);
	rpma_conn_cfg_set_compl_channel(cfg, true);
	shared = fx_conn(peer, cfg);
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	assert_int_equal(rpma_conn_get_rcq(conn, &rcq), 0);
	memset(&out, CANARY, sizeof(out));
	return 0;
}

static int teardown(void **state)
{
	fx_conn_delete(&shared);
	fx_conn_delete(&conn);
	fx_cfg_delete(&cfg);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

/* ---- the three ways to one completion ---- */

typedef int conn_get(struct rpma_conn *conn, struct rpma_completion *cmpl);
static conn_get *get_24, *get_32;

static int group_setup(void **state)
{
	(void)state;
	get_24 = (conn_get *)dlvsym(RTLD_DEFAULT, "rpma_conn_completion_get", "LIBRPMA_1.0");
	get_32 = (conn_get *)dlvsym(RTLD_DEFAULT, "rpma_conn_completion_get", "LIBRPMA_0.10");
	return 0;
}

static int by_conn_24(struct rpma_completion *c)
{
	return get_24(conn, c);
}

static int by_conn_32(struct rpma_completion *c)
{
	return get_32(conn, c);
}

/* The form for a program that is built today. */
static int by_conn_default(struct rpma_completion *c)
{
	return rpma_conn_completion_get(conn, c);
}

static int by_cq(struct rpma_completion *c)
{
	return rpma_cq_get_completion(cq, c);
}

static const struct way {
	const char *name;
	int (*get)(struct rpma_completion *c);
	bool old; /* 24 bytes, and the semantics of 0.9.0 */
} ways[] = {
	{"conn, LIBRPMA_1.0", by_conn_24, true},
	{"conn, LIBRPMA_0.10", by_conn_32, false},
	{"conn, default", by_conn_default, false},
	{"cq", by_cq, false},
};

#define FOR_EACH_WAY(w) \
	for (const struct way *w = ways; w < ways + sizeof(ways) / sizeof(ways[0]); w++)

static struct ibv_wc wc(enum ibv_wc_opcode opcode, unsigned flags)
{
	struct ibv_wc w;

	memset(&w, 0, sizeof(w));
	w.wr_id = 0xfedcba9876543210;
	w.opcode = opcode;
	w.byte_len = 1234;
	w.wc_flags = flags;
	w.imm_data = htonl(0xa1b2c3d4);
	return w;
}

static int take(const struct way *w, struct ibv_wc entry)
{
	memset(&out, CANARY, sizeof(out));
	mock_wc(&entry, 1);
	int ret = w->get(&out.c);
	CALLS("poll_cq(cq0, 1) = 1");
	return ret;
}

static void expect_canary(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		assert_int_equal(out.bytes[i], CANARY);
}

static void both_forms_exist(void **state)
{
	(void)state;
	assert_non_null(get_24);
	assert_non_null(get_32);
	assert_ptr_not_equal(get_24, get_32);
	assert_ptr_equal((void *)get_32, dlsym(RTLD_DEFAULT, "rpma_conn_completion_get"));
	assert_int_equal(sizeof(struct rpma_completion), 32);
}

static void empty(void **state)
{
	(void)state;
	FOR_EACH_WAY(w) {
		assert_int_equal(w->get(&out.c), RPMA_E_NO_COMPLETION);
		expect_canary(0, sizeof(out));
		CALLS("poll_cq(cq0, 1) = 0");
		assert_int_equal(mock_logged(RPMA_LOG_LEVEL_DEBUG), 1);
	}
}

static void poll_fails(void **state)
{
	(void)state;
	FOR_EACH_WAY(w) {
		mock_fail_reset();
		mock_fail("poll_cq", 1, EIO);
		assert_int_equal(w->get(&out.c), RPMA_E_PROVIDER);
		ONE_ERROR("");
		mock_poll_returns(2);
		assert_int_equal(w->get(&out.c), RPMA_E_UNKNOWN);
		ONE_ERROR("");
		expect_canary(0, sizeof(out));
		mock_forget_calls();
	}
}

/* The opcodes with a name; native flush counts as a read, and native atomic write as a write. */
static const struct { int opcode; enum rpma_op op; } known[] = {
	{IBV_WC_SEND, RPMA_OP_SEND},
	{IBV_WC_RDMA_WRITE, RPMA_OP_WRITE},
	{IBV_WC_RDMA_READ, RPMA_OP_READ},
	{8, RPMA_OP_READ},
	{9, RPMA_OP_WRITE},
	{IBV_WC_RECV, RPMA_OP_RECV},
};

static void success(void **state)
{
	(void)state;
	FOR_EACH_WAY(w) {
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
			assert_int_equal(take(w, wc((enum ibv_wc_opcode)known[i].opcode, 1)), 0);
			assert_int_equal((uintptr_t)out.c.op_context, 0xfedcba9876543210);
			assert_int_equal(out.c.op, known[i].op);
			assert_int_equal(out.c.byte_len, 1234);
			assert_int_equal(out.c.op_status, IBV_WC_SUCCESS);
			if (w->old) {
				expect_canary(OLD_SIZE, sizeof(out));
			} else {
				assert_int_equal(out.c.flags, 1);
				expect_canary(24, sizeof(out)); /* no immediate data */
			}
			SILENT();
		}
	}
}

static void immediate_data(void **state)
{
	(void)state;
	FOR_EACH_WAY(w) {
		assert_int_equal(take(w, wc(IBV_WC_RECV, IBV_WC_WITH_IMM)), 0);
		assert_int_equal(out.c.op, RPMA_OP_RECV);
		if (w->old) {
			expect_canary(OLD_SIZE, sizeof(out)); /* an object of 0.9.0 ends at 24 */
			continue;
		}
		assert_int_equal(out.c.flags, IBV_WC_WITH_IMM);
		assert_int_equal(out.c.imm, 0xa1b2c3d4);
		expect_canary(28, sizeof(out));
		/* the flag is ignored in completions other than those of receives */
		assert_int_equal(take(w, wc(IBV_WC_SEND, IBV_WC_WITH_IMM)), 0);
		expect_canary(24, sizeof(out));
	}
}

static void write_with_immediate_data(void **state)
{
	(void)state;
	FOR_EACH_WAY(w) {
		int ret = take(w, wc(IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM));
		if (w->old) { /* 0.9.0 has no such operation */
			assert_int_equal(ret, RPMA_E_NOSUPP);
			expect_canary(OLD_SIZE, sizeof(out));
			ONE_ERROR("");
			continue;
		}
		assert_int_equal(ret, 0);
		assert_int_equal(out.c.op, RPMA_OP_RECV_RDMA_WITH_IMM);
		assert_int_equal(out.c.imm, 0xa1b2c3d4);
		assert_int_equal(out.c.byte_len, 1234);
	}
}

/* Consumed and rejected: context and status identify the request. */
static void unknown_opcode(void **state)
{
	static const int opcodes[] = {IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_BIND_MW, 77, 130};

	(void)state;
	FOR_EACH_WAY(w) {
		for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
			assert_int_equal(take(w, wc((enum ibv_wc_opcode)opcodes[i], 0)), RPMA_E_NOSUPP);
			if (!w->old) {
				assert_int_equal((uintptr_t)out.c.op_context, 0xfedcba9876543210);
				assert_int_equal(out.c.op_status, IBV_WC_SUCCESS);
			}
			expect_canary(8, 16);
			expect_canary(OLD_SIZE, sizeof(out));
			ONE_ERROR("");
		}
	}
}

/*
 * Context and status are always set, and 0 is returned. Newer forms set nothing else; the old one sets the
 * other members if it can.
 */
static void failed_entry(void **state)
{
	(void)state;
	FOR_EACH_WAY(w) {
		struct ibv_wc entry = wc(IBV_WC_RDMA_READ, 1);
		entry.status = IBV_WC_REM_ACCESS_ERR;
		assert_int_equal(take(w, entry), 0);
		assert_int_equal((uintptr_t)out.c.op_context, 0xfedcba9876543210);
		assert_int_equal(out.c.op_status, IBV_WC_REM_ACCESS_ERR);
		if (w->old) {
			assert_int_equal(out.c.op, RPMA_OP_READ);
			assert_int_equal(out.c.byte_len, 1234);
		} else {
			expect_canary(8, 16);
		}
		expect_canary(OLD_SIZE, sizeof(out));
		assert_int_equal(mock_logged(RPMA_LOG_LEVEL_WARNING), 1);

		/* the opcode of a failed entry may be anything */
		entry.opcode = (enum ibv_wc_opcode)77;
		assert_int_equal(take(w, entry), 0);
		assert_int_equal(out.c.op_status, IBV_WC_REM_ACCESS_ERR);
		expect_canary(8, 16);
		expect_canary(OLD_SIZE, sizeof(out));
		mock_forget_log();
	}
}

/* The form with a connection uses its main CQ; the other queue is polled by its own object. */
static void receive_cq(void **state)
{
	struct ibv_wc entry = wc(IBV_WC_RECV, 0);

	(void)state;
	mock_wc(&entry, 1);
	assert_int_equal(rpma_cq_get_completion(rcq, &out.c), 0);
	CALLS("poll_cq(cq1, 1) = 1");
}

/* ---- waiting ---- */

static void wait_success(void **state)
{
	(void)state;
	mock_cq_event(mock_named("cq0"));
	assert_int_equal(rpma_conn_completion_wait(conn), 0);
	CALLS("ibv_get_cq_event(chan0) = cq0", "ibv_ack_cq_events(cq0, 1)",
		"ibv_req_notify_cq(cq0, 0)");
	SILENT();
}

static void wait_fails(void **state)
{
	(void)state;
	mock_fail("ibv_get_cq_event", 1, EAGAIN);
	assert_int_equal(rpma_conn_completion_wait(conn), RPMA_E_NO_COMPLETION);
	mock_forget_calls();
	SILENT();
	mock_cq_event(mock_named("cq0"));
	mock_fail("ibv_req_notify_cq", 1, EIO);
	assert_int_equal(rpma_conn_completion_wait(conn), RPMA_E_PROVIDER);
	CALLS("ibv_get_cq_event(chan0) = cq0", "ibv_ack_cq_events(cq0, 1)",
		"ibv_req_notify_cq(cq0, 0) ! EIO");
	ONE_ERROR(strerror(EIO));
}

/* Completions of a shared channel are waited for with rpma_conn_wait() only. */
static void wait_on_shared_channel(void **state)
{
	(void)state;
	assert_int_equal(rpma_conn_completion_wait(shared), RPMA_E_SHARED_CHANNEL);
	NO_CALLS();
	SILENT();
}

static void completion_fd(void **state)
{
	int fd = -7;

	(void)state;
	assert_int_equal(rpma_conn_get_completion_fd(conn, &fd), 0);
	assert_int_equal(fd, 1000);
	NO_CALLS();
	SILENT();
}

#define CMPL_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CMPL_TEST(both_forms_exist),
		CMPL_TEST(empty),
		CMPL_TEST(poll_fails),
		CMPL_TEST(success),
		CMPL_TEST(immediate_data),
		CMPL_TEST(write_with_immediate_data),
		CMPL_TEST(unknown_opcode),
		CMPL_TEST(failed_entry),
		CMPL_TEST(receive_cq),
		CMPL_TEST(wait_success),
		CMPL_TEST(wait_fails),
		CMPL_TEST(wait_on_shared_channel),
		CMPL_TEST(completion_fd),
	};

	return cmocka_run_group_tests_name("completion-ours", tests, group_setup, NULL);
}
