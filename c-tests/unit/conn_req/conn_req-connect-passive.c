/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_req_connect on the side that has received the request */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_ep *ep;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	ep = fx_ep(peer);
	return 0;
}

static int teardown(void **state)
{
	fx_ep_shutdown(&ep);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

#define ACCEPT(pdata) "rdma_accept(id1, " PARAMS(pdata) ")"
#define MIGRATED "rdma_create_event_channel() = evch1", "rdma_migrate_id(id1, evch1)"
#define BUILT "mmap(page, RW, shared) = page0", "ibv_reg_mr(pd0, page0+0, 8, LW) = mr0"

/*
 * Ours accepts last; the id has had a separate channel since the request was fetched. The original accepts
 * first, so an event immediately afterwards, such as ESTABLISHED, may still be queued on the endpoint's
 * channel.
 */
#define CALLS_OF_ACCEPT(pdata) \
	do { \
		if (original()) \
			CALLS(ACCEPT(pdata), MIGRATED, BUILT); \
		else \
			CALLS(BUILT, ACCEPT(pdata)); \
	} while (0)

static void success(void **state)
{
	struct rpma_conn_req *req = fx_incoming(ep, NULL, NULL);
	struct rpma_conn *conn = NULL;

	(void)state;
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
	assert_non_null(conn);
	assert_null(req);
	CALLS_OF_ACCEPT("NULL 0");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	fx_conn_delete(&conn);
}

static void private_data_both_ways(void **state)
{
	struct rpma_conn_req *req = fx_incoming(ep, NULL, "from the client");
	struct rpma_conn *conn = NULL;
	char text[] = "from the server";
	const struct rpma_conn_private_data pdata = {text, sizeof(text) - 1};
	struct rpma_conn_private_data got = {NULL, 0};

	(void)state;
	assert_int_equal(rpma_conn_req_connect(&req, &pdata, &conn), 0);
	CALLS_OF_ACCEPT("\"from the server\" 15");
	assert_int_equal(rpma_conn_get_private_data(conn, &got), 0);
	assert_int_equal(got.len, 15);
	assert_memory_equal(got.ptr, "from the client", 15);
	fx_conn_delete(&conn);
}

/* The connection takes over the private data of the request. */
static void private_data_moves_to_connection(void **state)
{
	struct rpma_conn_req *req = fx_incoming(ep, NULL, "stays");
	struct rpma_conn_private_data before = {NULL, 0}, after = {NULL, 0};
	struct rpma_conn *conn = NULL;

	(void)state;
	assert_int_equal(rpma_conn_req_get_private_data(req, &before), 0);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
	assert_int_equal(rpma_conn_get_private_data(conn, &after), 0);
	assert_ptr_equal(before.ptr, after.ptr);
	assert_int_equal(after.len, 5);
	fx_conn_delete(&conn);
}

static void accept_fails(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
	struct rpma_conn_req *req = fx_incoming(ep, cfg, "data");
	struct rpma_conn *conn = UNTOUCHED;

	(void)state;
	mock_original_leaks("id1");
	mock_fail("rdma_accept", 1, ECONNABORTED);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), RPMA_E_PROVIDER);
	assert_null(req);
	assert_ptr_equal(conn, UNTOUCHED);
	if (original())
		CALLS(ACCEPT("NULL 0") " ! ECONNABORTED",
			"rdma_destroy_qp(id1)", "ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)",
			"ibv_destroy_comp_channel(chan0)");
	else
		CALLS(BUILT, ACCEPT("NULL 0") " ! ECONNABORTED", "ibv_dereg_mr(mr0)", "munmap(page0)",
			"rdma_destroy_qp(id1)", "ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)",
			"rdma_destroy_id(id1)", "ibv_destroy_comp_channel(chan0)",
			"rdma_destroy_event_channel(evch1)");
	ONE_ERROR(strerror(ECONNABORTED));
	fx_cfg_delete(&cfg);
}

