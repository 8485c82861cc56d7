/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_ep_next_conn_req: events and the resulting requests */

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

static void request_arrives(const char *pdata, uint8_t len)
{
	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), pdata, len);
}

/* Rejects the request; ours also destroys its id, which every release leaks. */
static void turn_away(struct rpma_conn_req **req)
{
	fx_forget();
	assert_int_equal(rpma_conn_req_delete(req), 0);
	assert_null(*req);
	fx_forget();
	mock_original_leaks("id1");
}

/* Acknowledged here: shutting the endpoint down does not wait for the request. */
static void success(void **state)
{
	struct rpma_conn_req *req = NULL;

	(void)state;
	request_arrives(NULL, 0);
	assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), 0);
	assert_non_null(req);
	CALLS("rdma_get_cm_event(evch0) = ev0",
		"ibv_create_comp_channel(ctx) = chan0",
		"ibv_create_cq(ctx, 10, NULL, chan0, 0) = cq0",
		"ibv_req_notify_cq(cq0, 0)",
		QP_LINE("id1", "cq0", "8") " = qp0",
		"rdma_ack_cm_event(ev0)",
		OWN_CHANNEL("id1", "evch1"));
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	turn_away(&req);
}

static void configured(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(33, 44, false, NULL);
	struct rpma_conn_req *req = NULL;

	(void)state;
	rpma_conn_cfg_set_sq_size(cfg, 55);
	rpma_conn_cfg_set_rq_size(cfg, 66);
	request_arrives(NULL, 0);
	assert_int_equal(rpma_ep_next_conn_req(ep, cfg, &req), 0);
	CALLS("rdma_get_cm_event(evch0) = ev0",
		"ibv_create_comp_channel(ctx) = chan0",
		"ibv_create_cq(ctx, 33, NULL, chan0, 0) = cq0",
		"ibv_req_notify_cq(cq0, 0)",
		"ibv_create_comp_channel(ctx) = chan1",
		"ibv_create_cq(ctx, 44, NULL, chan1, 0) = cq1",
		"ibv_req_notify_cq(cq1, 0)",
		"rdma_create_qp_ex(id1, pd0, mask 0x1, ctx NULL, cq cq0 cq1, srq NULL, wr 55 66, "
			"sge 1 1, inline 8, RC, sig_all 0) = qp0",
		"rdma_ack_cm_event(ev0)",
		OWN_CHANNEL("id1", "evch1"));
	turn_away(&req);
	fx_cfg_delete(&cfg);
}

/* The data of the request is copied: the event is freed by its acknowledgement. */
static void private_data(void **state)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn_private_data got = {UNTOUCHED, 77};

	(void)state;
	request_arrives("four", 4);
	assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), 0);
	assert_int_equal(rpma_conn_req_get_private_data(req, &got), 0);
	assert_int_equal(got.len, 4);
	assert_memory_equal(got.ptr, "four", 4);
	turn_away(&req);
}

static void longest_private_data(void **state)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn_private_data got = {NULL, 0};
	char data[255];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)i;
	request_arrives(data, sizeof(data));
	assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), 0);
	assert_int_equal(rpma_conn_req_get_private_data(req, &got), 0);
	assert_int_equal(got.len, 255);
	assert_memory_equal(got.ptr, data, 255);
	turn_away(&req);
}

static void no_private_data(void **state)
{
	struct rpma_conn_req *req = NULL;
	struct rpma_conn_private_data got = {UNTOUCHED, 77};

	(void)state;
	request_arrives(NULL, 0);
	assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), 0);
	assert_int_equal(rpma_conn_req_get_private_data(req, &got), 0);
	assert_null(got.ptr);
	assert_int_equal(got.len, 0);
	turn_away(&req);
}

/* Several requests are independent objects. */
static void two_requests(void **state)
{
	struct rpma_conn_req *a = fx_incoming(ep, NULL, "first");
	struct rpma_conn_req *b = fx_incoming(ep, NULL, "second");
	struct rpma_conn_private_data got = {NULL, 0};

	(void)state;
	assert_int_equal(rpma_conn_req_get_private_data(b, &got), 0);
	assert_memory_equal(got.ptr, "second", 6);
	assert_int_equal(rpma_conn_req_get_private_data(a, &got), 0);
	assert_memory_equal(got.ptr, "first", 5);
	turn_away(&a);
	assert_int_equal(rpma_conn_req_delete(&b), 0);
	mock_original_leaks("id2");
}

/* The program may shut the endpoint down first; with a release, this destroys the channel of the request. */
static void outlives_endpoint(void **state)
{
	(void)state;
	for (int accepts = 0; accepts < 2 && !original(); accepts++) {
		setup(NULL);
		struct rpma_conn_req *req = fx_incoming(ep, NULL, "data");
		struct rpma_conn *conn = NULL;
		fx_ep_shutdown(&ep);
		if (accepts) {
			assert_int_equal(rpma_conn_req_connect(&req, NULL, &conn), 0);
			fx_conn_delete(&conn);
		} else {
			assert_int_equal(rpma_conn_req_delete(&req), 0);
		}
		fx_forget();
		assert_int_equal(teardown(NULL), 0);
	}
}

#define EP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EP_TEST(success),
		EP_TEST(configured),
		EP_TEST(private_data),
		EP_TEST(longest_private_data),
		EP_TEST(no_private_data),
		EP_TEST(two_requests),
		cmocka_unit_test(outlives_endpoint),
	};

	return cmocka_run_group_tests_name("ep-next_conn_req", tests, NULL, NULL);
}
