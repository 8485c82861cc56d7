/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_ep_next_conn_req: all failures */

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

static void no_event(void **state)
{
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_fail("rdma_get_cm_event", 1, ENODATA);
	assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), RPMA_E_NO_EVENT);
	assert_ptr_equal(req, UNTOUCHED);
	CALLS("rdma_get_cm_event(evch0) ! ENODATA");
	SILENT();
}

/* EAGAIN of a non-blocking descriptor, for which the manual documents NO_EVENT. */
static void no_event_non_blocking(void **state)
{
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_fail("rdma_get_cm_event", 1, EAGAIN);
	assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req),
			original() ? RPMA_E_PROVIDER : RPMA_E_NO_EVENT);
	assert_ptr_equal(req, UNTOUCHED);
	CALLS("rdma_get_cm_event(evch0) ! EAGAIN");
	if (original())
		ONE_ERROR(strerror(EAGAIN));
	else
		SILENT();
}

static void get_event_fails(void **state)
{
	static const int errs[] = {EIO, EINVAL, EBADF, ENOMEM, EINTR};
	struct rpma_conn_req *req = UNTOUCHED;
	char want[64];

	(void)state;
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		mock_fail("rdma_get_cm_event", 1, errs[i]);
		assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), RPMA_E_PROVIDER);
		assert_ptr_equal(req, UNTOUCHED);
		snprintf(want, sizeof(want), "rdma_get_cm_event(evch0) ! %s", strerrorname_np(errs[i]));
		CALLS(want);
		ONE_ERROR(strerror(errs[i]));
	}
}

/* Every event that is not a request: acknowledged, named in the log, INVAL. */
static void other_events(void **state)
{
	struct rpma_conn_req *req = UNTOUCHED;
	int n = 0;

	(void)state;
	for (int type = RDMA_CM_EVENT_ADDR_RESOLVED; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
		char want[2][48];
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		mock_cm_event((enum rdma_cm_event_type)type, mock_named("id0"), "data", 4);
		assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), RPMA_E_INVAL);
		assert_ptr_equal(req, UNTOUCHED);
		snprintf(want[0], sizeof(want[0]), "rdma_get_cm_event(evch0) = ev%d", n);
		snprintf(want[1], sizeof(want[1]), "rdma_ack_cm_event(ev%d)", n++);
		CALLS(want[0], want[1]);
		ONE_ERROR(rdma_event_str((enum rdma_cm_event_type)type));
	}
}

/*
 * The calls that refuse a request. Ours rejects it and destroys its id; every release only acknowledges the
 * event, and leaks the id.
 */
static struct step arrival(void)
{
	return (struct step){"rdma_get_cm_event(evch0)", "ev0", original() ?
		"rdma_ack_cm_event(ev0)" :
		"rdma_reject(id1, NULL, 0)\nrdma_destroy_id(id1)\nrdma_ack_cm_event(ev0)", NULL};
}

static void each_call_fails(const struct step *resources, int n, uint32_t rcq, bool shared)
{
	struct step steps[16];

	steps[0] = arrival();
	memcpy(steps + 1, resources, sizeof(*resources) * (size_t)n);
	for (int failing = 1; failing <= n; failing++) {
		setup(NULL);
		struct rpma_conn_cfg *cfg = fx_cfg(10, rcq, shared, NULL);
		struct rpma_conn_req *req = UNTOUCHED;
		mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), "data", 4);
		mock_original_leaks("id1");
		fail_step(steps, failing, EIO);
		assert_int_equal(rpma_ep_next_conn_req(ep, cfg, &req), RPMA_E_PROVIDER);
		assert_ptr_equal(req, UNTOUCHED);
		UNWOUND(steps, failing, EIO);
		ONE_ERROR(strerror(EIO));
		fx_cfg_delete(&cfg);
		assert_int_equal(teardown(NULL), 0);
	}
}

static void plain_resources_fail(void **state)
{
	static const struct step steps[] = {CQ_STEPS("0", "10"), QP_STEP("id1", "cq0")};

	(void)state;
	each_call_fails(steps, 4, 0, false);
}

static void resources_with_rcq_fail(void **state)
{
	static const struct step steps[] = {CQ_STEPS("0", "10"), CQ_STEPS("1", "7"),
		QP_STEP("id1", "cq1")};

	(void)state;
	each_call_fails(steps, 7, 7, false);
}

