/* SPDX-License-Identifier: BSD-3-Clause */

/* Every NULL and zero argument of the functions that the last releases do not have. */

#include "null.h"

RPMA_REMOVED_FUNCTIONS(NULL_DECLARE)

NULL_TEST(rpma_conn_completion_get)
{
	INVAL(rpma_conn_completion_get(NULL, OUT(struct rpma_completion *)));
	INVAL(rpma_conn_completion_get(d_conn, NULL));
	INVAL(rpma_conn_completion_get(NULL, NULL));
}

NULL_TEST(rpma_conn_completion_wait)
{
	INVAL(rpma_conn_completion_wait(NULL));
}

NULL_TEST(rpma_conn_get_completion_fd)
{
	INVAL(rpma_conn_get_completion_fd(NULL, OUT(int *)));
	INVAL(rpma_conn_get_completion_fd(d_conn, NULL));
	INVAL(rpma_conn_get_completion_fd(NULL, NULL));
}

NULL_TEST(rpma_cq_get_completion)
{
	INVAL(rpma_cq_get_completion(NULL, OUT(struct rpma_completion *)));
	INVAL(rpma_cq_get_completion(n_cq, NULL));
	INVAL(rpma_cq_get_completion(NULL, NULL));
}

NULL_TEST(rpma_write_atomic)
{
	INVAL(rpma_write_atomic(NULL, d_remote, 0, d_mr, 0, ALWAYS, CONTEXT));
	INVAL(rpma_write_atomic(d_conn, NULL, 0, d_mr, 0, ALWAYS, CONTEXT));
	INVAL(rpma_write_atomic(d_conn, d_remote, 0, NULL, 0, ALWAYS, CONTEXT));
	INVAL(rpma_write_atomic(d_conn, d_remote, 0, d_mr, 0, 0, CONTEXT));
	INVAL(rpma_write_atomic(NULL, NULL, 0, NULL, 0, 0, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {RPMA_REMOVED_FUNCTIONS(NULL_ROW)};

	return cmocka_run_group_tests_name("null-removed-ours", tests, NULL, NULL);
}
