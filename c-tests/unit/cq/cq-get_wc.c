/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_cq_get_wc */

#include "fixture.h"

enum { N = 4 };

static struct rpma_peer *peer;
static struct rpma_conn *conn;
static struct rpma_cq *cq;
static struct ibv_wc made[N], got[N + 1], untouched[N + 1];

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	conn = fx_conn(peer, NULL);
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	memset(untouched, 0xee, sizeof(untouched));
	memset(got, 0xee, sizeof(got));
	for (int i = 0; i < N; i++)
		memset(&made[i], i + 1, sizeof(made[i]));
	return 0;
}

static int teardown(void **state)
{
	fx_conn_delete(&conn);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

/* Entries are returned as the provider wrote them. */
static void one(void **state)
{
	int n = -7;

	(void)state;
	mock_wc(made, 2);
	assert_int_equal(rpma_cq_get_wc(cq, 1, got, &n), 0);
	assert_int_equal(n, 1);
	assert_memory_equal(got, made, sizeof(made[0]));
	assert_memory_equal(got + 1, untouched, sizeof(made[0]) * N);
	CALLS("poll_cq(cq0, 1) = 1");
	/* the count is optional for one */
	assert_int_equal(rpma_cq_get_wc(cq, 1, got, NULL), 0);
	assert_memory_equal(got, made + 1, sizeof(made[0]));
	CALLS("poll_cq(cq0, 1) = 1");
	SILENT();
}

static void several(void **state)
{
	int n = -7;

	(void)state;
	mock_wc(made, N);
	assert_int_equal(rpma_cq_get_wc(cq, N, got, &n), 0);
	assert_int_equal(n, N);
	assert_memory_equal(got, made, sizeof(made));
	assert_memory_equal(got + N, untouched, sizeof(got[0]));
	CALLS("poll_cq(cq0, 4) = 4");
}

static void fewer_than_asked(void **state)
{
	int n = -7;

	(void)state;
	mock_wc(made, 3);
	assert_int_equal(rpma_cq_get_wc(cq, N + 1, got, &n), 0);
	assert_int_equal(n, 3);
	assert_memory_equal(got, made, sizeof(made[0]) * 3);
	CALLS("poll_cq(cq0, 5) = 3");
	SILENT();
}

/* A failed entry is returned like any other, and not logged. */
static void failed_entry(void **state)
{
	struct ibv_wc failed = {.wr_id = 9, .status = IBV_WC_WR_FLUSH_ERR, .opcode = 0x7777};

	(void)state;
	mock_wc(&failed, 1);
	assert_int_equal(rpma_cq_get_wc(cq, 1, got, NULL), 0);
	assert_int_equal(got[0].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(got[0].wr_id, 9);
	assert_int_equal(got[0].opcode, 0x7777);
	mock_forget_calls();
	SILENT();
}

static void empty(void **state)
{
	int n = -7;

	(void)state;
	assert_int_equal(rpma_cq_get_wc(cq, 2, got, &n), RPMA_E_NO_COMPLETION);
	assert_int_equal(n, -7);
	CALLS("poll_cq(cq0, 2) = 0");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_DEBUG), 1);
}

static void poll_fails(void **state)
{
	static const int errs[] = {1, ENOMEM, EIO};
	int n = -7;

	(void)state;
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		mock_fail("poll_cq", 1, errs[i]);
		assert_int_equal(rpma_cq_get_wc(cq, 2, got, &n), RPMA_E_PROVIDER);
		assert_int_equal(n, -7);
		mock_forget_calls();
		ONE_ERROR("");
	}
}

/* A provider that returns more entries than requested. */
static void more_than_asked(void **state)
{
	int n = -7;

	(void)state;
	mock_poll_returns(3);
	assert_int_equal(rpma_cq_get_wc(cq, 2, got, &n), RPMA_E_UNKNOWN);
	assert_int_equal(n, -7);
	CALLS("poll_cq(cq0, 2) = 3");
	ONE_ERROR("");
	mock_poll_returns(2);
	assert_int_equal(rpma_cq_get_wc(cq, 1, got, NULL), RPMA_E_UNKNOWN);
	mock_forget_calls();
	mock_forget_log();
}

#define CQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CQ_TEST(one),
		CQ_TEST(several),
		CQ_TEST(fewer_than_asked),
		CQ_TEST(failed_entry),
		CQ_TEST(empty),
		CQ_TEST(poll_fails),
		CQ_TEST(more_than_asked),
	};

	return cmocka_run_group_tests_name("cq-get_wc", tests, NULL, NULL);
}
