/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * rpma_mr_remote_from_descriptor, rpma_mr_remote_get_size,
 * rpma_mr_remote_get_flush_type, rpma_mr_remote_delete
 */

#include "fixture.h"

static void too_short(void **state)
{
	struct rpma_mr_remote *mr = UNTOUCHED;
	unsigned char desc[21];

	(void)state;
	fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 1);
	for (size_t size = 0; size < 21; size++) {
		assert_int_equal(rpma_mr_remote_from_descriptor(desc, size, &mr), RPMA_E_INVAL);
		assert_ptr_equal(mr, UNTOUCHED);
		ONE_ERROR("");
	}
	NO_CALLS();
}

static void no_usage(void **state)
{
	struct rpma_mr_remote *mr = UNTOUCHED;
	unsigned char desc[21];

	(void)state;
	fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 0);
	assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &mr), RPMA_E_INVAL);
	assert_ptr_equal(mr, UNTOUCHED);
	ONE_ERROR("");
	NO_CALLS();
}

/* The size is checked first: otherwise there would be two lines. */
static void too_short_and_no_usage(void **state)
{
	struct rpma_mr_remote *mr = UNTOUCHED;
	unsigned char desc[21] = {0};

	(void)state;
	assert_int_equal(rpma_mr_remote_from_descriptor(desc, 20, &mr), RPMA_E_INVAL);
	ONE_ERROR("");
}

static void every_usage(void **state)
{
	unsigned char buf[32];

	(void)state;
	for (int usage = 1; usage <= 0xff; usage++) {
		unsigned char *desc = buf + usage % 8;
		struct rpma_mr_remote *mr = NULL;
		size_t size = 0;
		int type = -1;
		fx_descriptor(desc, 1, 0xfedcba98 + (uint64_t)usage, REMOTE_RKEY, (uint8_t)usage);
		assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &mr), 0);
		assert_int_equal(rpma_mr_remote_get_size(mr, &size), 0);
		assert_int_equal(size, 0xfedcba98 + (uint64_t)usage);
		assert_int_equal(rpma_mr_remote_get_flush_type(mr, &type), 0);
		assert_int_equal(type, usage & (16 | 32));
		assert_int_equal(rpma_mr_remote_delete(&mr), 0);
		assert_null(mr);
	}
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 0);
	NO_CALLS();
}

/* Descriptors may be sent in larger fields: bytes after the first 21 are ignored. */
static void longer(void **state)
{
	unsigned char desc[64];
	struct rpma_mr_remote *mr = NULL;
	size_t size = 0;

	(void)state;
	memset(desc, 0xff, sizeof(desc));
	fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 1);
	for (size_t n = 21; n <= sizeof(desc); n++) {
		assert_int_equal(rpma_mr_remote_from_descriptor(desc, n, &mr), 0);
		assert_int_equal(rpma_mr_remote_get_size(mr, &size), 0);
		assert_int_equal(size, REMOTE_SIZE);
		fx_remote_delete(&mr);
	}
}

/* The descriptor is copied. */
static void source_may_change(void **state)
{
	unsigned char desc[21];
	struct rpma_mr_remote *mr = NULL;
	size_t size = 0;

	(void)state;
	fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 1);
	assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &mr), 0);
	memset(desc, 0, sizeof(desc));
	assert_int_equal(rpma_mr_remote_get_size(mr, &size), 0);
	assert_int_equal(size, REMOTE_SIZE);
	fx_remote_delete(&mr);
}

/* Creation is logged at DEBUG. */
static void logged(void **state)
{
	unsigned char desc[21];
	struct rpma_mr_remote *mr = NULL;

	(void)state;
	fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 1);
	assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &mr), 0);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_DEBUG), 1);
	fx_remote_delete(&mr);
}

static void size_zero(void **state)
{
	unsigned char desc[21];
	struct rpma_mr_remote *mr = NULL;
	size_t size = 1;

	(void)state;
	fx_descriptor(desc, 0, 0, 0, 1);
	assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &mr), 0);
	assert_int_equal(rpma_mr_remote_get_size(mr, &size), 0);
	assert_int_equal(size, 0);
	fx_remote_delete(&mr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(too_short),
		MOCK_TEST(no_usage),
		MOCK_TEST(too_short_and_no_usage),
		MOCK_TEST(every_usage),
		MOCK_TEST(longer),
		MOCK_TEST(source_may_change),
		MOCK_TEST(logged),
		MOCK_TEST(size_zero),
	};

	return cmocka_run_group_tests_name("mr-remote", tests, NULL, NULL);
}