static void resources_on_shared_channel_fail(void **state)
{
	static const struct step steps[] = {
		{"ibv_create_comp_channel(ctx)", "chan0", "ibv_destroy_comp_channel(chan0)", NULL},
		CQ_STEPS_ON("chan0", "0", "10"), CQ_STEPS_ON("chan0", "1", "7"),
		QP_STEP("id1", "cq1")};

	(void)state;
	each_call_fails(steps, 6, 7, true);
}

/* A shared channel cannot serve an SRQ whose receive CQ has a separate channel. */
static void shared_channel_and_srq_with_rcq(void **state)
{
	struct rpma_srq *srq = fx_srq(peer, 20);
	struct rpma_conn_cfg *cfg = fx_cfg(10, 0, true, srq);
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), NULL, 0);
	mock_original_leaks("id1");
	assert_int_equal(rpma_ep_next_conn_req(ep, cfg, &req), RPMA_E_INVAL);
	assert_ptr_equal(req, UNTOUCHED);
	if (original())
		CALLS("rdma_get_cm_event(evch0) = ev0", "rdma_ack_cm_event(ev0)");
	else
		CALLS("rdma_get_cm_event(evch0) = ev0", "rdma_reject(id1, NULL, 0)",
			"rdma_destroy_id(id1)", "rdma_ack_cm_event(ev0)");
	ONE_ERROR("");
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
}

/* A complete request is rejected because its event cannot be acknowledged. */
static void acknowledgement_fails(void **state)
{
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), "data", 4);
	mock_original_leaks("id1");
	mock_fail("rdma_ack_cm_event", 1, EINVAL);
	assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), RPMA_E_PROVIDER);
	assert_null(req); /* the one failure that writes the output */
	const char *const want[] = {"rdma_get_cm_event(evch0) = ev0",
		"ibv_create_comp_channel(ctx) = chan0",
		"ibv_create_cq(ctx, 10, NULL, chan0, 0) = cq0",
		"ibv_req_notify_cq(cq0, 0)",
		QP_LINE("id1", "cq0", "8") " = qp0",
		"rdma_ack_cm_event(ev0) ! EINVAL",
		"rdma_destroy_qp(id1)",
		"ibv_destroy_cq(cq0)",
		"ibv_destroy_comp_channel(chan0)",
		"rdma_reject(id1, NULL, 0)",
		original() ? NULL : "rdma_destroy_id(id1)", NULL};
	expect_calls_at(want, __FILE__, __LINE__);
	ONE_ERROR(strerror(EINVAL));
}

/* Ours rejects a request for which no channel can be created. */
static void own_channel_fails(void **state)
{
	static const struct step steps[] = {
		{"rdma_get_cm_event(evch0)", "ev0", "rdma_reject(id1, NULL, 0)\nrdma_destroy_id(id1)", NULL},
		CQ_STEPS("0", "10"), QP_STEP("id1", "cq0"),
		{"rdma_ack_cm_event(ev0)", NULL, NULL, NULL},
		{"rdma_create_event_channel()", "evch1", "rdma_destroy_event_channel(evch1)", NULL},
		{"rdma_migrate_id(id1, evch1)", NULL, NULL, NULL}};

	(void)state;
	for (int failing = 6; failing < 8 && !original(); failing++) {
		setup(NULL);
		struct rpma_conn_req *req = UNTOUCHED;
		mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), "data", 4);
		fail_step(steps, failing, EMFILE);
		assert_int_equal(rpma_ep_next_conn_req(ep, NULL, &req), RPMA_E_PROVIDER);
		assert_ptr_equal(req, UNTOUCHED);
		UNWOUND(steps, failing, EMFILE);
		ONE_ERROR(strerror(EMFILE));
		assert_int_equal(teardown(NULL), 0);
	}
}

#define EP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EP_TEST(no_event),
		EP_TEST(no_event_non_blocking),
		EP_TEST(get_event_fails),
		EP_TEST(other_events),
		cmocka_unit_test(plain_resources_fail),
		cmocka_unit_test(resources_with_rcq_fail),
		cmocka_unit_test(resources_on_shared_channel_fail),
		EP_TEST(shared_channel_and_srq_with_rcq),
		EP_TEST(acknowledgement_fails),
		cmocka_unit_test(own_channel_fails),
	};

	return cmocka_run_group_tests_name("ep-next_conn_req-fail", tests, NULL, NULL);
}
