/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_delete, rpma_conn_disconnect */

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

static void plain(void **state)
{
	struct rpma_conn *conn = fx_conn(peer, NULL);

	(void)state;
	assert_int_equal(rpma_conn_delete(&conn), 0);
	assert_null(conn);
	CALLS("ibv_dereg_mr(mr0)", "munmap(page0)", "rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0)", "rdma_destroy_event_channel(evch0)");
	SILENT();
}

static void with_rcq(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, false, NULL);
	struct rpma_conn *conn = fx_conn(peer, cfg);

	(void)state;
	assert_int_equal(rpma_conn_delete(&conn), 0);
	CALLS("ibv_dereg_mr(mr0)", "munmap(page0)", "rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq1)", "ibv_destroy_comp_channel(chan1)",
		"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0)", "rdma_destroy_event_channel(evch0)");
	fx_cfg_delete(&cfg);
}

static void on_shared_channel(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
	struct rpma_conn *conn = fx_conn(peer, cfg);

	(void)state;
	assert_int_equal(rpma_conn_delete(&conn), 0);
	CALLS("ibv_dereg_mr(mr0)", "munmap(page0)", "rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)", "rdma_destroy_id(id0)",
		"ibv_destroy_comp_channel(chan0)", "rdma_destroy_event_channel(evch0)");
	fx_cfg_delete(&cfg);
}

/* The objects of the SRQ remain with the SRQ. */
static void with_srq(void **state)
{
	struct rpma_srq *srq = fx_srq(peer, 20);
	struct rpma_conn_cfg *cfg = fx_cfg(10, 0, false, srq);
	struct rpma_conn *conn = fx_conn(peer, cfg);

	(void)state;
	assert_int_equal(rpma_conn_delete(&conn), 0);
	CALLS("ibv_dereg_mr(mr0)", "munmap(page0)", "rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq1)", "ibv_destroy_comp_channel(chan1)",
		"rdma_destroy_id(id0)", "rdma_destroy_event_channel(evch0)");
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
}

static void passive(void **state)
{
	struct rpma_ep *ep = fx_ep(peer);
	struct rpma_conn *conn = fx_accepted(ep, NULL, "with private data");

	(void)state;
	assert_int_equal(rpma_conn_delete(&conn), 0);
	CALLS("ibv_dereg_mr(mr0)", "munmap(page0)", "rdma_destroy_qp(id1)",
		"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id1)", "rdma_destroy_event_channel(evch1)");
	fx_ep_shutdown(&ep);
}

/* Each step fails in turn: the other steps are done, and the connection is deleted. */
static void each_step_fails(void **state)
{
	static const struct { const char *fn; int nth; int ret; } rows[] = {
		{"ibv_dereg_mr", 1, RPMA_E_PROVIDER},
		{"munmap", 1, RPMA_E_INVAL},
		{"ibv_destroy_cq", 1, RPMA_E_PROVIDER},
		{"ibv_destroy_cq", 2, RPMA_E_PROVIDER},
		{"rdma_destroy_id", 1, RPMA_E_PROVIDER},
		{"ibv_destroy_comp_channel", 1, RPMA_E_PROVIDER},
	};
	static const char *const calls[] = {"ibv_dereg_mr(mr0)", "munmap(page0)",
		"rdma_destroy_qp(id0)", "ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)",
		"rdma_destroy_id(id0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_event_channel(evch0)"};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *want[9] = {NULL};
		char failed[64];
		int seen = 0;
		setup(NULL);
		struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
		struct rpma_conn *conn = fx_conn(peer, cfg);
		mock_fail(rows[i].fn, rows[i].nth, EIO);
		assert_int_equal(rpma_conn_delete(&conn), rows[i].ret);
		assert_null(conn);
		for (size_t j = 0; j < sizeof(calls) / sizeof(calls[0]); j++) {
			want[j] = calls[j];
			if (strncmp(calls[j], rows[i].fn, strlen(rows[i].fn)) == 0 &&
					++seen == rows[i].nth) {
				snprintf(failed, sizeof(failed), "%s ! EIO", calls[j]);
				want[j] = failed;
			}
		}
		expect_calls_at(want, __FILE__, __LINE__);
		if (strcmp(rows[i].fn, "munmap") != 0)
			ONE_ERROR(strerror(EIO));
		fx_cfg_delete(&cfg);
		assert_int_equal(teardown(NULL), 0);
	}
}

/* The first error is returned: PROVIDER instead of the later INVAL of munmap. */
static void dereg_and_munmap_fail(void **state)
{
	struct rpma_conn *conn = fx_conn(peer, NULL);

	(void)state;
	mock_fail("ibv_dereg_mr", 1, EBUSY);
	mock_fail("munmap", 1, EINVAL);
	assert_int_equal(rpma_conn_delete(&conn), RPMA_E_PROVIDER);
	assert_null(conn);
	CALLS("ibv_dereg_mr(mr0) ! EBUSY", "munmap(page0) ! EINVAL", "rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0)", "rdma_destroy_event_channel(evch0)");
}

/* INVAL of munmap is returned instead of a later error. */
static void munmap_and_destroy_id_fail(void **state)
{
	struct rpma_conn *conn = fx_conn(peer, NULL);

	(void)state;
	mock_fail("munmap", 1, EINVAL);
	mock_fail("rdma_destroy_id", 1, EIO);
	assert_int_equal(rpma_conn_delete(&conn), RPMA_E_INVAL);
	assert_null(conn);
	CALLS("ibv_dereg_mr(mr0)", "munmap(page0) ! EINVAL", "rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0) ! EIO", "rdma_destroy_event_channel(evch0)");
}

static void disconnect(void **state)
{
	struct rpma_conn *conn = fx_conn(peer, NULL);

	(void)state;
	assert_int_equal(rpma_conn_disconnect(conn), 0);
	CALLS("rdma_disconnect(id0)");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_NOTICE), 1);
	/* again: the provider decides */
	assert_int_equal(rpma_conn_disconnect(conn), 0);
	CALLS("rdma_disconnect(id0)");
	mock_forget_log();
	fx_conn_delete(&conn);
}

static void disconnect_fails(void **state)
{
	struct rpma_conn *conn = fx_conn(peer, NULL);

	(void)state;
	mock_fail("rdma_disconnect", 1, EINVAL);
	assert_int_equal(rpma_conn_disconnect(conn), RPMA_E_PROVIDER);
	CALLS("rdma_disconnect(id0) ! EINVAL");
	ONE_ERROR(strerror(EINVAL));
	fx_conn_delete(&conn);
}

#define CONN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CONN_TEST(plain),
		CONN_TEST(with_rcq),
		CONN_TEST(on_shared_channel),
		CONN_TEST(with_srq),
		CONN_TEST(passive),
		cmocka_unit_test(each_step_fails),
		CONN_TEST(dereg_and_munmap_fail),
		CONN_TEST(munmap_and_destroy_id_fail),
		CONN_TEST(disconnect),
		CONN_TEST(disconnect_fails),
	};

	return cmocka_run_group_tests_name("conn-delete", tests, NULL, NULL);
}
