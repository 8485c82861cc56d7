/* SPDX-License-Identifier: BSD-3-Clause */

/* rpma_log_set_function, rpma_log_set_threshold, rpma_log_get_threshold */

#include "fixture.h"

/* Lines at known levels. */
static void log_error_line(void)
{
	struct rpma_mr_remote *mr = NULL;
	char desc[1] = {0};

	assert_int_equal(rpma_mr_remote_from_descriptor(desc, 1, &mr), RPMA_E_INVAL);
}

static void log_info_line(void)
{
	struct rpma_peer_cfg *pcfg = NULL;
	char desc[1] = {0};

	assert_int_equal(rpma_peer_cfg_from_descriptor(desc, 1, &pcfg), 0);
	assert_int_equal(rpma_peer_cfg_delete(&pcfg), 0);
}

static void log_debug_line(void)
{
	struct rpma_mr_remote *mr = fx_remote(1);

	fx_remote_delete(&mr);
}

/* First: the thresholds before any is set. */
static void initial_thresholds(void **state)
{
	enum rpma_log_level level = (enum rpma_log_level)77;

	(void)state;
	assert_int_equal(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level), 0);
	assert_int_equal(level, RPMA_LOG_LEVEL_WARNING);
	assert_int_equal(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level), 0);
	assert_int_equal(level, RPMA_LOG_DISABLED);
}

static void set_and_get(void **state)
{
	enum rpma_log_level main_level, aux_level;

	(void)state;
	for (int m = RPMA_LOG_DISABLED; m <= RPMA_LOG_LEVEL_DEBUG; m++) {
		for (int a = RPMA_LOG_DISABLED; a <= RPMA_LOG_LEVEL_DEBUG; a++) {
			assert_int_equal(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)m), 0);
			assert_int_equal(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX,
					(enum rpma_log_level)a), 0);
			assert_int_equal(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &main_level), 0);
			assert_int_equal(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &aux_level), 0);
			assert_int_equal(main_level, m);
			assert_int_equal(aux_level, a);
		}
	}
}

/* Only the main threshold selects the lines for a function of the application. */
static void threshold_filters(void **state)
{
	static const struct { int threshold, error, info, debug; } rows[] = {
		{RPMA_LOG_DISABLED, 0, 0, 0},
		{RPMA_LOG_LEVEL_FATAL, 0, 0, 0},
		{RPMA_LOG_LEVEL_ERROR, 1, 0, 0},
		{RPMA_LOG_LEVEL_WARNING, 1, 0, 0},
		{RPMA_LOG_LEVEL_NOTICE, 1, 0, 0},
		{RPMA_LOG_LEVEL_INFO, 1, 1, 0},
		{RPMA_LOG_LEVEL_DEBUG, 1, 1, 1},
	};

	(void)state;
	for (int aux = RPMA_LOG_DISABLED; aux <= RPMA_LOG_LEVEL_DEBUG; aux++) {
		rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, (enum rpma_log_level)aux);
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)rows[i].threshold);
			mock_forget_log();
			log_error_line();
			assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), rows[i].error);
			log_info_line();
			assert_int_equal(mock_logged(RPMA_LOG_LEVEL_INFO), rows[i].info);
			unsigned char desc[21];
			struct rpma_mr_remote *mr = NULL;
			fx_descriptor(desc, 1, 1, 1, 1);
			assert_int_equal(rpma_mr_remote_from_descriptor(desc, 21, &mr), 0);
			assert_int_equal(mock_logged(RPMA_LOG_LEVEL_DEBUG), rows[i].debug);
			fx_remote_delete(&mr);
		}
	}
}

static int other_calls;

static void other_function(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...)
{
	(void)level, (void)file_name, (void)line_no, (void)function_name, (void)message_format;
	other_calls++;
	errno = EXDEV; /* must not appear */
}

static void function_is_replaced(void **state)
{
	(void)state;
	assert_int_equal(rpma_log_set_function(other_function), 0);
	log_error_line();
	assert_int_equal(other_calls, 1);
	SILENT();
	assert_int_equal(rpma_log_set_function(mock_log_function), 0);
	log_error_line();
	assert_int_equal(other_calls, 1);
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_ERROR), 1);
}

/* The arguments of the function: the place in the source, and a format whose text is one line. */
static enum rpma_log_level seen_level;
static char seen_file[256], seen_function[256], seen_text[2048];
static int seen_line;

static void keeping_function(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...)
{
	va_list ap;

	seen_level = level;
	seen_line = line_no;
	snprintf(seen_file, sizeof(seen_file), "%s", file_name);
	snprintf(seen_function, sizeof(seen_function), "%s", function_name);
	va_start(ap, message_format);
	vsnprintf(seen_text, sizeof(seen_text), message_format, ap);
	va_end(ap);
	assert_int_equal(message_format[strlen(message_format) - 1] == '\n' ||
			seen_text[strlen(seen_text) - 1] == '\n', 1);
}

static void arguments(void **state)
{
	(void)state;
	assert_int_equal(rpma_log_set_function(keeping_function), 0);
	log_error_line();
	assert_int_equal(seen_level, RPMA_LOG_LEVEL_ERROR);
	assert_true(seen_line > 0);
	assert_true(strlen(seen_file) > 0);
	assert_true(strlen(seen_function) > 0);
	assert_null(strpbrk(seen_function, " :(\n"));
	assert_true(strlen(seen_text) > 5);
	assert_ptr_equal(strchr(seen_text, '\n'), seen_text + strlen(seen_text) - 1);
}

/* Texts from outside are never used as a format. */
static void percent_signs(void **state)
{
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = NULL;

	(void)state;
	assert_int_equal(rpma_log_set_function(keeping_function), 0);
	assert_int_equal(rpma_ep_listen(peer, "%s%n%d", "%x", &ep), 0);
	assert_int_equal(seen_level, RPMA_LOG_LEVEL_NOTICE);
	assert_non_null(strstr(seen_text, "%s%n%d:%x"));
	assert_int_equal(rpma_ep_shutdown(&ep), 0);
	fx_peer_delete(&peer);
}

/* Longer than a line may be: truncated, and still one line. */
static void long_text(void **state)
{
	static char addr[5000];
	struct rpma_peer *peer = fx_peer();
	struct rpma_ep *ep = NULL;

	(void)state;
	memset(addr, 'a', sizeof(addr) - 1);
	assert_int_equal(rpma_ep_listen(peer, addr, PORT, &ep), 0);
	/* mock_log_function reports a line without a newline */
	assert_int_equal(mock_logged(RPMA_LOG_LEVEL_NOTICE), 1);
	assert_int_equal(rpma_ep_shutdown(&ep), 0);
	fx_peer_delete(&peer);
}

/* Logging does not change errno. */
static void errno_is_kept(void **state)
{
	(void)state;
	assert_int_equal(rpma_log_set_function(other_function), 0);
	errno = ENOTTY;
	log_info_line();
	if (!original()) /* the original leaves the errno of the function */
		assert_int_equal(errno, ENOTTY);
	errno = ENOTTY;
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED);
	log_debug_line();
	assert_int_equal(errno, ENOTTY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(initial_thresholds),
		MOCK_TEST(set_and_get),
		MOCK_TEST(threshold_filters),
		MOCK_TEST(function_is_replaced),
		MOCK_TEST(arguments),
		MOCK_TEST(percent_signs),
		MOCK_TEST(long_text),
		MOCK_TEST(errno_is_kept),
	};

	return cmocka_run_group_tests_name("log-control", tests, NULL, NULL);
}
