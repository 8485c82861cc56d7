/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_srq_cfg_new, _delete, _set_rq_size, _get_rq_size, _set_rcq_size, _get_rcq_size */

#include "fixture.h"

static void defaults(void **state)
{
	struct rpma_srq_cfg *cfg = NULL;
	uint32_t size = 77;

	(void)state;
	assert_int_equal(rpma_srq_cfg_new(&cfg), 0);
	assert_int_equal(rpma_srq_cfg_get_rq_size(cfg, &size), 0);
	assert_int_equal(size, 20);
	size = 77;
	assert_int_equal(rpma_srq_cfg_get_rcq_size(cfg, &size), 0);
	assert_int_equal(size, 20);
	assert_int_equal(rpma_srq_cfg_delete(&cfg), 0);
}

static void sizes(void **state)
{
	static const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, UINT32_MAX};
	struct rpma_srq_cfg *cfg = NULL;
	uint32_t size;

	(void)state;
	assert_int_equal(rpma_srq_cfg_new(&cfg), 0);
	for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
		assert_int_equal(rpma_srq_cfg_set_rq_size(cfg, values[v]), 0);
		assert_int_equal(rpma_srq_cfg_set_rcq_size(cfg, ~values[v]), 0);
		assert_int_equal(rpma_srq_cfg_get_rq_size(cfg, &size), 0);
		assert_int_equal(size, values[v]);
		assert_int_equal(rpma_srq_cfg_get_rcq_size(cfg, &size), 0);
		assert_int_equal(size, ~values[v]);
	}
	assert_int_equal(rpma_srq_cfg_delete(&cfg), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(defaults),
		MOCK_TEST(sizes),
	};

	return cmocka_run_group_tests_name("srq_cfg", tests, NULL, NULL);
}
