/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * rpma_mr_remote_from_descriptor: a descriptor whose range exceeds the address space. The original accepts it
 * (it validates only the usage); ours refuses values that no registration can produce.
 */

#include "fixture.h"

static void wraps(void **state)
{
	static const struct { uint64_t addr, size; int ret; } rows[] = {
		{UINT64_MAX, 0, 0},
		{UINT64_MAX, 1, 0}, /* the last byte of the address space */
		{UINT64_MAX, 2, RPMA_E_INVAL},
		{0, UINT64_MAX, 0},
		{1, UINT64_MAX, 0},
		{2, UINT64_MAX, RPMA_E_INVAL},
		{UINT64_MAX, UINT64_MAX, RPMA_E_INVAL},
		{0x8000000000000000, 0x8000000000000000, 0},
		{0x8000000000000000, 0x8000000000000001, RPMA_E_INVAL},
	};
	unsigned char desc[21];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rpma_mr_remote *mr = UNTOUCHED;
		fx_descriptor(desc, rows[i].addr, rows[i].size, 1, 1);
		assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &mr), rows[i].ret);
		if (rows[i].ret == 0) {
			fx_remote_delete(&mr);
		} else {
			assert_ptr_equal(mr, UNTOUCHED);
			ONE_ERROR("");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(wraps),
	};

	return cmocka_run_group_tests_name("mr-remote-ours", tests, NULL, NULL);
}
