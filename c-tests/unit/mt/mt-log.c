/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads log, change the log function and its thresholds, and call rpma_err_2str at the same time. */

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mt.h"

enum { ROUNDS = 4000 };

static atomic_int lines_a, lines_b;

/* Each line is complete: level, place and text belong together. */
static void check(enum rpma_log_level level, const char *file, int line, const char *function,
		const char *format, va_list ap)
{
	char text[2048];

	EXPECT(level == RPMA_LOG_LEVEL_ERROR || level == RPMA_LOG_LEVEL_INFO);
	EXPECT(file != NULL && function != NULL && line > 0);
	vsnprintf(text, sizeof(text), format, ap);
	size_t n = strlen(text);
	EXPECT(n > 1 && text[n - 1] == '\n' && memchr(text, '\n', n - 1) == NULL);
}

static void function_a(enum rpma_log_level level, const char *file, const int line,
		const char *function, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	check(level, file, line, function, format, ap);
	va_end(ap);
	atomic_fetch_add(&lines_a, 1);
}

static void function_b(enum rpma_log_level level, const char *file, const int line,
		const char *function, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	check(level, file, line, function, format, ap);
	va_end(ap);
	atomic_fetch_add(&lines_b, 1);
}

static void log_two_lines(void)
{
	struct rpma_mr_remote *mr = NULL;
	struct rpma_peer_cfg *pcfg = NULL;

	EXPECT(rpma_mr_remote_from_descriptor("x", 1, &mr) == RPMA_E_INVAL);
	EXPECT(rpma_peer_cfg_from_descriptor("x", 1, &pcfg) == 0);
	EXPECT(rpma_peer_cfg_delete(&pcfg) == 0);
}

static void logger(int index)
{
	(void)index;
	for (int i = 0; i < ROUNDS; i++)
		log_two_lines();
}

static void every_line_arrives(void **state)
{
	(void)state;
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_INFO);
	rpma_log_set_function(function_a);
	mt_run(logger);
	assert_int_equal(atomic_load(&lines_a), 2 * THREADS * ROUNDS);
}

/* One half logs, the other half replaces the function: no line is lost or delivered twice. */
static void logger_or_changer(int index)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (index & 1)
			log_two_lines();
		else
			EXPECT(rpma_log_set_function(i & 1 ? function_a : function_b) == 0);
	}
}

static void function_changes(void **state)
{
	(void)state;
	atomic_store(&lines_a, 0);
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_INFO);
	rpma_log_set_function(function_a);
	mt_run(logger_or_changer);
	assert_int_equal(atomic_load(&lines_a) + atomic_load(&lines_b), THREADS * ROUNDS);
}

static void threshold_changer(int index)
{
	enum rpma_log_level level = (enum rpma_log_level)77;

	for (int i = 0; i < ROUNDS; i++) {
		enum rpma_log_threshold which = i & 1 ? RPMA_LOG_THRESHOLD : RPMA_LOG_THRESHOLD_AUX;
		EXPECT(rpma_log_set_threshold(which, (enum rpma_log_level)(index % 7 - 1)) == 0);
		EXPECT(rpma_log_get_threshold(which, &level) == 0);
		EXPECT(level >= RPMA_LOG_DISABLED && level <= RPMA_LOG_LEVEL_DEBUG);
		log_two_lines();
	}
}

static void thresholds_change(void **state)
{
	(void)state;
	rpma_log_set_function(function_a);
	mt_run(threshold_changer);
}

/* The built-in function prints each line in one piece. */
static void built_in(void **state)
{
	char line[2048];
	int fd = memfd_create("stderr", 0), lines = 0;

	(void)state;
	assert_true(fd >= 0);
	mock_ignore_memory(); /* the time zone is read once */
	fflush(stderr);
	int saved = dup(STDERR_FILENO);
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags | O_APPEND);
	dup2(fd, STDERR_FILENO);
	rpma_log_set_function(NULL);
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR);
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_ERROR);
	mt_run(logger);
	rpma_log_set_function(function_a);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	lseek(fd, 0, SEEK_SET);
	FILE *f = fdopen(fd, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		lines++;
		char *tag = strstr(line, "*ERROR* ");
		if (original()) /* prints the parts of a line one after the other */
			continue;
		assert_non_null(tag);
		assert_null(strstr(tag + 1, "*ERROR* "));
	}
	fclose(f);
	assert_int_equal(lines, THREADS * ROUNDS);
}

/* syslog is ignored here. */
void syslog(int priority, const char *format, ...);
void syslog(int priority, const char *format, ...)
{
	(void)priority, (void)format;
}

void __syslog_chk(int priority, int flag, const char *format, ...);
void __syslog_chk(int priority, int flag, const char *format, ...)
{
	(void)priority, (void)flag, (void)format;
}

static void texts_of_a_thread(int index)
{
	(void)index;
	for (int i = 0; i < ROUNDS * 10; i++) {
		EXPECT(strcmp(rpma_err_2str(RPMA_E_NOMEM), "Out of memory") == 0);
		EXPECT(strcmp(rpma_err_2str(i + 1), "Unknown error") == 0);
		EXPECT(strcmp(rpma_utils_conn_event_2str(RPMA_CONN_LOST), "Connection lost") == 0);
	}
}

static void texts(void **state)
{
	(void)state;
	mt_run(texts_of_a_thread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOCK_TEST(every_line_arrives),
		MOCK_TEST(function_changes),
		MOCK_TEST(thresholds_change),
		MOCK_TEST(built_in),
		MOCK_TEST(texts),
	};

	return cmocka_run_group_tests_name("mt-log", tests, NULL, NULL);
}
