/* SPDX-License-Identifier: BSD-3-Clause */

/* The value of every constant, at compile time; and the sizes and layouts that programs depend on. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <librpma.h>

#define CONSTANTS(ROW) \
	ROW(LIBRPMA_H, 1) \
	ROW(RPMA_W_WAIT_FOR_COMPLETION, 1) \
	ROW(RPMA_E_UNKNOWN, -100000) \
	ROW(RPMA_E_NOSUPP, -100001) \
	ROW(RPMA_E_PROVIDER, -100002) \
	ROW(RPMA_E_NOMEM, -100003) \
	ROW(RPMA_E_INVAL, -100004) \
	ROW(RPMA_E_NO_COMPLETION, -100005) \
	ROW(RPMA_E_NO_EVENT, -100006) \
	ROW(RPMA_E_AGAIN, -100007) \
	ROW(RPMA_DEFAULT_TIMEOUT_MS, 1000) \
	ROW(RPMA_MR_USAGE_READ_SRC, 1) \
	ROW(RPMA_MR_USAGE_READ_DST, 2) \
	ROW(RPMA_MR_USAGE_WRITE_SRC, 4) \
	ROW(RPMA_MR_USAGE_WRITE_DST, 8) \
	ROW(RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, 16) \
	ROW(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, 32) \
	ROW(RPMA_MR_USAGE_SEND, 64) \
	ROW(RPMA_MR_USAGE_RECV, 128) \
	ROW(RPMA_F_COMPLETION_ON_ERROR, 1) \
	ROW(RPMA_F_COMPLETION_ALWAYS, 3) \
	ROW(RPMA_ATOMIC_WRITE_ALIGNMENT, 8) \
	ROW(RPMA_UTIL_IBV_CONTEXT_LOCAL, 0) \
	ROW(RPMA_UTIL_IBV_CONTEXT_REMOTE, 1) \
	ROW(RPMA_CONN_UNDEFINED, -1) \
	ROW(RPMA_CONN_ESTABLISHED, 0) \
	ROW(RPMA_CONN_CLOSED, 1) \
	ROW(RPMA_CONN_LOST, 2) \
	ROW(RPMA_FLUSH_TYPE_PERSISTENT, 0) \
	ROW(RPMA_FLUSH_TYPE_VISIBILITY, 1) \
	ROW(RPMA_LOG_DISABLED, -1) \
	ROW(RPMA_LOG_LEVEL_FATAL, 0) \
	ROW(RPMA_LOG_LEVEL_ERROR, 1) \
	ROW(RPMA_LOG_LEVEL_WARNING, 2) \
	ROW(RPMA_LOG_LEVEL_NOTICE, 3) \
	ROW(RPMA_LOG_LEVEL_INFO, 4) \
	ROW(RPMA_LOG_LEVEL_DEBUG, 5) \
	ROW(RPMA_LOG_THRESHOLD, 0) \
	ROW(RPMA_LOG_THRESHOLD_AUX, 1) \
	ROW(RPMA_LOG_THRESHOLD_MAX, 2) \
	ROW(RPMA_CONN_REJECTED, 3) \
	ROW(RPMA_CONN_UNREACHABLE, 4) \
	ROW(RPMA_E_SHARED_CHANNEL, -100008) \
	ROW(RPMA_E_NOT_SHARED_CHNL, -100009)

#define ASSERT_ROW(name, value) _Static_assert((name) == (value), #name);
CONSTANTS(ASSERT_ROW)

/* Macros can be tested by the preprocessor. */
#if RPMA_E_UNKNOWN != -100000 || RPMA_MR_USAGE_RECV != 128 || RPMA_F_COMPLETION_ALWAYS != 3
#error "constants must be usable in conditions"
#endif
#if LIBRPMA_H + 0 != 1
#error "the include guard is LIBRPMA_H, defined as 1"
#endif

/* Enumerators that must be consecutive. */
_Static_assert(sizeof(enum rpma_util_ibv_context_type) == 4, "enum");
_Static_assert(sizeof(enum rpma_conn_event) == 4, "enum");
_Static_assert(sizeof(enum rpma_flush_type) == 4, "enum");
_Static_assert(sizeof(enum rpma_log_level) == 4, "enum");
_Static_assert(sizeof(enum rpma_log_threshold) == 4, "enum");
_Static_assert((enum rpma_conn_event)-1 < 0, "signed");
_Static_assert((enum rpma_log_level)-1 < 0, "signed");
_Static_assert((enum rpma_flush_type)-1 > 0, "unsigned");
_Static_assert((enum rpma_log_threshold)-1 > 0, "unsigned");
_Static_assert((enum rpma_util_ibv_context_type)-1 > 0, "unsigned");

#define FIELD(type, field, at, bytes) \
	_Static_assert(offsetof(struct type, field) == (at), #type "." #field); \
	_Static_assert(sizeof(((struct type *)0)->field) == (bytes), #type "." #field)

_Static_assert(sizeof(struct rpma_conn_private_data) == 16, "size");
_Static_assert(_Alignof(struct rpma_conn_private_data) == 8, "alignment");
FIELD(rpma_conn_private_data, ptr, 0, 8);
FIELD(rpma_conn_private_data, len, 8, 1);
_Static_assert(_Generic(((struct rpma_conn_private_data *)0)->ptr, void *: 1, default: 0), "ptr");
_Static_assert(_Generic(((struct rpma_conn_private_data *)0)->len, uint8_t: 1, default: 0), "len");

/* A struct of libibverbs that is part of this interface because of rpma_cq_get_wc. */
_Static_assert(sizeof(struct ibv_wc) == 48, "size");
FIELD(ibv_wc, wr_id, 0, 8);
FIELD(ibv_wc, status, 8, 4);
FIELD(ibv_wc, opcode, 12, 4);
FIELD(ibv_wc, byte_len, 20, 4);
FIELD(ibv_wc, imm_data, 24, 4);
FIELD(ibv_wc, wc_flags, 36, 4);

/* A function type, not a pointer to one. */
static rpma_log_function a_log_function;
_Static_assert(_Generic(&a_log_function, void (*)(enum rpma_log_level, const char *, int,
		const char *, const char *, ...): 1, default: 0), "rpma_log_function");

static void a_log_function(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...)
{
	(void)level, (void)file_name, (void)line_no, (void)function_name, (void)message_format;
}

static void constants(void **state)
{
#define VALUE_ROW(name, value) {#name, (name), (value)},
	static const struct {
		const char *name;
		long is, must_be;
	} rows[] = {CONSTANTS(VALUE_ROW)};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(rows[i].is, rows[i].must_be);
	assert_null(RPMA_LOG_USE_DEFAULT_FUNCTION);
}

/* A function of this type can be passed to the function that sets it. */
static void log_function_type(void **state)
{
	(void)state;
	assert_int_equal(rpma_log_set_function(a_log_function), 0);
	assert_int_equal(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constants),
		cmocka_unit_test(log_function_type),
	};

	return cmocka_run_group_tests_name("abi-constants", tests, NULL, NULL);
}
