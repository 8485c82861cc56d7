/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_mr_dereg */

#include "fixture.h"

static void success(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_mr_local *mr = fx_mr(peer, RPMA_MR_USAGE_SEND);

	(void)state;
	assert_int_equal(rpma_mr_dereg(&mr), 0);
	assert_null(mr);
	CALLS("ibv_dereg_mr(mr0)");
	SILENT();
	fx_peer_delete(&peer);
}

/* The pointer is cleared and the memory freed even if the provider fails. */
static void fails(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_mr_local *mr = fx_mr(peer, RPMA_MR_USAGE_SEND);

	(void)state;
	mock_fail("ibv_dereg_mr", 1, EINVAL);
	assert_int_equal(rpma_mr_dereg(&mr), RPMA_E_PROVIDER);
	assert_null(mr);
	CALLS("ibv_dereg_mr(mr0) ! EINVAL");
	ONE_ERROR(strerror(EINVAL));
	fx_peer_delete(&peer);
}

/* Each region is deregistered by its own handle. */
static void two_regions(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_mr_local *a = fx_mr(peer, RPMA_MR_USAGE_SEND);
	struct rpma_mr_local *b = fx_mr(peer, RPMA_MR_USAGE_RECV);

	(void)state;
	assert_int_equal(rpma_mr_dereg(&a), 0);
	CALLS("ibv_dereg_mr(mr0)");
	assert_int_equal(rpma_mr_dereg(&b), 0);
	CALLS("ibv_dereg_mr(mr1)");
	fx_peer_delete(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(success),
		MOCK_TEST(fails),
		MOCK_TEST(two_regions),
	};

	return cmocka_run_group_tests_name("mr-dereg", tests, NULL, NULL);
}
