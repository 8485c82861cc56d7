/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_apply_remote_peer_cfg: decides whether a flush to persistence is allowed */

#include "fixture.h"

static struct rpma_peer *peer;
static struct rpma_conn *conn;
static struct rpma_mr_remote *mr;
static struct rpma_peer_cfg *pcfg;

static int setup(void **state)
{
	mock_setup(state);
	peer = fx_peer();
	conn = fx_conn(peer, NULL);
	mr = fx_remote(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
	assert_int_equal(rpma_peer_cfg_new(&pcfg), 0);
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(rpma_peer_cfg_delete(&pcfg), 0);
	fx_remote_delete(&mr);
	fx_conn_delete(&conn);
	fx_peer_delete(&peer);
	return mock_teardown(state);
}

static int persist(struct rpma_conn *c)
{
	int ret = rpma_flush(c, mr, 0, 8, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, NULL);

	fx_forget();
	return ret;
}

static void not_before_it_is_applied(void **state)
{
	(void)state;
	assert_int_equal(persist(conn), RPMA_E_NOSUPP);
}

static void on_and_off(void **state)
{
	(void)state;
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true), 0);
	assert_int_equal(rpma_conn_apply_remote_peer_cfg(conn, pcfg), 0);
	NO_CALLS();
	SILENT();
	assert_int_equal(persist(conn), 0);
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, false), 0);
	/* the connection has its own copy */
	assert_int_equal(persist(conn), 0);
	assert_int_equal(rpma_conn_apply_remote_peer_cfg(conn, pcfg), 0);
	assert_int_equal(persist(conn), RPMA_E_NOSUPP);
}

static void one_connection_only(void **state)
{
	struct rpma_conn *other = fx_conn(peer, NULL);

	(void)state;
	assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true), 0);
	assert_int_equal(rpma_conn_apply_remote_peer_cfg(conn, pcfg), 0);
	assert_int_equal(persist(other), RPMA_E_NOSUPP);
	assert_int_equal(persist(conn), 0);
	fx_conn_delete(&other);
}

#define CONN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CONN_TEST(not_before_it_is_applied),
		CONN_TEST(on_and_off),
		CONN_TEST(one_connection_only),
	};

	return cmocka_run_group_tests_name("conn-apply_remote_peer_cfg", tests, NULL, NULL);
}
