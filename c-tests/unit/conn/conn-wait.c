/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_wait */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_conn_cfg *cfg;
static struct rpma_conn *conn;
static struct rpma_cq *cq, *rcq;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	cfg = fx_cfg(10, 10, true, NULL);
	conn = fx_conn(peer, cfg);
	assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
	assert_int_equal(rpma_conn_get_rcq(conn, &rcq), 0);
	return 0;
}

static int teardown(void **state)
{
	fx_conn_delete(&conn);
	fx_cfg_delete(&cfg);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

static void channel_not_shared(void **state)
{
	struct rpma_conn *plain = fx_conn(peer, NULL);
	struct rpma_cq *got = UNTOUCHED;
	bool is_rcq = true;

	(void)state;
	assert_int_equal(rpma_conn_wait(plain, 0, &got, &is_rcq), RPMA_E_NOT_SHARED_CHNL);
	assert_ptr_equal(got, UNTOUCHED);
	assert_true(is_rcq);
	NO_CALLS();
	SILENT();
	fx_conn_delete(&plain);
}

static void main_cq(void **state)
{
	struct rpma_cq *got = NULL;
	bool is_rcq = true;

	(void)state;
	mock_cq_event(mock_named("cq0"));
	assert_int_equal(rpma_conn_wait(conn, 0, &got, &is_rcq), 0);
	assert_ptr_equal(got, cq);
	assert_false(is_rcq);
	CALLS("ibv_get_cq_event(chan0) = cq0", "ibv_ack_cq_events(cq0, 1)",
		"ibv_req_notify_cq(cq0, 0)");
	SILENT();
}

static void receive_cq(void **state)
{
	struct rpma_cq *got = NULL;
	bool is_rcq = false;

	(void)state;
	mock_cq_event(mock_named("cq1"));
	assert_int_equal(rpma_conn_wait(conn, 0, &got, &is_rcq), 0);
	assert_ptr_equal(got, rcq);
	assert_true(is_rcq);
	CALLS("ibv_get_cq_event(chan0) = cq1", "ibv_ack_cq_events(cq1, 1)",
		"ibv_req_notify_cq(cq1, 0)");
}

/* The flag is optional, and `flags` is ignored. */
static void without_is_rcq(void **state)
{
	struct rpma_cq *got = NULL;

	(void)state;
	mock_cq_event(mock_named("cq1"));
	assert_int_equal(rpma_conn_wait(conn, -1, &got, NULL), 0);
	assert_ptr_equal(got, rcq);
	mock_cq_event(mock_named("cq0"));
	assert_int_equal(rpma_conn_wait(conn, RPMA_F_COMPLETION_ALWAYS, &got, NULL), 0);
	assert_ptr_equal(got, cq);
	mock_forget_calls();
}

static void shared_channel_of_one(void **state)
{
	struct rpma_conn_cfg *one_cfg = fx_cfg(10, 0, true, NULL);
	struct rpma_conn *one = fx_conn(peer, one_cfg);
	struct rpma_cq *got = NULL, *want = NULL;
	bool is_rcq = true;

	(void)state;
	assert_int_equal(rpma_conn_get_cq(one, &want), 0);
	mock_cq_event(mock_named("cq2"));
	assert_int_equal(rpma_conn_wait(one, 0, &got, &is_rcq), 0);
	assert_ptr_equal(got, want);
	assert_false(is_rcq);
	fx_conn_delete(&one);
	fx_cfg_delete(&one_cfg);
}

static void no_event(void **state)
{
	static const int errs[] = {EAGAIN, EIO, EINTR};
	struct rpma_cq *got = UNTOUCHED;
	bool is_rcq = true;

	(void)state;
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		mock_fail("ibv_get_cq_event", 1, errs[i]);
		assert_int_equal(rpma_conn_wait(conn, 0, &got, &is_rcq), RPMA_E_NO_COMPLETION);
		assert_ptr_equal(got, UNTOUCHED);
		assert_true(is_rcq);
		mock_forget_calls();
		SILENT();
	}
}

/* Ours acknowledges the event; otherwise destroying that CQ would block forever. */
static void unknown_cq(void **state)
{
	struct ibv_cq *unrelated = ibv_create_cq(CTX, 1, NULL, NULL, 0);
	struct rpma_cq *got = UNTOUCHED;
	bool is_rcq = true;

	(void)state;
	mock_forget_calls();
	mock_cq_event(unrelated);
	assert_int_equal(rpma_conn_wait(conn, 0, &got, &is_rcq), RPMA_E_UNKNOWN);
	assert_ptr_equal(got, UNTOUCHED);
	assert_true(is_rcq);
	if (original()) {
		CALLS("ibv_get_cq_event(chan0) = cq2");
		ibv_ack_cq_events(unrelated, 1);
	} else {
		CALLS("ibv_get_cq_event(chan0) = cq2", "ibv_ack_cq_events(cq2, 1)");
	}
	ONE_ERROR("");
	ibv_destroy_cq(unrelated);
	mock_forget_calls();
}

static void arming_fails(void **state)
{
	struct rpma_cq *got = UNTOUCHED;
	bool is_rcq = false;

	(void)state;
	mock_cq_event(mock_named("cq1"));
	mock_fail("ibv_req_notify_cq", 1, EIO);
	assert_int_equal(rpma_conn_wait(conn, 0, &got, &is_rcq), RPMA_E_PROVIDER);
	assert_null(got);
	assert_true(is_rcq);
	CALLS("ibv_get_cq_event(chan0) = cq1", "ibv_ack_cq_events(cq1, 1)",
		"ibv_req_notify_cq(cq1, 0) ! EIO");
	ONE_ERROR(strerror(EIO));
}

#define WAIT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WAIT_TEST(channel_not_shared),
		WAIT_TEST(main_cq),
		WAIT_TEST(receive_cq),
		WAIT_TEST(without_is_rcq),
		WAIT_TEST(shared_channel_of_one),
		WAIT_TEST(no_event),
		WAIT_TEST(unknown_cq),
		WAIT_TEST(arming_fails),
	};

	return cmocka_run_group_tests_name("conn-wait", tests, NULL, NULL);
}
