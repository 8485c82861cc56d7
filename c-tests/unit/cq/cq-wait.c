/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_cq_wait, rpma_cq_get_fd */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_conn_cfg *cfg;
static struct rpma_conn *conn, *shared;
static struct rpma_cq *cq, *rcq, *shared_cq, *shared_rcq;

/* cq0 chan0, cq1 chan1; cq2 and cq3 on chan2 */
static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	cfg = fx_cfg(10, 10, false, NULL);
	conn = fx_conn(peer, cfg);
	rpma_conn_cfg_set_compl_channel(cfg, true);
	shared = fx_conn(peer, cfg);
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	assert_int_equal(rpma_conn_get_rcq(conn, &rcq), 0);
	assert_int_equal(rpma_conn_get_cq(shared, &shared_cq), 0);
	assert_int_equal(rpma_conn_get_rcq(shared, &shared_rcq), 0);
	return 0;
}

static int teardown(void **state)
{
	fx_conn_delete(&shared);
	fx_conn_delete(&conn);
	fx_cfg_delete(&cfg);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

static void wait_success(void **state)
{
	(void)state;
	mock_cq_event(mock_named("cq0"));
	assert_int_equal(rpma_cq_wait(cq), 0);
	CALLS("ibv_get_cq_event(chan0) = cq0", "ibv_ack_cq_events(cq0, 1)",
		"ibv_req_notify_cq(cq0, 0)");
	mock_cq_event(mock_named("cq1"));
	assert_int_equal(rpma_cq_wait(rcq), 0);
	CALLS("ibv_get_cq_event(chan1) = cq1", "ibv_ack_cq_events(cq1, 1)",
		"ibv_req_notify_cq(cq1, 0)");
	SILENT();
}

/* One event per call: further events are for the next call. */
static void one_event_a_call(void **state)
{
	(void)state;
	mock_cq_event(mock_named("cq0"));
	mock_cq_event(mock_named("cq0"));
	assert_int_equal(rpma_cq_wait(cq), 0);
	CALLS("ibv_get_cq_event(chan0) = cq0", "ibv_ack_cq_events(cq0, 1)",
		"ibv_req_notify_cq(cq0, 0)");
	assert_int_equal(rpma_cq_wait(cq), 0);
	CALLS("ibv_get_cq_event(chan0) = cq0", "ibv_ack_cq_events(cq0, 1)",
		"ibv_req_notify_cq(cq0, 0)");
}

static void shared_channel(void **state)
{
	(void)state;
	assert_int_equal(rpma_cq_wait(shared_cq), RPMA_E_SHARED_CHANNEL);
	assert_int_equal(rpma_cq_wait(shared_rcq), RPMA_E_SHARED_CHANNEL);
	NO_CALLS();
	SILENT();
}

static void no_event(void **state)
{
	static const int errs[] = {EAGAIN, EIO, EINTR, ENODEV};

	(void)state;
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		mock_fail("ibv_get_cq_event", 1, errs[i]);
		assert_int_equal(rpma_cq_wait(cq), RPMA_E_NO_COMPLETION);
		mock_forget_calls();
		SILENT();
	}
}

/* The event is acknowledged before the arming that fails. */
static void arming_fails(void **state)
{
	(void)state;
	mock_cq_event(mock_named("cq0"));
	mock_fail("ibv_req_notify_cq", 1, EIO);
	assert_int_equal(rpma_cq_wait(cq), RPMA_E_PROVIDER);
	CALLS("ibv_get_cq_event(chan0) = cq0", "ibv_ack_cq_events(cq0, 1)",
		"ibv_req_notify_cq(cq0, 0) ! EIO");
	ONE_ERROR(strerror(EIO));
}

static void get_fd(void **state)
{
	int fd = -7;

	(void)state;
	assert_int_equal(rpma_cq_get_fd(cq, &fd), 0);
	assert_int_equal(fd, 1000);
	assert_int_equal(rpma_cq_get_fd(rcq, &fd), 0);
	assert_int_equal(fd, 1001);
	/* a shared channel has one descriptor */
	assert_int_equal(rpma_cq_get_fd(shared_cq, &fd), 0);
	assert_int_equal(fd, 1002);
	fd = -7;
	assert_int_equal(rpma_cq_get_fd(shared_rcq, &fd), 0);
	assert_int_equal(fd, 1002);
	NO_CALLS();
	SILENT();
}

#define CQ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CQ_TEST(wait_success),
		CQ_TEST(one_event_a_call),
		CQ_TEST(shared_channel),
		CQ_TEST(no_event),
		CQ_TEST(arming_fails),
		CQ_TEST(get_fd),
	};

	return cmocka_run_group_tests_name("cq-wait", tests, NULL, NULL);
}
