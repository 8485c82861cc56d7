/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Every allocation of every constructor fails in turn: RPMA_E_NOMEM, without leaks. Logging is off, so that
 * only the objects allocate.
 */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_ep *ep;
static struct rpma_conn_cfg *cfg;
static struct rpma_conn *conn;

/* A constructor, and the state of its output if it succeeds nevertheless. */
struct attempt {
	const char *name;
	int (*make)(void **out);
	int (*unmake)(void **made);
	enum { KEEPS, CLEARS, EITHER } output; /* some constructors clear theirs */
};

static int make_peer(void **out)
{
	return rpma_peer_new(CTX, (struct rpma_peer **)out);
}

static int unmake_peer(void **made)
{
	return rpma_peer_delete((struct rpma_peer **)made);
}

static int make_mr(void **out)
{
	return rpma_mr_reg(peer, LOCAL_ADDR, LOCAL_SIZE, 1, (struct rpma_mr_local **)out);
}

static int unmake_mr(void **made)
{
	return rpma_mr_dereg((struct rpma_mr_local **)made);
}

static int make_remote(void **out)
{
	unsigned char desc[21];

	fx_descriptor(desc, 1, 1, 1, 1);
	return rpma_mr_remote_from_descriptor(desc, 21, (struct rpma_mr_remote **)out);
}

static int unmake_remote(void **made)
{
	return rpma_mr_remote_delete((struct rpma_mr_remote **)made);
}

static int make_peer_cfg(void **out)
{
	return rpma_peer_cfg_new((struct rpma_peer_cfg **)out);
}

static int make_peer_cfg_from_descriptor(void **out)
{
	return rpma_peer_cfg_from_descriptor("\1", 1, (struct rpma_peer_cfg **)out);
}

static int unmake_peer_cfg(void **made)
{
	return rpma_peer_cfg_delete((struct rpma_peer_cfg **)made);
}

static int make_conn_cfg(void **out)
{
	return rpma_conn_cfg_new((struct rpma_conn_cfg **)out);
}

static int unmake_conn_cfg(void **made)
{
	return rpma_conn_cfg_delete((struct rpma_conn_cfg **)made);
}

static int make_srq_cfg(void **out)
{
	return rpma_srq_cfg_new((struct rpma_srq_cfg **)out);
}

static int unmake_srq_cfg(void **made)
{
	return rpma_srq_cfg_delete((struct rpma_srq_cfg **)made);
}

static int make_srq(void **out)
{
	return rpma_srq_new(peer, NULL, (struct rpma_srq **)out);
}

static int unmake_srq(void **made)
{
	return rpma_srq_delete((struct rpma_srq **)made);
}

static int make_ep(void **out)
{
	return rpma_ep_listen(peer, ADDR, PORT, (struct rpma_ep **)out);
}

static int unmake_ep(void **made)
{
	return rpma_ep_shutdown((struct rpma_ep **)made);
}

static int make_req(void **out)
{
	return rpma_conn_req_new(peer, ADDR, PORT, cfg, (struct rpma_conn_req **)out);
}

static int unmake_req(void **made)
{
	return rpma_conn_req_delete((struct rpma_conn_req **)made);
}

static int make_incoming(void **out)
{
	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), "data", 4);
	mock_original_leaks("id1");
	return rpma_ep_next_conn_req(ep, cfg, (struct rpma_conn_req **)out);
}

static int make_conn(void **out)
{
	struct rpma_conn_req *req = NULL;

	mock_fail_alloc_pause(true);
	assert_int_equal(rpma_conn_req_new(peer, ADDR, PORT, cfg, &req), 0);
	mock_fail_alloc_pause(false);
	int ret = rpma_conn_req_connect(&req, NULL, (struct rpma_conn **)out);
	assert_null(req);
	return ret;
}

static int make_accepted(void **out)
{
	struct rpma_conn_req *req = NULL;

	mock_fail_alloc_pause(true);
	mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), "data", 4);
	mock_original_leaks("id1");
	assert_int_equal(rpma_ep_next_conn_req(ep, cfg, &req), 0);
	mock_fail_alloc_pause(false);
	int ret = rpma_conn_req_connect(&req, NULL, (struct rpma_conn **)out);
	assert_null(req);
	return ret;
}

