/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * rpma_utils_get_ibv_context: the choice of RPMA_PROVIDER. Software RDMA does not call libibverbs or
 * librdmacm, which print errors on stderr if there is no device.
 */

#include <dirent.h>

#include "fixture.h"

static void not_a_provider(void **state)
{
	static const char *const values[] = {"nonsense", "Soft", "rdma_core", "soft "};
	struct ibv_context *ctx = UNTOUCHED;

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		mock_untracked_begin();
		setenv("RPMA_PROVIDER", values[i], 1);
		mock_untracked_end();
		assert_int_equal(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL,
				&ctx), RPMA_E_PROVIDER);
		assert_ptr_equal(ctx, UNTOUCHED);
		ONE_ERROR("RPMA_PROVIDER");
	}
	NO_CALLS();
}

static void rdma_core(void **state)
{
	struct ibv_context *ctx = NULL;

	(void)state;
	mock_untracked_begin();
	setenv("RPMA_PROVIDER", "rdma-core", 1);
	mock_untracked_end();
	assert_int_equal(rpma_utils_get_ibv_context(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx), 0);
	assert_ptr_equal(ctx, CTX);
	mock_forget_calls();
}

static struct ibv_context *served_by_software(void)
{
	struct ibv_context *ctx = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_mr_local *mr = NULL;
	static char memory[64];

	assert_int_equal(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx), 0);
	assert_non_null(ctx);
	assert_ptr_not_equal(ctx, CTX);
	assert_int_equal(rpma_peer_new(ctx, &peer), 0);
	assert_int_equal(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_WRITE_DST, &mr), 0);
	assert_int_equal(rpma_mr_dereg(&mr), 0);
	assert_int_equal(rpma_peer_delete(&peer), 0);
	NO_CALLS();
	mock_forget_log();
	return ctx;
}

/* Objects belong to the provider of their context; the next context may be of another provider. */
static void soft(void **state)
{
	struct rpma_peer *peer = NULL;

	(void)state;
	setenv("RPMA_PROVIDER", "soft", 1);
	struct ibv_context *ctx = served_by_software();
	assert_ptr_equal(ctx, served_by_software());
	assert_int_equal(rpma_peer_new(CTX, &peer), 0);
	CALLS("ibv_query_device_ex(ctx, NULL)", "ibv_alloc_pd(ctx) = pd0");
	fx_peer_delete(&peer);
}

static bool machine_has_device(void)
{
	DIR *dir = opendir("/sys/class/infiniband_verbs");
	bool found = false;

	if (dir == NULL)
		return false;
	for (struct dirent *e; (e = readdir(dir)) != NULL;)
		found |= strncmp(e->d_name, "uverbs", 6) == 0;
	closedir(dir);
	return found;
}

/* auto: a device if there is one, otherwise software, which is logged. */
static void automatic(void **state)
{
	struct ibv_context *ctx = NULL;

	(void)state;
	setenv("RPMA_PROVIDER", "auto", 1);
	if (machine_has_device()) {
		assert_int_equal(rpma_utils_get_ibv_context(ADDR, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx), 0);
		assert_ptr_equal(ctx, CTX);
		mock_forget_calls();
		return;
	}
	assert_int_equal(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx), 0);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_NOTICE), 1);
	served_by_software();
	unsetenv("RPMA_PROVIDER");
	served_by_software();
}

/* The software device of the process remains. */
static int stays(void **state)
{
	mock_setup(state);
	mock_ignore_memory();
	return 0;
}

#define SOFT_TEST(f) cmocka_unit_test_setup_teardown(f, stays, mock_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(not_a_provider),
		MOCK_TEST(rdma_core),
		SOFT_TEST(soft),
		SOFT_TEST(automatic),
	};

	return cmocka_run_group_tests_name("utils-provider-ours", tests, NULL, NULL);
}
