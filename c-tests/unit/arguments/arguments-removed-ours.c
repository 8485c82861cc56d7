/* SPDX-License-Identifier: BSD-3-Clause */

/* Arguments that are NULL, zero or out of range: the functions that the latest releases lack. */

#include "arguments.h"

/* The two forms of the function in releases, with one name: completions of 24 and of 32 bytes. */
int completion_get_24(struct rpma_conn *conn, struct rpma_completion *cmpl);
int completion_get_32(struct rpma_conn *conn, struct rpma_completion *cmpl);
__asm__(".symver completion_get_24, rpma_conn_completion_get@LIBRPMA_1.0");
__asm__(".symver completion_get_32, rpma_conn_completion_get@LIBRPMA_0.10");

#define COMPLETION_GET(fn) \
	{ROW("rpma_conn_completion_get", fn, NIL, OUT)}, {ROW("rpma_conn_completion_get", fn, CONN, NIL)}, \
	{ROW("rpma_conn_completion_get", fn, NIL, NIL)}
#define UNALIGNED(offset) REFUSED(rpma_write_atomic, CONN, REMOTE, V(offset), MR, V(0), V(ALWAYS), TOKEN)

static const struct row rows[] = {
	COMPLETION_GET(rpma_conn_completion_get),
	COMPLETION_GET(completion_get_24),
	COMPLETION_GET(completion_get_32),
	REFUSED(rpma_conn_completion_wait, NIL),
	TWO_POINTERS(rpma_conn_get_completion_fd, CONN),
	TWO_POINTERS(rpma_cq_get_completion, CQ),
	REFUSED(rpma_write_atomic, NIL, REMOTE, V(0), MR, V(0), V(ALWAYS), TOKEN),
	REFUSED(rpma_write_atomic, CONN, NIL, V(0), MR, V(0), V(ALWAYS), TOKEN),
	REFUSED(rpma_write_atomic, CONN, REMOTE, V(0), NIL, V(0), V(ALWAYS), TOKEN),
	REFUSED(rpma_write_atomic, CONN, REMOTE, V(0), MR, V(0), V(0), TOKEN),
	REFUSED(rpma_write_atomic, NIL, NIL, V(0), NIL, V(0), V(0), NIL),
	UNALIGNED(1), UNALIGNED(2), UNALIGNED(3), UNALIGNED(4), UNALIGNED(5), UNALIGNED(6), UNALIGNED(7),
};

int main(void)
{
	return RUN_ROWS("arguments-removed-ours", RPMA_REMOVED_FUNCTIONS, rows);
}
