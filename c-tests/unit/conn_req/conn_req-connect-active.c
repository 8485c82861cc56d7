/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_req_connect on the side that requests the connection */

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

#define BUILT "rdma_create_event_channel() = evch0", "rdma_migrate_id(id0, evch0)", \
	"mmap(page, RW, shared) = page0", "ibv_reg_mr(pd0, page0+0, 8, LW) = mr0"

static void success(void **state)
{
	struct rpma_conn_req *req = fx_req(peer, NULL);
	struct rpma_conn *conn = NULL;

	(void)state;
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
	assert_non_null(conn);
	assert_null(req);
	CALLS(BUILT, "rdma_connect(id0, " PARAMS("NULL 0") ")");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	fx_conn_delete(&conn);
}

static void private_data(void **state)
{
	struct rpma_conn_req *req = fx_req(peer, NULL);
	struct rpma_conn *conn = NULL;
	char text[] = "hello";
	const struct rpma_conn_private_data pdata = {text, 5};
	struct rpma_conn_private_data got = {UNTOUCHED, 77};

	(void)state;
	assert_int_equal(rpma_conn_req_connect(&req, &pdata, &conn), 0);
	CALLS(BUILT, "rdma_connect(id0, " PARAMS("\"hello\" 5") ")");
	/* the connection reports the private data of the remote side, not those that were sent */
	assert_int_equal(rpma_conn_get_private_data(conn, &got), 0);
	assert_null(got.ptr);
	assert_int_equal(got.len, 0);
	fx_conn_delete(&conn);
}

static void one_byte_of_private_data(void **state)
{
	struct rpma_conn_req *req = fx_req(peer, NULL);
	struct rpma_conn *conn = NULL;
	char text[] = "z";
	const struct rpma_conn_private_data pdata = {text, 1};

	(void)state;
	assert_int_equal(rpma_conn_req_connect(&req, &pdata, &conn), 0);
	CALLS(BUILT, "rdma_connect(id0, " PARAMS("\"z\" 1") ")");
	fx_conn_delete(&conn);
}

/* The buffer that a read-after-write flush reads into follows the rule for READ_DST. */
static void on_iwarp(void **state)
{
	struct rpma_conn *conn = NULL;

	(void)state;
	mock_transport(IBV_TRANSPORT_IWARP);
	struct rpma_conn_req *req = fx_req(peer, NULL);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
	CALLS("rdma_create_event_channel() = evch0", "rdma_migrate_id(id0, evch0)",
		"mmap(page, RW, shared) = page0", "ibv_reg_mr(pd0, page0+0, 8, LW|RW) = mr0",
		"rdma_connect(id0, " PARAMS("NULL 0") ")");
	fx_conn_delete(&conn);
}

/* Creating the connection fails: all is undone, in reverse order. */
static void each_call_fails(void **state)
{
	static const struct step steps[] = {
		{"rdma_create_event_channel()", "evch0", "rdma_destroy_event_channel(evch0)", NULL},
		{"rdma_migrate_id(id0, evch0)", NULL, "rdma_migrate_id(id0, NULL)", NULL},
		{"mmap(page, RW, shared)", "page0", "munmap(page0)", NULL},
		{"ibv_reg_mr(pd0, page0+0, 8, LW)", "mr0", "ibv_dereg_mr(mr0)", NULL},
	};
	/* the objects of the request are destroyed last: the undo of an additional first step */
	(void)state;
	for (int failing = 0; failing < 4; failing++) {
		struct step all[5];
		int err = failing == 1 ? ENODEV : EIO;
		setup(NULL);
		struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
		struct rpma_conn_req *req = fx_req(peer, cfg);
		struct rpma_conn *conn = UNTOUCHED;
		rdma_listen(mock_named("id0"), 77); /* a line in the log for that step */
		all[0] = (struct step){"rdma_listen(id0, 77)", NULL,
			"rdma_destroy_qp(id0)\nibv_destroy_cq(cq1)\nibv_destroy_cq(cq0)\n"
			"rdma_destroy_id(id0)\nibv_destroy_comp_channel(chan0)", NULL};
		memcpy(all + 1, steps, sizeof(steps));
		fail_step(steps, failing, err);
		assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn),
				failing == 2 ? RPMA_E_NOMEM : RPMA_E_PROVIDER);
		assert_null(req);
		assert_ptr_equal(conn, UNTOUCHED);
		UNWOUND(all, failing + 1, err);
		if (failing != 2)
			ONE_ERROR(strerror(err));
		fx_cfg_delete(&cfg);
		assert_int_equal(teardown(NULL), 0);
	}
}

/* rdma_connect() fails: the complete connection is deleted. */
static void connect_fails(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(10, 10, true, NULL);
	struct rpma_conn_req *req = fx_req(peer, cfg);
	struct rpma_conn *conn = UNTOUCHED;

	(void)state;
	mock_fail("rdma_connect", 1, ECONNREFUSED);
	assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), RPMA_E_PROVIDER);
	assert_null(req);
	assert_ptr_equal(conn, UNTOUCHED);
	CALLS(BUILT,
		"rdma_connect(id0, " PARAMS("NULL 0") ") ! ECONNREFUSED",
		"ibv_dereg_mr(mr0)", "munmap(page0)",
		"rdma_destroy_qp(id0)", "ibv_destroy_cq(cq1)", "ibv_destroy_cq(cq0)",
		"rdma_destroy_id(id0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_event_channel(evch0)");
	ONE_ERROR(strerror(ECONNREFUSED));
	fx_cfg_delete(&cfg);
}

static void connect_fails_with_private_data(void **state)
{
	struct rpma_conn_req *req = fx_req(peer, NULL);
	struct rpma_conn *conn = UNTOUCHED;
	char text[] = "hello";
	const struct rpma_conn_private_data pdata = {text, 5};

	(void)state;
	mock_fail("rdma_connect", 1, EIO);
	assert_int_equal(rpma_conn_req_connect(&req, &pdata, &conn), RPMA_E_PROVIDER);
	assert_null(req);
	CALLS(BUILT,
		"rdma_connect(id0, " PARAMS("\"hello\" 5") ") ! EIO",
		"ibv_dereg_mr(mr0)", "munmap(page0)",
		"rdma_destroy_qp(id0)", "ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"rdma_destroy_id(id0)", "rdma_destroy_event_channel(evch0)");
}

#define REQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REQ_TEST(success),
		REQ_TEST(private_data),
		REQ_TEST(one_byte_of_private_data),
		REQ_TEST(on_iwarp),
		cmocka_unit_test(each_call_fails),
		REQ_TEST(connect_fails),
		REQ_TEST(connect_fails_with_private_data),
	};

	return cmocka_run_group_tests_name("conn_req-connect-active", tests, NULL, NULL);
}
