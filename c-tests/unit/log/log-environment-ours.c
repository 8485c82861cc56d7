/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * RPMA_LOG, which is read when the library is loaded: this program executes itself with a value of it, makes
 * calls that log, and checks the output on stderr or in a file.
 */

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static const char *self;

/* The calls of the second program, by its argument. */
static int act(const char *what)
{
	struct ibv_context *ctx = NULL;

	if (strcmp(what, "quietly") == 0)
		rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED);
	if (strcmp(what, "nothing") == 0)
		return 0;
	if (strcmp(what, "call") == 0) {
		struct rpma_peer *peer = NULL;

		mock_setup(NULL);
		rpma_log_set_function(NULL);
		rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR);
		rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_ERROR);
		mock_fail("ibv_alloc_pd", 1, EPERM);
		return rpma_peer_new(CTX, &peer) == RPMA_E_PROVIDER ? 0 : 1;
	}
	setenv("RPMA_PROVIDER", "sofd", 1);
	return rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx) == RPMA_E_PROVIDER ? 0 : 1;
}

/* Returns the program's output on stderr. */
static const char *printed(const char *setting, const char *what)
{
	static char text[8192];
	size_t len = 0;
	ssize_t n;
	int ends[2], status;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		setenv("RPMA_LOG", setting, 1);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		execl(self, self, what, NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	close(ends[1]);
	while ((n = read(ends[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return text;
}

static int lines(const char *text)
{
	int count = 0;

	for (; (text = strchr(text, '\n')) != NULL; text++)
		count++;
	return count;
}

#define HAS(text, part) assert_true(strstr((text), (part)) != NULL || (print_error("no '%s' in:\n%s", (part), (text)), false))

static void the_reason_is_told(void **state)
{
	const char *text = printed("error", "fail");

	(void)state;
	HAS(text, "*ERROR* ");
	HAS(text, "invalid value \"sofd\" of RPMA_PROVIDER; valid values: auto, rdma-core, soft");
	assert_int_equal(lines(text), 1);
}

/* The first line contains the version of the library. */
static void the_library_is_named(void **state)
{
	const char *text = printed("notice", "fail");

	(void)state;
	HAS(text, "librpma " LIBRPMA_VERSION " (");
	HAS(text, "/librpma.so.0) [version.rs:");
	assert_int_equal(lines(text), 2);
	assert_true(strstr(text, "librpma.so.0)") < strstr(text, "RPMA_PROVIDER"));
}

static void json(void **state)
{
	const char *text = printed("error,json", "fail");

	(void)state;
	assert_int_equal(text[0], '{');
	HAS(text, "\"level\":\"error\"");
	HAS(text, "\"message\":\"invalid value \\\"sofd\\\" of RPMA_PROVIDER");
	HAS(text, "soft\"}\n");
	assert_int_equal(lines(text), 1);
	/* each fact about a failed call has a member */
	text = printed("error,json", "call");
	HAS(text, "\"operation\":\"ibv_alloc_pd\",\"errno\":1,\"message\":\"ibv_alloc_pd(");
	assert_int_equal(lines(text), 1);
}

/* The parts may come in any order. */
static void any_order(void **state)
{
	static const char *const settings[] = {"error,json,%s", "json,error,%s", "%s,json,error", "json,%s,error", "error,%s,json"};

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		char path[] = "/tmp/rpma-log-XXXXXX", setting[64], text[4096] = "";
		int fd = mkstemp(path);

		assert_true(fd >= 0);
		snprintf(setting, sizeof(setting), settings[i], path);
		assert_string_equal(printed(setting, "fail"), "");
		assert_true(read(fd, text, sizeof(text) - 1) > 0);
		close(fd);
		unlink(path);
		assert_int_equal(text[0], '{');
		HAS(text, "sofd");
	}
}

static void a_file(void **state)
{
	char path[] = "/tmp/rpma-log-XXXXXX";
	char setting[64], text[4096] = "";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	snprintf(setting, sizeof(setting), "error,%s", path);
	assert_string_equal(printed(setting, "fail"), "");
	assert_string_equal(printed(setting, "fail"), "");
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	unlink(path);
	HAS(text, "sofd");
	/* earlier lines remain */
	assert_int_equal(lines(text), 2);
}

static void a_file_that_cannot_be(void **state)
{
	const char *text = printed("error,/nonexistent/log", "fail");

	(void)state;
	HAS(text, "sofd");
	text = printed("warning,/nonexistent/log", "fail");
	HAS(text, "RPMA_LOG: cannot open /nonexistent/log: No such file or directory (errno 2)");
	HAS(text, "sofd");
}

static void the_program_wins(void **state)
{
	(void)state;
	assert_string_equal(printed("debug", "quietly"), "");
}

static void syslog_alone(void **state)
{
	(void)state;
	assert_string_equal(printed("debug,syslog", "fail"), "");
	assert_string_equal(printed("off", "fail"), "");
	assert_string_equal(printed("", "fail"), "");
}

static void an_unknown_level(void **state)
{
	const char *text = printed("warn", "nothing");

	(void)state;
	HAS(text, "RPMA_LOG: unknown level \"warn\", did you mean \"warning\"?");
	assert_int_equal(lines(text), 1);
	text = printed("3", "fail");
	HAS(text, "RPMA_LOG: unknown level \"3\"; levels: off, fatal, error, warning, notice, info, debug");
	HAS(text, "sofd");
}

static void one_level_and_one_destination(void **state)
{
	static const char *const settings[][2] = {
		{"info,debug", "debug"},
		{"info,stderr,syslog", "syslog"},
		{"info,/nonexistent/log,/nonexistent/another", "/nonexistent/another"},
	};
	char message[128];

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		snprintf(message, sizeof(message), "RPMA_LOG: unexpected \"%s\": only one level and one destination can be set",
			settings[i][1]);
		HAS(printed(settings[i][0], "nothing"), message);
	}
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_reason_is_told),
		cmocka_unit_test(the_library_is_named),
		cmocka_unit_test(json),
		cmocka_unit_test(any_order),
		cmocka_unit_test(a_file),
		cmocka_unit_test(a_file_that_cannot_be),
		cmocka_unit_test(the_program_wins),
		cmocka_unit_test(syslog_alone),
		cmocka_unit_test(an_unknown_level),
		cmocka_unit_test(one_level_and_one_destination),
	};

	self = argv[0];
	if (argc == 2)
		return act(argv[1]);
	return cmocka_run_group_tests_name("log-environment-ours", tests, NULL, NULL);
}
