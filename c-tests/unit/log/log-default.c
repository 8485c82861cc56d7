/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The default log function, which rpma_log_set_function(NULL) installs: syslog, and stderr for messages that
 * pass the auxiliary threshold. This program overrides the functions of syslog and redirects stderr to a
 * file.
 */

#include <fcntl.h>
#include <regex.h>
#include <syslog.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static struct {
	char ident[32];
	int option, facility, calls;
} opened;

static struct {
	int priority, calls;
	char text[2048];
	off_t stderr_size; /* the size of the output when this was logged */
} logged;

static int closed_fd = -1; /* closelog writes to it */
static int capture = -1;

/* ---- the functions of syslog ---- */

void openlog(const char *ident, int option, int facility)
{
	opened.calls++;
	snprintf(opened.ident, sizeof(opened.ident), "%s", ident);
	opened.option = option;
	opened.facility = facility;
}

static void keep(int priority, const char *format, va_list ap)
{
	logged.calls++;
	logged.priority = priority;
	logged.stderr_size = capture >= 0 ? lseek(capture, 0, SEEK_END) : 0;
	vsnprintf(logged.text, sizeof(logged.text), format, ap);
}

void syslog(int priority, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	keep(priority, format, ap);
	va_end(ap);
}

void __syslog_chk(int priority, int flag, const char *format, ...);
void __syslog_chk(int priority, int flag, const char *format, ...)
{
	va_list ap;

	(void)flag;
	va_start(ap, format);
	keep(priority, format, ap);
	va_end(ap);
}

void closelog(void)
{
	if (closed_fd >= 0 && write(closed_fd, "c", 1) != 1)
		abort();
}

/* ---- stderr ---- */

static int real_stderr;

static int setup(void **state)
{
	mock_setup(state);
	mock_ignore_memory(); /* the time zone is read once */
	capture = memfd_create("stderr", 0);
	assert_true(capture >= 0);
	real_stderr = dup(STDERR_FILENO);
	memset(&logged, 0, sizeof(logged));
	assert_int_equal(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION), 0);
	return 0;
}

static int teardown(void **state)
{
	close(capture);
	close(real_stderr);
	capture = -1;
	return mock_teardown(state);
}