static int unmake_conn(void **made)
{
	return rpma_conn_delete((struct rpma_conn **)made);
}

static void every_allocation_fails(const struct attempt *a)
{
	for (int nth = 1;; nth++) {
		void *out = UNTOUCHED;
		mock_setup(NULL);
		rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED);
		peer = fx_peer();
		ep = fx_ep(peer);
		cfg = fx_cfg(10, 10, true, NULL);
		mock_fail_alloc(nth);
		int ret = a->make(&out);
		bool reached = mock_alloc_failed();
		mock_fail_alloc(0);
		if (reached && ret == 0) {
			print_error("%s: allocation %d failed without effect\n", a->name, nth);
			fail();
		}
		if (ret == 0) {
			assert_true(nth > 1); /* something was allocated at all */
			assert_int_equal(a->unmake(&out), 0);
		} else {
			assert_int_equal(ret, RPMA_E_NOMEM);
			assert_true((out == UNTOUCHED && a->output != CLEARS) ||
					(out == NULL && a->output != KEEPS));
		}
		fx_cfg_delete(&cfg);
		fx_ep_shutdown(&ep);
		fx_peer_delete(&peer);
		assert_int_equal(mock_teardown(NULL), 0);
		if (ret == 0)
			return;
	}
}

#define OOM_TEST(name, make, unmake, output) \
static void name(void **state) \
{ \
	static const struct attempt a = {#name, make, unmake, output}; \
	(void)state; \
	every_allocation_fails(&a); \
}

OOM_TEST(peer_new, make_peer, unmake_peer, KEEPS)
OOM_TEST(mr_reg, make_mr, unmake_mr, KEEPS)
OOM_TEST(mr_remote_from_descriptor, make_remote, unmake_remote, KEEPS)
OOM_TEST(peer_cfg_new, make_peer_cfg, unmake_peer_cfg, KEEPS)
OOM_TEST(peer_cfg_from_descriptor, make_peer_cfg_from_descriptor, unmake_peer_cfg, KEEPS)
OOM_TEST(conn_cfg_new, make_conn_cfg, unmake_conn_cfg, CLEARS)
OOM_TEST(srq_cfg_new, make_srq_cfg, unmake_srq_cfg, CLEARS)
OOM_TEST(srq_new, make_srq, unmake_srq, EITHER)
OOM_TEST(ep_listen, make_ep, unmake_ep, KEEPS)
OOM_TEST(conn_req_new, make_req, unmake_req, KEEPS)
OOM_TEST(ep_next_conn_req, make_incoming, unmake_req, KEEPS)
OOM_TEST(conn_req_connect_active, make_conn, unmake_conn, KEEPS)
OOM_TEST(conn_req_connect_passive, make_accepted, unmake_conn, KEEPS)

/* The private data cannot be copied: the event is acknowledged nevertheless. */
static void conn_next_event(void **state)
{
	enum rpma_conn_event event = (enum rpma_conn_event)77;

	(void)state;
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED);
	peer = fx_peer();
	conn = fx_conn(peer, NULL);
	mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id0"), "data", 4);
	mock_fail_alloc(1);
	assert_int_equal(rpma_conn_next_event(conn, &event), RPMA_E_NOMEM);
	assert_true(mock_alloc_failed());
	assert_int_equal(event, 77);
	CALLS("rdma_get_cm_event(evch0) = ev0", "rdma_ack_cm_event(ev0)");
	fx_conn_delete(&conn);
	fx_peer_delete(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peer_new),
		cmocka_unit_test(mr_reg),
		cmocka_unit_test(mr_remote_from_descriptor),
		cmocka_unit_test(peer_cfg_new),
		cmocka_unit_test(peer_cfg_from_descriptor),
		cmocka_unit_test(conn_cfg_new),
		cmocka_unit_test(srq_cfg_new),
		cmocka_unit_test(srq_new),
		cmocka_unit_test(ep_listen),
		cmocka_unit_test(conn_req_new),
		cmocka_unit_test(ep_next_conn_req),
		cmocka_unit_test(conn_req_connect_active),
		cmocka_unit_test(conn_req_connect_passive),
		MOCK_TEST(conn_next_event),
	};

	return cmocka_run_group_tests_name("out-of-memory", tests, NULL, NULL);
}
