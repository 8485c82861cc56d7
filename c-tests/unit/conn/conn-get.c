/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_get_cq, rpma_conn_get_rcq, rpma_conn_get_qp_num, rpma_conn_get_compl_fd */

#include "fixture.h"

static struct rpma_peer *peer;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	return 0;
}

static int teardown(void **state)
{
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

static void qp_num(void **state)
{
	struct rpma_conn *a = fx_conn(peer, NULL), *b = fx_conn(peer, NULL);
	uint32_t num = 0;

	(void)state;
	assert_int_equal(rpma_conn_get_qp_num(a, &num), 0);
	assert_int_equal(num, 0x11);
	assert_int_equal(rpma_conn_get_qp_num(b, &num), 0);
	assert_int_equal(num, 0x12);
	NO_CALLS();
	fx_conn_delete(&a);
	fx_conn_delete(&b);
}

/* Polling shows which verbs CQ belongs to an rpma CQ. */
static void expect_polls(struct rpma_cq *cq, const char *call)
{
	struct ibv_wc wc;

	assert_non_null(cq);
	assert_int_equal(rpma_cq_get_wc(cq, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
	CALLS(call);
	mock_forget_log();
}

static void cq_alone(void **state)
{
	struct rpma_conn *conn = fx_conn(peer, NULL);
	struct rpma_cq *cq = NULL, *rcq = UNTOUCHED;

	(void)state;
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	expect_polls(cq, "poll_cq(cq0, 1) = 0");
	assert_int_equal(rpma_conn_get_rcq(conn, &rcq), 0);
	assert_null(rcq);
	NO_CALLS();
	SILENT();
	fx_conn_delete(&conn);
}

static void cq_and_rcq(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, false, NULL);
	struct rpma_conn *conn = fx_conn(peer, cfg);
	struct rpma_cq *cq = NULL, *rcq = NULL, *again = NULL;

	(void)state;
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	expect_polls(cq, "poll_cq(cq0, 1) = 0");
	assert_int_equal(rpma_conn_get_rcq(conn, &rcq), 0);
	expect_polls(rcq, "poll_cq(cq1, 1) = 0");
	assert_int_equal(rpma_conn_get_cq(conn, &again), 0);
	assert_ptr_equal(cq, again);
	fx_conn_delete(&conn);
	fx_cfg_delete(&cfg);
}

/* The receive CQ of an SRQ belongs to the SRQ, not to the connection. */
static void rcq_of_srq(void **state)
{
	struct rpma_srq *srq = fx_srq(peer, 20);
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, false, srq);
	struct rpma_conn *conn = fx_conn(peer, cfg);
	struct rpma_cq *rcq = UNTOUCHED;

	(void)state;
	assert_int_equal(rpma_conn_get_rcq(conn, &rcq), 0);
	assert_null(rcq);
	fx_conn_delete(&conn);
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
}

static void compl_fd(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
	struct rpma_conn *plain = fx_conn(peer, NULL), *shared = fx_conn(peer, cfg);
	int fd = -7;

	(void)state;
	assert_int_equal(rpma_conn_get_compl_fd(plain, &fd), RPMA_E_NOT_SHARED_CHNL);
	assert_int_equal(fd, -7);
	assert_int_equal(rpma_conn_get_compl_fd(shared, &fd), 0);
	assert_int_equal(fd, 1001);
	NO_CALLS();
	fx_conn_delete(&plain);
	fx_conn_delete(&shared);
	fx_cfg_delete(&cfg);
}

#define CONN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CONN_TEST(qp_num),
		CONN_TEST(cq_alone),
		CONN_TEST(cq_and_rcq),
		CONN_TEST(rcq_of_srq),
		CONN_TEST(compl_fd),
	};

	return cmocka_run_group_tests_name("conn-get", tests, NULL, NULL);
}
