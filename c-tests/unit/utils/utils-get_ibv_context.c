/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_utils_get_ibv_context with librdmacm */

#include "fixture.h"

#define LOCAL RPMA_UTIL_IBV_CONTEXT_LOCAL
#define REMOTE RPMA_UTIL_IBV_CONTEXT_REMOTE

static void local(void **state)
{
	struct ibv_context *ctx = NULL;

	(void)state;
	assert_int_equal(rpma_utils_get_ibv_context(ADDR, LOCAL, &ctx), 0);
	assert_ptr_equal(ctx, CTX);
	CALLS("rdma_getaddrinfo(\"192.0.2.7\", NULL, passive, RC, 0x106) = ai0",
		"rdma_create_id(NULL, NULL, 0x106) = id0",
		"rdma_bind_addr(id0, ai0.src)",
		"rdma_destroy_id(id0)",
		"rdma_freeaddrinfo(ai0)");
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
}

/* The timeout is fixed. */
static void remote(void **state)
{
	struct ibv_context *ctx = NULL;

	(void)state;
	assert_int_equal(rpma_utils_get_ibv_context(ADDR, REMOTE, &ctx), 0);
	assert_ptr_equal(ctx, CTX);
	CALLS("rdma_getaddrinfo(\"192.0.2.7\", NULL, active, RC, 0x106) = ai0",
		"rdma_create_id(NULL, NULL, 0x106) = id0",
		"rdma_resolve_addr(id0, ai0.src, ai0.dst, 1000)",
		"rdma_destroy_id(id0)",
		"rdma_freeaddrinfo(ai0)");
}

/* An address that selects no device is an error; the original gives NULL. */
static void no_device(void **state)
{
	struct ibv_context *ctx = UNTOUCHED;

	(void)state;
	mock_no_device();
	if (original()) {
		assert_int_equal(rpma_utils_get_ibv_context("0.0.0.0", LOCAL, &ctx), 0);
		assert_null(ctx);
	} else {
		assert_int_equal(rpma_utils_get_ibv_context("0.0.0.0", LOCAL, &ctx), RPMA_E_PROVIDER);
		assert_ptr_equal(ctx, UNTOUCHED);
		ONE_ERROR("0.0.0.0");
	}
	mock_forget_calls();
}

static void each_call_fails(enum rpma_util_ibv_context_type type, const char *lookup,
		const char *select)
{
	static const int errs[] = {EIO, ENOMEM, ETIMEDOUT};

	for (int failing = 0; failing < 3; failing++) {
		const struct step steps[] = {
			{lookup, "ai0", "rdma_freeaddrinfo(ai0)", NULL},
			{"rdma_create_id(NULL, NULL, 0x106)", "id0", "rdma_destroy_id(id0)", NULL},
			{select, NULL, NULL, NULL},
		};
		struct ibv_context *ctx = UNTOUCHED;
		mock_setup(NULL);
		fail_step(steps, failing, errs[failing]);
		assert_int_equal(rpma_utils_get_ibv_context(ADDR, type, &ctx), RPMA_E_PROVIDER);
		assert_ptr_equal(ctx, UNTOUCHED);
		UNWOUND(steps, failing, errs[failing]);
		ONE_ERROR(strerror(errs[failing]));
		assert_int_equal(mock_teardown(NULL), 0);
	}
}

static void each_local_call_fails(void **state)
{
	(void)state;
	each_call_fails(LOCAL, "rdma_getaddrinfo(\"192.0.2.7\", NULL, passive, RC, 0x106)",
			"rdma_bind_addr(id0, ai0.src)");
}

static void each_remote_call_fails(void **state)
{
	(void)state;
	each_call_fails(REMOTE, "rdma_getaddrinfo(\"192.0.2.7\", NULL, active, RC, 0x106)",
			"rdma_resolve_addr(id0, ai0.src, ai0.dst, 1000)");
}

/* The device is found: a failure to destroy the id is ignored. */
static void destroying_the_id_fails(void **state)
{
	struct ibv_context *ctx = NULL;

	(void)state;
	mock_fail("rdma_destroy_id", 1, EIO);
	assert_int_equal(rpma_utils_get_ibv_context(ADDR, LOCAL, &ctx), 0);
	assert_ptr_equal(ctx, CTX);
	CALLS("rdma_getaddrinfo(\"192.0.2.7\", NULL, passive, RC, 0x106) = ai0",
		"rdma_create_id(NULL, NULL, 0x106) = id0",
		"rdma_bind_addr(id0, ai0.src)",
		"rdma_destroy_id(id0) ! EIO",
		"rdma_freeaddrinfo(ai0)");
}

/* EAI_* numbers are translated; for EAI_SYSTEM, errno is. */
static void lookup_fails(void **state)
{
	struct ibv_context *ctx = UNTOUCHED;

	(void)state;
	mock_fail("rdma_getaddrinfo", 1, -2); /* EAI_NONAME */
	assert_int_equal(rpma_utils_get_ibv_context("nowhere", LOCAL, &ctx), RPMA_E_PROVIDER);
	ONE_ERROR("Name or service not known");
	mock_fail("rdma_getaddrinfo", 1, -11); /* EAI_SYSTEM */
	errno = EMFILE;
	assert_int_equal(rpma_utils_get_ibv_context("nowhere", LOCAL, &ctx), RPMA_E_PROVIDER);
	ONE_ERROR(strerror(EMFILE));
	assert_ptr_equal(ctx, UNTOUCHED);
	CALLS("rdma_getaddrinfo(\"nowhere\", NULL, passive, RC, 0x106) ! EAI-2",
		"rdma_getaddrinfo(\"nowhere\", NULL, passive, RC, 0x106) ! EAI-11");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(local),
		MOCK_TEST(remote),
		MOCK_TEST(no_device),
		cmocka_unit_test(each_local_call_fails),
		cmocka_unit_test(each_remote_call_fails),
		MOCK_TEST(destroying_the_id_fails),
		MOCK_TEST(lookup_fails),
	};

	return cmocka_run_group_tests_name("utils-get_ibv_context", tests, NULL, NULL);
}