static const char *printed(void)
{
	static char text[4096];
	ssize_t n = pread(capture, text, sizeof(text) - 1, 0);

	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

/* Logs one line at a level and reads the output. */
static void log_line(enum rpma_log_level level)
{
	struct rpma_mr_remote *mr = NULL;
	struct rpma_peer_cfg *pcfg = NULL;
	unsigned char desc[21];
	struct ibv_wc wc;

	fx_descriptor(desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 1);
	memset(&wc, 0, sizeof(wc));
	fflush(stderr);
	dup2(capture, STDERR_FILENO);
	switch (level) {
	case RPMA_LOG_LEVEL_ERROR:
		rpma_mr_remote_from_descriptor(desc, 1, &mr);
		break;
	case RPMA_LOG_LEVEL_INFO:
		rpma_peer_cfg_from_descriptor(desc, 1, &pcfg);
		break;
	default:
		rpma_mr_remote_from_descriptor(desc, 21, &mr);
		break;
	}
	fflush(stderr);
	dup2(real_stderr, STDERR_FILENO);
	rpma_mr_remote_delete(&mr);
	rpma_peer_cfg_delete(&pcfg);
}

static void assert_matches(const char *text, const char *pattern)
{
	regex_t re;

	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	int no = regexec(&re, text, 0, NULL, 0);
	regfree(&re);
	if (no)
		print_error("\"%s\" does not match %s\n", text, pattern);
	assert_int_equal(no, 0);
}

/* The place in the source, with which the original begins a line and ours ends it. */
#define PLACE "([a-z_]+\\.c: +[0-9]+: [A-Za-z_0-9]+: .*|.* \\[[a-z_]+\\.rs:[0-9]+\\])\n$"
#define STAMP "^[^ ]+ [0-9 ][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6} \\[[0-9]+\\] "

/* At load time, once, before any call of the program. */
static void opened_at_load(void **state)
{
	(void)state;
	assert_int_equal(opened.calls, 1);
	assert_string_equal(opened.ident, "rpma");
	assert_int_equal(opened.option, LOG_PID);
	assert_int_equal(opened.facility, LOG_LOCAL7);
}

static void syslog_only(void **state)
{
	static const struct { enum rpma_log_level level; int priority; const char *pattern; } rows[] = {
		{RPMA_LOG_LEVEL_ERROR, LOG_ERR, "^\\*ERROR\\* " PLACE},
		{RPMA_LOG_LEVEL_INFO, LOG_INFO, "^\\*INFO\\*  " PLACE},
		{RPMA_LOG_LEVEL_DEBUG, LOG_DEBUG, "^\\*DEBUG\\* " PLACE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		log_line(rows[i].level);
		assert_int_equal(logged.calls, i + 1);
		assert_int_equal(logged.priority, rows[i].priority);
		assert_matches(logged.text, rows[i].pattern);
		assert_int_equal(logged.text[strlen(logged.text) - 1], '\n');
	}
	assert_string_equal(printed(), "");
}

/* First stderr, with time and thread at the beginning; then syslog. */
static void stderr_too(void **state)
{
	(void)state;
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_ERROR);
	log_line(RPMA_LOG_LEVEL_ERROR);
	const char *text = printed();
	assert_matches(text, STAMP "\\*ERROR\\* " PLACE);
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_int_equal(logged.calls, 1);
	assert_int_equal(logged.stderr_size, strlen(text));
	/* the same line after time and thread */
	assert_non_null(strstr(text, logged.text));
	char tid[32];
	snprintf(tid, sizeof(tid), " [%d] ", gettid());
	assert_non_null(strstr(text, tid));
}

/* Both thresholds must let a line pass for stderr. */
static void thresholds(void **state)
{
	(void)state;
	for (int m = RPMA_LOG_DISABLED; m <= RPMA_LOG_LEVEL_DEBUG; m++) {
		for (int a = RPMA_LOG_DISABLED; a <= RPMA_LOG_LEVEL_DEBUG; a++) {
			assert_int_equal(ftruncate(capture, 0), 0);
			lseek(capture, 0, SEEK_SET);
			logged.calls = 0;
			rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)m);
			rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, (enum rpma_log_level)a);
			log_line(RPMA_LOG_LEVEL_INFO);
			assert_int_equal(logged.calls, m >= RPMA_LOG_LEVEL_INFO);
			assert_int_equal(printed()[0] != '\0',
					m >= RPMA_LOG_LEVEL_INFO && a >= RPMA_LOG_LEVEL_INFO);
		}
	}
}

/* A process begins with the built-in function. */
static void initially_installed(void **state)
{
	(void)state;
	int status;
	pid_t child = fork();
	if (child == 0) {
		/* a new process image, without settings */
		setenv("RPMA_LOG_CHILD", "1", 1);
		execl("/proc/self/exe", "child", NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WIFEXITED(status) && WEXITSTATUS(status) == 0, 1);
}

static int child_main(void)
{
	struct rpma_mr_remote *mr = NULL;
	struct rpma_peer_cfg *pcfg = NULL;
	char desc[1] = {0};

	rpma_peer_cfg_from_descriptor(desc, 1, &pcfg); /* INFO: below the threshold */
	rpma_peer_cfg_delete(&pcfg);
	if (logged.calls != 0)
		return 1;
	rpma_mr_remote_from_descriptor(desc, 1, &mr);
	return logged.calls == 1 && logged.priority == LOG_ERR ? 0 : 2;
}

/* At unload. */
static void closed_at_exit(void **state)
{
	int fds[2], status;
	char c = 0;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	pid_t child = fork();
	if (child == 0) {
		closed_fd = fds[1];
		close(STDOUT_FILENO);
		exit(0);
	}
	close(fds[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(read(fds[0], &c, 1), 1);
	assert_int_equal(c, 'c');
	close(fds[0]);
}

#define DEFAULT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	if (getenv("RPMA_LOG_CHILD") != NULL)
		return child_main();

	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opened_at_load),
		DEFAULT_TEST(syslog_only),
		DEFAULT_TEST(stderr_too),
		DEFAULT_TEST(thresholds),
		DEFAULT_TEST(initially_installed),
		DEFAULT_TEST(closed_at_exit),
	};

	return cmocka_run_group_tests_name("log-default", tests, NULL, NULL);
}
