/* SPDX-License-Identifier: BSD-3-Clause */

/* The constants and the struct of the completion calls of 0.9.0 to 0.11.0. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <librpma.h>

#define CONSTANTS(ROW) \
	ROW(RPMA_OP_READ, 0) \
	ROW(RPMA_OP_WRITE, 1) \
	ROW(RPMA_OP_FLUSH, 2) \
	ROW(RPMA_OP_SEND, 3) \
	ROW(RPMA_OP_RECV, 4) \
	ROW(RPMA_OP_RECV_RDMA_WITH_IMM, 5)

#define ASSERT_ROW(name, value) _Static_assert((name) == (value), #name);
CONSTANTS(ASSERT_ROW)

_Static_assert(sizeof(enum rpma_op) == 4, "enum");
_Static_assert((enum rpma_op)-1 > 0, "unsigned");

#define FIELD(field, at, bytes) \
	_Static_assert(offsetof(struct rpma_completion, field) == (at), #field); \
	_Static_assert(sizeof(((struct rpma_completion *)0)->field) == (bytes), #field)

/* The form of 0.10.0; 0.9.0 ends after op_status. */
_Static_assert(sizeof(struct rpma_completion) == 32, "size");
_Static_assert(_Alignof(struct rpma_completion) == 8, "alignment");
FIELD(op_context, 0, 8);
FIELD(op, 8, 4);
FIELD(byte_len, 12, 4);
FIELD(op_status, 16, 4);
FIELD(flags, 20, 4);
FIELD(imm, 24, 4);

static void types(void **state)
{
	struct rpma_completion c = {0};

	(void)state;
	assert_true(_Generic(c.op_context, void *: 1, default: 0));
	assert_true(_Generic(c.op, enum rpma_op: 1, default: 0));
	assert_true(_Generic(c.byte_len, uint32_t: 1, default: 0));
	assert_true(_Generic(c.op_status, enum ibv_wc_status: 1, default: 0));
	assert_true(_Generic(c.flags, unsigned: 1, default: 0));
	assert_true(_Generic(c.imm, uint32_t: 1, default: 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types),
	};

	return cmocka_run_group_tests_name("abi-constants-ours", tests, NULL, NULL);
}
