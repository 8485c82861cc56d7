/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_peer_delete */

#include "fixture.h"

static void success(void **state)
{
	struct rpma_peer *peer = fx_peer();

	(void)state;
	assert_int_equal(rpma_peer_delete(&peer), 0);
	assert_null(peer);
	CALLS("ibv_dealloc_pd(pd0)");
	SILENT();
}

/* The peer is deleted nevertheless, so the pointer is cleared. */
static void dealloc_fails(void **state)
{
	struct rpma_peer *peer = fx_peer();

	(void)state;
	mock_fail("ibv_dealloc_pd", 1, EBUSY);
	assert_int_equal(rpma_peer_delete(&peer), RPMA_E_PROVIDER);
	assert_null(peer);
	CALLS("ibv_dealloc_pd(pd0) ! EBUSY");
	ONE_ERROR(strerror(EBUSY));
	assert_int_equal(rpma_peer_delete(&peer), 0);
	NO_CALLS();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(success),
		MOCK_TEST(dealloc_fails),
	};

	return cmocka_run_group_tests_name("peer-delete", tests, NULL, NULL);
}
