/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_req_new: the calls, for every kind of configuration */

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

#define LOOKUP "rdma_getaddrinfo(\"192.0.2.7\", \"7204\", active, RC, 0x106) = ai0", \
	"rdma_create_id(NULL, NULL, 0x106) = id0"
#define RESOLVE(ms) "rdma_resolve_addr(id0, ai0.src, ai0.dst, " ms ")", \
	"rdma_resolve_route(id0, " ms ")"
#define CQ_MADE(n, cqe) "ibv_create_comp_channel(ctx) = chan" n, CQ_MADE_ON("chan" n, n, cqe)
#define CQ_MADE_ON(ch, n, cqe) "ibv_create_cq(ctx, " cqe ", NULL, " ch ", 0) = cq" n, \
	"ibv_req_notify_cq(cq" n ", 0)"

static struct rpma_conn_req *request(const struct rpma_conn_cfg *cfg)
{
	struct rpma_conn_req *req = NULL;

	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), 0);
	assert_non_null(req);
	return req;
}

static void defaults(void **state)
{
	struct rpma_conn_req *req = request(NULL);

	(void)state;
	CALLS(LOOKUP, RESOLVE("1000"), CQ_MADE("0", "10"), QP_LINE("id0", "cq0", "8") " = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	assert_int_equal(rpma_conn_req_delete(&req), 0);
}

/* A new configuration is equivalent to none. */
static void fresh_configuration(void **state)
{
	struct rpma_conn_cfg *cfg = NULL;

	(void)state;
	assert_int_equal(rpma_conn_cfg_new(&cfg), 0);
	struct rpma_conn_req *req = request(cfg);
	CALLS(LOOKUP, RESOLVE("1000"), CQ_MADE("0", "10"), QP_LINE("id0", "cq0", "8") " = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
}

static void timeout_and_sizes(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(21, 0, false, NULL);

	(void)state;
	rpma_conn_cfg_set_timeout(cfg, 4321);
	rpma_conn_cfg_set_sq_size(cfg, 31);
	rpma_conn_cfg_set_rq_size(cfg, 41);
	struct rpma_conn_req *req = request(cfg);
	CALLS(LOOKUP, RESOLVE("4321"), CQ_MADE("0", "21"),
		"rdma_create_qp_ex(id0, pd0, mask 0x1, ctx NULL, cq cq0 cq0, srq NULL, wr 31 41, "
			"sge 1 1, inline 8, RC, sig_all 0) = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
}

/* Zero is passed on; sizes above INT_MAX are limited for a CQ, whose size is an int. */
static void extreme_sizes(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(UINT32_MAX, 0x80000000, false, NULL);

	(void)state;
	rpma_conn_cfg_set_timeout(cfg, 0);
	rpma_conn_cfg_set_sq_size(cfg, UINT32_MAX);
	rpma_conn_cfg_set_rq_size(cfg, 0);
	struct rpma_conn_req *req = request(cfg);
	CALLS(LOOKUP, RESOLVE("0"), CQ_MADE("0", "2147483647"), CQ_MADE("1", "2147483647"),
		"rdma_create_qp_ex(id0, pd0, mask 0x1, ctx NULL, cq cq0 cq1, srq NULL, "
			"wr 4294967295 0, sge 1 1, inline 8, RC, sig_all 0) = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
}

static void zero_cq(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(0, 0, false, NULL);

	(void)state;
	struct rpma_conn_req *req = request(cfg);
	CALLS(LOOKUP, RESOLVE("1000"), CQ_MADE("0", "0"), QP_LINE("id0", "cq0", "8") " = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
}

static void separate_receive_cq(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(12, 13, false, NULL);
	struct rpma_conn_req *req = request(cfg);

	(void)state;
	CALLS(LOOKUP, RESOLVE("1000"), CQ_MADE("0", "12"), CQ_MADE("1", "13"),
		QP_LINE("id0", "cq1", "8") " = qp0", "rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
}

static void shared_channel(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(12, 13, true, NULL);
	struct rpma_conn_req *req = request(cfg);

	(void)state;
	CALLS(LOOKUP, RESOLVE("1000"), "ibv_create_comp_channel(ctx) = chan0",
		CQ_MADE_ON("chan0", "0", "12"), CQ_MADE_ON("chan0", "1", "13"),
		QP_LINE("id0", "cq1", "8") " = qp0", "rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
}

static void shared_channel_of_one(void **state)
{
	struct rpma_conn_cfg *cfg = fx_cfg(12, 0, true, NULL);
	struct rpma_conn_req *req = request(cfg);

	(void)state;
	CALLS(LOOKUP, RESOLVE("1000"), "ibv_create_comp_channel(ctx) = chan0",
		CQ_MADE_ON("chan0", "0", "12"),
		QP_LINE("id0", "cq0", "8") " = qp0", "rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
}

/* The queue pair uses the SRQ and the SRQ's CQ for receives; the size in the configuration is ignored. */
static void srq_with_rcq(void **state)
{
	struct rpma_srq *srq = fx_srq(peer, 50);
	struct rpma_conn_cfg *cfg = fx_cfg(12, 13, false, srq);
	struct rpma_conn_req *req = request(cfg);

	(void)state;
	/* cq0 and chan0 are the SRQ's */
	CALLS(LOOKUP, RESOLVE("1000"), CQ_MADE("1", "12"),
		"rdma_create_qp_ex(id0, pd0, mask 0x1, ctx NULL, cq cq1 cq0, srq srq0, wr 10 10, "
			"sge 1 1, inline 8, RC, sig_all 0) = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	CALLS("rdma_destroy_qp(id0)", "ibv_destroy_cq(cq1)", "ibv_destroy_comp_channel(chan1)",
		"rdma_destroy_id(id0)");
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
}

static void srq_without_rcq(void **state)
{
	struct rpma_srq *srq = fx_srq(peer, 0);
	struct rpma_conn_cfg *cfg = fx_cfg(12, 13, true, srq);
	struct rpma_conn_req *req = request(cfg);

	(void)state;
	CALLS(LOOKUP, RESOLVE("1000"), "ibv_create_comp_channel(ctx) = chan0",
		CQ_MADE_ON("chan0", "0", "12"), CQ_MADE_ON("chan0", "1", "13"),
		"rdma_create_qp_ex(id0, pd0, mask 0x1, ctx NULL, cq cq0 cq1, srq srq0, wr 10 10, "
			"sge 1 1, inline 8, RC, sig_all 0) = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
}

static void srq_and_one_cq(void **state)
{
	struct rpma_srq *srq = fx_srq(peer, 0);
	struct rpma_conn_cfg *cfg = fx_cfg(12, 0, false, srq);
	struct rpma_conn_req *req = request(cfg);

	(void)state;
	CALLS(LOOKUP, RESOLVE("1000"), CQ_MADE("0", "12"),
		"rdma_create_qp_ex(id0, pd0, mask 0x1, ctx NULL, cq cq0 cq0, srq srq0, wr 10 10, "
			"sge 1 1, inline 8, RC, sig_all 0) = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(rpma_conn_req_delete(&req), 0);
	fx_cfg_delete(&cfg);
	fx_srq_delete(&srq);
}

/* A queue pair is created on a device without inline data, too. */
static void no_inline_data(void **state)
{
	struct rpma_conn_req *req = UNTOUCHED;

	(void)state;
	mock_fail("rdma_create_qp_ex", 1, EINVAL);
	if (original()) {
		assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, NULL, &req), RPMA_E_PROVIDER);
		fx_forget();
		return;
	}
	req = request(NULL);
	CALLS(LOOKUP, RESOLVE("1000"), CQ_MADE("0", "10"),
		QP_LINE("id0", "cq0", "8") " ! EINVAL",
		QP_LINE("id0", "cq0", "0") " = qp0",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	assert_int_equal(rpma_conn_req_delete(&req), 0);
}

static void success_is_logged(void **state)
{
	enum rpma_log_level level;

	(void)state;
	struct rpma_conn_req *req = request(NULL);
	const char *text = mock_last_log(&level);
	assert_non_null(text);
	assert_int_equal(level, RPMA_LOG_LEVEL_NOTICE);
	assert_non_null(strstr(text, ADDR ":" PORT));
	assert_int_equal(rpma_conn_req_delete(&req), 0);
}

/* The active side has no private data before it connects. */
static void no_private_data(void **state)
{
	struct rpma_conn_private_data got = {UNTOUCHED, 77};
	struct rpma_conn_req *req = request(NULL);

	(void)state;
	assert_int_equal(rpma_conn_req_get_private_data(req, &got), 0);
	assert_null(got.ptr);
	assert_int_equal(got.len, 0);
	assert_int_equal(rpma_conn_req_delete(&req), 0);
}

#define REQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REQ_TEST(defaults),
		REQ_TEST(fresh_configuration),
		REQ_TEST(timeout_and_sizes),
		REQ_TEST(extreme_sizes),
		REQ_TEST(zero_cq),
		REQ_TEST(separate_receive_cq),
		REQ_TEST(shared_channel),
		REQ_TEST(shared_channel_of_one),
		REQ_TEST(srq_with_rcq),
		REQ_TEST(srq_without_rcq),
		REQ_TEST(srq_and_one_cq),
		REQ_TEST(no_inline_data),
		REQ_TEST(success_is_logged),
		REQ_TEST(no_private_data),
	};

	return cmocka_run_group_tests_name("conn_req-new", tests, NULL, NULL);
}
