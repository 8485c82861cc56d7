/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_srq_new, rpma_srq_delete, rpma_srq_get_rcq */

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

static struct rpma_srq_cfg *srq_cfg(uint32_t rq, uint32_t rcq)
{
	struct rpma_srq_cfg *cfg = NULL;

	assert_int_equal(rpma_srq_cfg_new(&cfg), 0);
	assert_int_equal(rpma_srq_cfg_set_rq_size(cfg, rq), 0);
	assert_int_equal(rpma_srq_cfg_set_rcq_size(cfg, rcq), 0);
	return cfg;
}

static void defaults(void **state)
{
	struct rpma_srq *srq = NULL;

	(void)state;
	assert_int_equal(rpma_srq_new(peer, NULL, &srq), 0);
	assert_non_null(srq);
	CALLS("ibv_create_srq(pd0, NULL, 20, 1, 0) = srq0",
		"ibv_create_comp_channel(ctx) = chan0",
		"ibv_create_cq(ctx, 20, NULL, chan0, 0) = cq0",
		"ibv_req_notify_cq(cq0, 0)");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	assert_int_equal(rpma_srq_delete(&srq), 0);
	assert_null(srq);
	CALLS("ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)", "ibv_destroy_srq(srq0)");
	SILENT();
}

static void configured(void **state)
{
	struct rpma_srq_cfg *cfg = srq_cfg(55, 66);
	struct rpma_srq *srq = NULL;
	struct rpma_cq *cq = NULL;
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(rpma_srq_new(peer, cfg, &srq), 0);
	CALLS("ibv_create_srq(pd0, NULL, 55, 1, 0) = srq0",
		"ibv_create_comp_channel(ctx) = chan0",
		"ibv_create_cq(ctx, 66, NULL, chan0, 0) = cq0",
		"ibv_req_notify_cq(cq0, 0)");
	assert_int_equal(rpma_srq_get_rcq(srq, &cq), 0);
	assert_int_equal(rpma_cq_get_wc(cq, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
	CALLS("poll_cq(cq0, 1) = 0");
	fx_srq_delete(&srq);
	assert_int_equal(rpma_srq_cfg_delete(&cfg), 0);
}

static void without_rcq(void **state)
{
	struct rpma_srq_cfg *cfg = srq_cfg(1, 0);
	struct rpma_srq *srq = NULL;
	struct rpma_cq *cq = UNTOUCHED;

	(void)state;
	assert_int_equal(rpma_srq_new(peer, cfg, &srq), 0);
	CALLS("ibv_create_srq(pd0, NULL, 1, 1, 0) = srq0");
	assert_int_equal(rpma_srq_get_rcq(srq, &cq), 0);
	assert_null(cq);
	assert_int_equal(rpma_srq_delete(&srq), 0);
	CALLS("ibv_destroy_srq(srq0)");
	assert_int_equal(rpma_srq_cfg_delete(&cfg), 0);
}

static void extreme_sizes(void **state)
{
	struct rpma_srq_cfg *cfg = srq_cfg(UINT32_MAX, UINT32_MAX);
	struct rpma_srq *srq = NULL;

	(void)state;
	assert_int_equal(rpma_srq_new(peer, cfg, &srq), 0);
	CALLS("ibv_create_srq(pd0, NULL, 4294967295, 1, 0) = srq0",
		"ibv_create_comp_channel(ctx) = chan0",
		"ibv_create_cq(ctx, 2147483647, NULL, chan0, 0) = cq0",
		"ibv_req_notify_cq(cq0, 0)");
	fx_srq_delete(&srq);
	assert_int_equal(rpma_srq_cfg_delete(&cfg), 0);
}

static void each_call_fails(void **state)
{
	static const struct step steps[] = {
		{"ibv_create_srq(pd0, NULL, 20, 1, 0)", "srq0", "ibv_destroy_srq(srq0)", NULL},
		CQ_STEPS("0", "20"),
	};

	(void)state;
	for (int failing = 0; failing < 4; failing++) {
		setup(NULL);
		struct rpma_srq *srq = UNTOUCHED;
		fail_step(steps, failing, EIO);
		assert_int_equal(rpma_srq_new(peer, NULL, &srq), RPMA_E_PROVIDER);
		assert_ptr_equal(srq, UNTOUCHED);
		UNWOUND(steps, failing, EIO);
		ONE_ERROR(strerror(EIO));
		assert_int_equal(teardown(NULL), 0);
	}
}

static void each_delete_step_fails(void **state)
{
	static const char *const fns[] = {"ibv_destroy_cq", "ibv_destroy_comp_channel",
		"ibv_destroy_srq"};
	static const char *const calls[] = {"ibv_destroy_cq(cq0)", "ibv_destroy_comp_channel(chan0)",
		"ibv_destroy_srq(srq0)"};

	(void)state;
	for (int failing = 0; failing < 3; failing++) {
		const char *want[4] = {calls[0], calls[1], calls[2], NULL};
		char failed[64];
		setup(NULL);
		struct rpma_srq *srq = fx_srq(peer, 20);
		mock_fail(fns[failing], 1, EBUSY);
		assert_int_equal(rpma_srq_delete(&srq), RPMA_E_PROVIDER);
		assert_null(srq);
		snprintf(failed, sizeof(failed), "%s ! EBUSY", calls[failing]);
		want[failing] = failed;
		expect_calls_at(want, __FILE__, __LINE__);
		ONE_ERROR(strerror(EBUSY));
		assert_int_equal(teardown(NULL), 0);
	}
}

#define SRQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SRQ_TEST(defaults),
		SRQ_TEST(configured),
		SRQ_TEST(without_rcq),
		SRQ_TEST(extreme_sizes),
		cmocka_unit_test(each_call_fails),
		cmocka_unit_test(each_delete_step_fails),
	};

	return cmocka_run_group_tests_name("srq-new", tests, NULL, NULL);
}
