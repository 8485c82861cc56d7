/* SPDX-License-Identifier: BSD-3-Clause */

/* The prototypes of the functions that the latest releases lack; see abi-prototypes.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <librpma.h>

#include "names.h"

int rpma_conn_completion_get(struct rpma_conn *conn, struct rpma_completion *cmpl);
int rpma_conn_completion_wait(struct rpma_conn *conn);
int rpma_conn_get_completion_fd(const struct rpma_conn *conn, int *fd);
int rpma_cq_get_completion(struct rpma_cq *cq, struct rpma_completion *cmpl);
int rpma_write_atomic(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
		const struct rpma_mr_local *src, size_t src_offset, int flags, const void *op_context);

#define ROW(name) (void (*)(void))name,

static void every_function_is_there(void **state)
{
	static void (*const functions[])(void) = {RPMA_REMOVED_FUNCTIONS(ROW)};

	(void)state;
	assert_int_equal(sizeof(functions) / sizeof(functions[0]), 5);
	for (size_t i = 0; i < 5; i++)
		assert_non_null((void *)functions[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_function_is_there),
	};

	return cmocka_run_group_tests_name("abi-prototypes-ours", tests, NULL, NULL);
}
