/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_req_delete */

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

static void active(void **state)
{
	struct rpma_conn_req *req = fx_req(peer, NULL);

	(void)state;
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	assert_null(req);
	CALLS("rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0)");
	SILENT();
}

static void active_with_rcq(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, false, NULL);
	struct rpma_conn_req *req = fx_req(peer, cfg);

	(void)state;
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	CALLS("rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq1)", "ibv_destroy_comp_channel(chan1)",
		"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0)");
	fx_cfg_delete(&cfg);
}

static void active_on_shared_channel(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
	struct rpma_conn_req *req = fx_req(peer, cfg);

	(void)state;
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	CALLS("rdma_destroy_qp(id0)",
		"ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)",
		"rdma_destroy_id(id0)",
		"ibv_destroy_comp_channel(chan0)");
	fx_cfg_delete(&cfg);
}

/*
 * The passive side rejects the request. Ours then destroys the id, which the original leaks, and its channel.
 */
static void passive(void **state)
{
	struct rpma_ep *ep = fx_ep(peer);
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
	struct rpma_conn_req *req = fx_incoming(ep, cfg, "with private data");

	(void)state;
	mock_original_leaks("id1");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	assert_null(req);
	if (original())
		CALLS("rdma_destroy_qp(id1)", "ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)",
			"rdma_reject(id1, NULL, 0)",
			"ibv_destroy_comp_channel(chan0)");
	else
		CALLS("rdma_destroy_qp(id1)", "ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)",
			"rdma_reject(id1, NULL, 0)", "rdma_destroy_id(id1)",
			"ibv_destroy_comp_channel(chan0)", "rdma_destroy_event_channel(evch1)");
	SILENT();
	fx_cfg_delete(&cfg);
	fx_ep_shutdown(&ep);
}

/*
 * Each step fails in turn: the other steps are done, the request is deleted, and the first error is returned.
 */
static void each_step_fails(bool is_passive, const char *const *calls, const char *const *fns)
{
	for (int i = 0; fns[i] != NULL; i++) {
		if (is_passive && original() && strcmp(fns[i], "rdma_destroy_id") == 0)
			continue;
		setup(NULL);
		struct rpma_ep *ep = is_passive ? fx_ep(peer) : NULL;
		struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
		struct rpma_conn_req *req = is_passive ? fx_incoming(ep, cfg, NULL) : fx_req(peer, cfg);
		const char *want[16];
		char failed[80];
		int seen = 0, nth = 1, n = 0;
		for (int j = 0; j < i; j++)
			nth += strcmp(fns[j], fns[i]) == 0;
		mock_fail(fns[i], nth, EIO);
		if (is_passive)
			mock_original_leaks("id1");
		assert_int_equal(rpma_conn_req_delete(&req), RPMA_E_PROVIDER);
		assert_null(req);
		for (int j = 0; calls[j] != NULL; j++) {
			if (is_passive && original() && (strncmp(calls[j], "rdma_destroy_id", 15) == 0 ||
					strncmp(calls[j], "rdma_destroy_event_channel", 26) == 0))
				continue;
			want[n] = calls[j];
			if (strncmp(calls[j], fns[i], strlen(fns[i])) == 0 && ++seen == nth) {
				snprintf(failed, sizeof(failed), "%s ! EIO", calls[j]);
				want[n] = failed;
			}
			n++;
		}
		want[n] = NULL;
		expect_calls_at(want, __FILE__, __LINE__);
		ONE_ERROR(strerror(EIO));
		fx_cfg_delete(&cfg);
		if (ep != NULL)
			fx_ep_shutdown(&ep);
		assert_int_equal(teardown(NULL), 0);
	}
}

static void each_active_step_fails(void **state)
{
	static const char *const calls[] = {"rdma_destroy_qp(id0)", "ibv_destroy_cq(cq1)",
		"ibv_destroy_cq(cq0)", "rdma_destroy_id(id0)", "ibv_destroy_comp_channel(chan0)", NULL};
	static const char *const fns[] = {"ibv_destroy_cq", "ibv_destroy_cq", "rdma_destroy_id",
		"ibv_destroy_comp_channel", NULL};

	(void)state;
	each_step_fails(false, calls, fns);
}

static void each_passive_step_fails(void **state)
{
	static const char *const calls[] = {"rdma_destroy_qp(id1)", "ibv_destroy_cq(cq1)",
		"ibv_destroy_cq(cq0)", "rdma_reject(id1, NULL, 0)", "rdma_destroy_id(id1)",
		"ibv_destroy_comp_channel(chan0)", "rdma_destroy_event_channel(evch1)", NULL};
	static const char *const fns[] = {"ibv_destroy_cq", "ibv_destroy_cq", "rdma_reject",
		"rdma_destroy_id", "ibv_destroy_comp_channel", NULL};

	(void)state;
	each_step_fails(true, calls, fns);
}

/* The first of two errors is returned; the channel of a CQ is destroyed even if destroying the CQ failed. */
static void everything_fails(void **state)
{
	struct rpma_conn_req *req = fx_req(peer, NULL);

	(void)state;
	mock_fail("ibv_destroy_cq", 1, EBUSY);
	mock_fail("ibv_destroy_comp_channel", 1, EIO);
	mock_fail("rdma_destroy_id", 1, EINVAL);
	assert_int_equal(rpma_conn_req_delete(&req), RPMA_E_PROVIDER);
	assert_null(req);
	CALLS("rdma_destroy_qp(id0)", "ibv_destroy_cq(cq0) ! EBUSY",
		"ibv_destroy_comp_channel(chan0) ! EIO", "rdma_destroy_id(id0) ! EINVAL");
	assert_true(mock_logged(RPMA_LOG_LEVEL_ERROR) >= 1);
}

#define REQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REQ_TEST(active),
		REQ_TEST(active_with_rcq),
		REQ_TEST(active_on_shared_channel),
		REQ_TEST(passive),
		cmocka_unit_test(each_active_step_fails),
		cmocka_unit_test(each_passive_step_fails),
		REQ_TEST(everything_fails),
	};

	return cmocka_run_group_tests_name("conn_req-delete", tests, NULL, NULL);
}
