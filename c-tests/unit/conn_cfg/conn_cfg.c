/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_conn_cfg_new, _delete, and every setter and getter */

#include "fixture.h"

static struct rpma_conn_cfg *cfg;

static int setup(void **state)
{
	mock_setup(state);
	return rpma_conn_cfg_new(&cfg);
}

static int teardown(void **state)
{
	assert_int_equal(rpma_conn_cfg_delete(&cfg), 0);
	return mock_teardown(state);
}

/* The four sizes behave in the same way. */
static const struct size {
	int (*set)(struct rpma_conn_cfg *cfg, uint32_t size);
	int (*get)(const struct rpma_conn_cfg *cfg, uint32_t *size);
	uint32_t initial;
} sizes[] = {
	{rpma_conn_cfg_set_cq_size, rpma_conn_cfg_get_cq_size, 10},
	{rpma_conn_cfg_set_sq_size, rpma_conn_cfg_get_sq_size, 10},
	{rpma_conn_cfg_set_rq_size, rpma_conn_cfg_get_rq_size, 10},
	{rpma_conn_cfg_set_rcq_size, rpma_conn_cfg_get_rcq_size, 0},
};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void new_and_delete(void **state)
{
	struct rpma_conn_cfg *other = NULL;

	(void)state;
	assert_int_equal(rpma_conn_cfg_new(NULL), RPMA_E_INVAL);
	assert_int_equal(rpma_conn_cfg_delete(NULL), RPMA_E_INVAL);
	assert_int_equal(rpma_conn_cfg_delete(&other), 0);
	assert_null(other);
	assert_int_equal(rpma_conn_cfg_new(&other), 0);
	assert_non_null(other);
	assert_ptr_not_equal(other, cfg);
	assert_int_equal(rpma_conn_cfg_delete(&other), 0);
	assert_null(other);
	NO_CALLS();
	SILENT();
}

static void defaults(void **state)
{
	uint32_t size = 77;
	int timeout = 77;
	bool shared = true;
	struct rpma_srq *srq = UNTOUCHED;

	(void)state;
	for (int i = 0; i < SIZES; i++) {
		assert_int_equal(sizes[i].get(cfg, &size), 0);
		assert_int_equal(size, sizes[i].initial);
	}
	assert_int_equal(rpma_conn_cfg_get_timeout(cfg, &timeout), 0);
	assert_int_equal(timeout, RPMA_DEFAULT_TIMEOUT_MS);
	assert_int_equal(rpma_conn_cfg_get_compl_channel(cfg, &shared), 0);
	assert_false(shared);
	assert_int_equal(rpma_conn_cfg_get_srq(cfg, &srq), 0);
	assert_null(srq);
}

/* Each value is independent, and may be any number. */
static void sizes_are_independent(void **state)
{
	static const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, UINT32_MAX};
	uint32_t size;

	(void)state;
	for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
		for (uint32_t i = 0; i < SIZES; i++)
			assert_int_equal(sizes[i].set(cfg, values[v] - i), 0);
		for (uint32_t i = 0; i < SIZES; i++) {
			assert_int_equal(sizes[i].get(cfg, &size), 0);
			assert_int_equal(size, (uint32_t)(values[v] - i));
		}
	}
}

static void timeout(void **state)
{
	int ms;

	(void)state;
	assert_int_equal(rpma_conn_cfg_set_timeout(cfg, 0), 0);
	assert_int_equal(rpma_conn_cfg_get_timeout(cfg, &ms), 0);
	assert_int_equal(ms, 0);
	assert_int_equal(rpma_conn_cfg_set_timeout(cfg, INT32_MAX), 0);
	assert_int_equal(rpma_conn_cfg_get_timeout(cfg, &ms), 0);
	assert_int_equal(ms, INT32_MAX);
	assert_int_equal(rpma_conn_cfg_set_timeout(cfg, -1), RPMA_E_INVAL);
	assert_int_equal(rpma_conn_cfg_set_timeout(cfg, INT32_MIN), RPMA_E_INVAL);
	assert_int_equal(rpma_conn_cfg_get_timeout(cfg, &ms), 0);
	assert_int_equal(ms, INT32_MAX);
}

/* A bool is one byte that is 0 or 1. */
static void shared_channel(void **state)
{
	unsigned char out[2] = {0xee, 0xee};

	(void)state;
	assert_int_equal(rpma_conn_cfg_set_compl_channel(cfg, true), 0);
	assert_int_equal(rpma_conn_cfg_get_compl_channel(cfg, (bool *)out), 0);
	assert_int_equal(out[0], 1);
	assert_int_equal(out[1], 0xee);
	assert_int_equal(rpma_conn_cfg_set_compl_channel(cfg, false), 0);
	assert_int_equal(rpma_conn_cfg_get_compl_channel(cfg, (bool *)out), 0);
	assert_int_equal(out[0], 0);
	assert_int_equal(out[1], 0xee);
}

/* The configuration does not own the SRQ; it cannot be removed again. */
static void srq(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_srq *mine = fx_srq(peer, 0), *got = NULL;

	(void)state;
	assert_int_equal(rpma_conn_cfg_set_srq(cfg, mine), 0);
	assert_int_equal(rpma_conn_cfg_get_srq(cfg, &got), 0);
	assert_ptr_equal(got, mine);
	assert_int_equal(rpma_conn_cfg_set_srq(cfg, NULL), RPMA_E_INVAL);
	assert_int_equal(rpma_conn_cfg_get_srq(cfg, &got), 0);
	assert_ptr_equal(got, mine);
	NO_CALLS();
	SILENT();
	fx_srq_delete(&mine);
	fx_peer_delete(&peer);
}

#define CFG_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CFG_TEST(new_and_delete),
		CFG_TEST(defaults),
		CFG_TEST(sizes_are_independent),
		CFG_TEST(timeout),
		CFG_TEST(shared_channel),
		CFG_TEST(srq),
	};

	return cmocka_run_group_tests_name("conn_cfg", tests, NULL, NULL);
}