/*
 * Each call other than the accept fails. Ours has not accepted yet: it rejects the request. The original has:
 * it disconnects.
 */
static void each_other_call_fails(void **state)
{
	static const struct step not_accepted = {NULL, NULL, "rdma_migrate_id(id1, NULL)\n"
		"rdma_destroy_event_channel(evch1)\nrdma_destroy_qp(id1)\nibv_destroy_cq(cq1)\n"
		"ibv_destroy_cq(cq0)\nrdma_reject(id1, NULL, 0)\nrdma_destroy_id(id1)\n"
		"ibv_destroy_comp_channel(chan0)", NULL};
	static const struct step accepted = {ACCEPT("NULL 0"), NULL, "rdma_disconnect(id1)\n"
		"rdma_destroy_qp(id1)\nibv_destroy_cq(cq1)\nibv_destroy_cq(cq0)\n"
		"ibv_destroy_comp_channel(chan0)", NULL};
	static const struct step all[] = {
		{"rdma_create_event_channel()", "evch1", "rdma_destroy_event_channel(evch1)", NULL},
		{"rdma_migrate_id(id1, evch1)", NULL, "rdma_migrate_id(id1, NULL)", NULL},
		{"mmap(page, RW, shared)", "page0", "munmap(page0)", NULL},
		{"ibv_reg_mr(pd0, page0+0, 8, LW)", "mr0", "ibv_dereg_mr(mr0)", NULL},
	};
	/* ours has done the first two already */
	const int done = original() ? 0 : 2, n = 5 - done;
	struct step steps[5] = {original() ? accepted : not_accepted};

	(void)state;
	memcpy(steps + 1, all + done, sizeof(all[0]) * (size_t)(n - 1));
	for (int failing = 1; failing < n; failing++) {
		setup(NULL);
		struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
		struct rpma_conn_req *req = fx_incoming(ep, cfg, "data");
		struct rpma_conn *conn = UNTOUCHED;
		mock_original_leaks("id1");
		fail_step(steps, failing, EIO);
		assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn),
				failing == 3 - done ? RPMA_E_NOMEM : RPMA_E_PROVIDER);
		assert_null(req);
		assert_ptr_equal(conn, UNTOUCHED);
		UNWOUND(steps, failing, EIO);
		if (failing != 3 - done)
			ONE_ERROR(strerror(EIO));
		fx_cfg_delete(&cfg);
		assert_int_equal(teardown(NULL), 0);
	}
}

/* The rejection of a request that cannot be accepted fails as well: the first error is reported. */
static void rejection_fails_too(void **state)
{
	struct rpma_conn_req *req = fx_incoming(ep, NULL, NULL);
	struct rpma_conn *conn = UNTOUCHED;

	(void)state;
	if (!original()) /* which accepts first */
		mock_fail("rdma_reject", 1, ENODEV);
	mock_original_leaks("id1");
	mock_fail("mmap", 1, ENOMEM);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), RPMA_E_NOMEM);
	assert_null(req);
	assert_ptr_equal(conn, UNTOUCHED);
	if (!original())
		CALLS("mmap(page, RW, shared) ! ENOMEM", "rdma_migrate_id(id1, NULL)",
			"rdma_destroy_event_channel(evch1)", "rdma_destroy_qp(id1)", "ibv_destroy_cq(cq0)",
			"ibv_destroy_comp_channel(chan0)", "rdma_reject(id1, NULL, 0) ! ENODEV",
			"rdma_destroy_id(id1)");
	mock_forget_calls();
}

#define REQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REQ_TEST(success),
		REQ_TEST(private_data_both_ways),
		REQ_TEST(private_data_moves_to_connection),
		REQ_TEST(accept_fails),
		cmocka_unit_test(each_other_call_fails),
		REQ_TEST(rejection_fails_too),
	};

	return cmocka_run_group_tests_name("conn_req-connect-passive", tests, NULL, NULL);
}
