/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_utils_ibv_context_is_odp_capable */

#include "fixture.h"

/* Capable: general support, and both reads and writes of reliable connections. */
static void capabilities(void **state)
{
	enum { R = IBV_ODP_SUPPORT_READ, W = IBV_ODP_SUPPORT_WRITE, S = IBV_ODP_SUPPORT_SEND };
	static const struct { uint64_t general; uint32_t rc; int capable; } rows[] = {
		{0, 0, 0},
		{IBV_ODP_SUPPORT, 0, 0},
		{IBV_ODP_SUPPORT, R, 0},
		{IBV_ODP_SUPPORT, W, 0},
		{IBV_ODP_SUPPORT, R | W, 1},
		{IBV_ODP_SUPPORT, S | R | W, 1},
		{IBV_ODP_SUPPORT, S, 0},
		{IBV_ODP_SUPPORT_IMPLICIT, R | W, 0},
		{IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, UINT32_MAX, 1},
		{0, UINT32_MAX, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int capable = 77;
		mock_odp(rows[i].general, rows[i].rc);
		assert_int_equal(rpma_utils_ibv_context_is_odp_capable(CTX, &capable), 0);
		assert_int_equal(capable, rows[i].capable);
		CALLS("ibv_query_device_ex(ctx, NULL)");
		SILENT();
	}
}

/* The output is cleared first: the only function that writes it and then fails. */
static void query_fails(void **state)
{
	int capable = 77;

	(void)state;
	mock_fail("ibv_query_device_ex", 1, EIO);
	assert_int_equal(rpma_utils_ibv_context_is_odp_capable(CTX, &capable), RPMA_E_PROVIDER);
	assert_int_equal(capable, 0);
	CALLS("ibv_query_device_ex(ctx, NULL) ! EIO");
	ONE_ERROR(strerror(EIO));
}

static void context_not_extended(void **state)
{
	int capable = 77;

	(void)state;
	CTX->abi_compat = NULL;
	mock_odp(IBV_ODP_SUPPORT, UINT32_MAX);
	assert_int_equal(rpma_utils_ibv_context_is_odp_capable(CTX, &capable), 0);
	assert_int_equal(capable, 0);
	CALLS("ibv_query_device(ctx)");
}

/* An operation that fails with EOPNOTSUPP counts as missing. */
static void query_not_supported(void **state)
{
	int capable = 77;

	(void)state;
	mock_fail("ibv_query_device_ex", 1, EOPNOTSUPP);
	assert_int_equal(rpma_utils_ibv_context_is_odp_capable(CTX, &capable), 0);
	assert_int_equal(capable, 0);
	CALLS("ibv_query_device_ex(ctx, NULL) ! EOPNOTSUPP", "ibv_query_device(ctx)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(capabilities),
		MOCK_TEST(query_fails),
		MOCK_TEST(context_not_extended),
		MOCK_TEST(query_not_supported),
	};

	return cmocka_run_group_tests_name("utils-odp", tests, NULL, NULL);
}
