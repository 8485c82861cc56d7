/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_req_new: each call fails in turn, for every kind of configuration */

#include "fixture.h"

#define LOOKUP_STEPS \
	{"rdma_getaddrinfo(\"192.0.2.7\", \"7204\", active, RC, 0x106)", "ai0", \
		"rdma_freeaddrinfo(ai0)", NULL}, \
	{"rdma_create_id(NULL, NULL, 0x106)", "id0", "rdma_destroy_id(id0)", NULL}, \
	{"rdma_resolve_addr(id0, ai0.src, ai0.dst, 1000)", NULL, NULL, NULL}, \
	{"rdma_resolve_route(id0, 1000)", NULL, NULL, NULL}

static void each_call_fails(const struct step *steps, int n, uint32_t rcq, bool shared)
{
	static const int errs[] = {EIO, ENOMEM, ETIMEDOUT, ENODATA};

	for (int failing = 0; failing < n; failing++) {
		int err = errs[failing % 4];
		mock_setup(NULL);
		struct rpma_peer *peer = fx_peer();
		struct rpma_conn_cfg *cfg = fx_cfg(10, rcq, shared, NULL);
		struct rpma_conn_req *req = UNTOUCHED;
		fail_step(steps, failing, err);
		assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), RPMA_E_PROVIDER);
		assert_ptr_equal(req, UNTOUCHED);
		UNWOUND(steps, failing, err);
		ONE_ERROR(strerror(err));
		fx_cfg_delete(&cfg);
		fx_peer_delete(&peer);
		assert_int_equal(mock_teardown(NULL), 0);
	}
}

static void plain(void **state)
{
	static const struct step steps[] = {LOOKUP_STEPS, CQ_STEPS("0", "10"), QP_STEP("id0", "cq0")};

	(void)state;
	each_call_fails(steps, 8, 0, false);
}

static void with_rcq(void **state)
{
	static const struct step steps[] = {LOOKUP_STEPS, CQ_STEPS("0", "10"), CQ_STEPS("1", "7"),
		QP_STEP("id0", "cq1")};

	(void)state;
	each_call_fails(steps, 11, 7, false);
}

static void on_shared_channel(void **state)
{
	static const struct step steps[] = {LOOKUP_STEPS,
		{"ibv_create_comp_channel(ctx)", "chan0", "ibv_destroy_comp_channel(chan0)", NULL},
		CQ_STEPS_ON("chan0", "0", "10"), CQ_STEPS_ON("chan0", "1", "7"),
		QP_STEP("id0", "cq1")};

	(void)state;
	each_call_fails(steps, 10, 7, true);
}

static void lookup_fails(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_fail("rdma_getaddrinfo", 1, -3); /* EAI_AGAIN */
	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, NULL, &req), RPMA_E_PROVIDER);
	assert_ptr_equal(req, UNTOUCHED);
	CALLS("rdma_getaddrinfo(\"192.0.2.7\", \"7204\", active, RC, 0x106) ! EAI-3");
	ONE_ERROR("Temporary failure in name resolution");
	fx_peer_delete(&peer);
}

/* Detected after the address and the route were resolved. */
static void shared_channel_and_srq_with_rcq(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_srq *srq = fx_srq(peer, 20);
	struct rpma_conn_cfg *cfg = fx_cfg(10, 0, true, srq);
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), RPMA_E_INVAL);
	assert_ptr_equal(req, UNTOUCHED);
	CALLS("rdma_getaddrinfo(\"192.0.2.7\", \"7204\", active, RC, 0x106) = ai0",
		"rdma_create_id(NULL, NULL, 0x106) = id0",
		"rdma_resolve_addr(id0, ai0.src, ai0.dst, 1000)",
		"rdma_resolve_route(id0, 1000)",
		"rdma_destroy_id(id0)",
		"rdma_freeaddrinfo(ai0)");
	ONE_ERROR("");
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
	fx_peer_delete(&peer);
}

/* Errors during clean-up do not replace the first error. */
static void clean_up_fails_too(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_fail_always("rdma_create_qp_ex", EIO);
	mock_fail("ibv_destroy_cq", 1, EBUSY);
	mock_fail("ibv_destroy_comp_channel", 1, EBUSY);
	mock_fail("rdma_destroy_id", 1, EBUSY);
	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, NULL, &req), RPMA_E_PROVIDER);
	assert_ptr_equal(req, UNTOUCHED);
	const char *want[16] = {"rdma_getaddrinfo(\"192.0.2.7\", \"7204\", active, RC, 0x106) = ai0",
		"rdma_create_id(NULL, NULL, 0x106) = id0",
		"rdma_resolve_addr(id0, ai0.src, ai0.dst, 1000)",
		"rdma_resolve_route(id0, 1000)",
		"ibv_create_comp_channel(ctx) = chan0",
		"ibv_create_cq(ctx, 10, NULL, chan0, 0) = cq0",
		"ibv_req_notify_cq(cq0, 0)",
		QP_LINE("id0", "cq0", "8") " ! EIO"};
	int n = 8;
	if (!original())
		want[n++] = QP_LINE("id0", "cq0", "0") " ! EIO"; /* second attempt */
	want[n++] = "ibv_destroy_cq(cq0) ! EBUSY";
	want[n++] = "ibv_destroy_comp_channel(chan0) ! EBUSY";
	want[n++] = "rdma_destroy_id(id0) ! EBUSY";
	want[n++] = "rdma_freeaddrinfo(ai0)";
	expect_calls_at(want, __FILE__, __LINE__);
	mock_forget_log();
	fx_peer_delete(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(with_rcq),
		cmocka_unit_test(on_shared_channel),
		MOCK_TEST(lookup_fails),
		MOCK_TEST(shared_channel_and_srq_with_rcq),
		MOCK_TEST(clean_up_fails_too),
	};

	return cmocka_run_group_tests_name("conn_req-new-fail", tests, NULL, NULL);
}
