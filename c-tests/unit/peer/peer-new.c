/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_peer_new */

#include "fixture.h"

static void success(void **state)
{
	struct rpma_peer *peer = NULL;

	(void)state;
	assert_int_equal(rpma_peer_new(CTX, &peer), 0);
	assert_non_null(peer);
	CALLS("ibv_query_device_ex(ctx, NULL)",
		"ibv_alloc_pd(ctx) = pd0");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	assert_int_equal(rpma_peer_delete(&peer), 0);
}

/* Two peers on one device have separate protection domains. */
static void two_peers(void **state)
{
	struct rpma_peer *a = NULL, *b = NULL;

	(void)state;
	assert_int_equal(rpma_peer_new(CTX, &a), 0);
	assert_int_equal(rpma_peer_new(CTX, &b), 0);
	assert_ptr_not_equal(a, b);
	CALLS("ibv_query_device_ex(ctx, NULL)", "ibv_alloc_pd(ctx) = pd0",
		"ibv_query_device_ex(ctx, NULL)", "ibv_alloc_pd(ctx) = pd1");
	fx_peer_delete(&a);
	fx_peer_delete(&b);
}

/* A context that is not extended is queried with ibv_query_device(). */
static void context_not_extended(void **state)
{
	struct rpma_peer *peer = NULL;

	(void)state;
	CTX->abi_compat = NULL;
	assert_int_equal(rpma_peer_new(CTX, &peer), 0);
	CALLS("ibv_query_device(ctx)",
		"ibv_alloc_pd(ctx) = pd0");
	fx_peer_delete(&peer);
}

static void query_fails(void **state)
{
	struct rpma_peer *peer = UNTOUCHED;

	(void)state;
	mock_fail("ibv_query_device_ex", 1, EIO);
	assert_int_equal(rpma_peer_new(CTX, &peer), RPMA_E_PROVIDER);
	assert_ptr_equal(peer, UNTOUCHED);
	CALLS("ibv_query_device_ex(ctx, NULL) ! EIO");
	ONE_ERROR(strerror(EIO));
}

static void alloc_pd_fails(void **state)
{
	struct rpma_peer *peer = UNTOUCHED;

	(void)state;
	mock_fail("ibv_alloc_pd", 1, EPERM);
	assert_int_equal(rpma_peer_new(CTX, &peer), RPMA_E_PROVIDER);
	assert_ptr_equal(peer, UNTOUCHED);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 1);
	CALLS("ibv_query_device_ex(ctx, NULL)",
		"ibv_alloc_pd(ctx) ! EPERM");
}

/* The only errno of a provider with a separate error code. */
static void alloc_pd_out_of_memory(void **state)
{
	struct rpma_peer *peer = UNTOUCHED;

	(void)state;
	mock_fail("ibv_alloc_pd", 1, ENOMEM);
	assert_int_equal(rpma_peer_new(CTX, &peer), RPMA_E_NOMEM);
	assert_ptr_equal(peer, UNTOUCHED);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	CALLS("ibv_query_device_ex(ctx, NULL)",
		"ibv_alloc_pd(ctx) ! ENOMEM");
}

/* errno is cleared before the call, so a failure without errno is UNKNOWN. */
static void alloc_pd_without_errno(void **state)
{
	struct rpma_peer *peer = UNTOUCHED;

	(void)state;
	errno = EACCES;
	mock_fail("ibv_alloc_pd", 1, 0);
	assert_int_equal(rpma_peer_new(CTX, &peer), RPMA_E_UNKNOWN);
	assert_ptr_equal(peer, UNTOUCHED);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	CALLS("ibv_query_device_ex(ctx, NULL)",
		"ibv_alloc_pd(ctx) ! 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(success),
		MOCK_TEST(two_peers),
		MOCK_TEST(context_not_extended),
		MOCK_TEST(query_fails),
		MOCK_TEST(alloc_pd_fails),
		MOCK_TEST(alloc_pd_out_of_memory),
		MOCK_TEST(alloc_pd_without_errno),
	};

	return cmocka_run_group_tests_name("peer-new", tests, NULL, NULL);
}
