/* SPDX-License-Identifier: BSD-3-Clause */

/* The messages that the library passes to a log function of the application. */

#include "mock_impl.h"

#include <pthread.h>

enum { MAX_LOG = 64 };

static struct {
	enum rpma_log_level level;
	char text[8192];
} log_lines[MAX_LOG];
static int n_log;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

void mock_log_function(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...)
{
	char text[sizeof(log_lines[0].text)];
	va_list ap;

	va_start(ap, message_format);
	vsnprintf(text, sizeof(text), message_format, ap);
	va_end(ap);
	size_t n = strlen(text);
	if (n == 0 || text[n - 1] != '\n')
		mock_misuse("a log line does not end with a newline: %s", text);
	if (file_name == NULL || function_name == NULL || line_no <= 0)
		mock_misuse("a log line does not say where it comes from");

	/* with many threads a slot may be reused while another thread fills it */
	pthread_mutex_lock(&log_lock);
	log_lines[n_log % MAX_LOG].level = level;
	memcpy(log_lines[n_log % MAX_LOG].text, text, n + 1);
	n_log++;
	pthread_mutex_unlock(&log_lock);
}

void mock_forget_log(void)
{
	n_log = 0;
}

const char *mock_last_log(enum rpma_log_level *level)
{
	if (n_log == 0)
		return NULL;
	*level = log_lines[(n_log - 1) % MAX_LOG].level;
	return log_lines[(n_log - 1) % MAX_LOG].text;
}

int mock_logged(enum rpma_log_level level)
{
	int n = 0;

	for (int i = 0; i < n_log && i < MAX_LOG; i++)
		n += log_lines[i].level == level;
	n_log = 0;
	return n;
}

static void show(void)
{
	for (int i = 0; i < n_log && i < MAX_LOG; i++)
		print_error("    level %d: %s", log_lines[i].level, log_lines[i].text);
}

void expect_error_at(const char *part, const char *file, int line)
{
	int troubles = 0;
	const char *text = "";

	for (int i = 0; i < n_log && i < MAX_LOG; i++) {
		if (log_lines[i].level > RPMA_LOG_LEVEL_WARNING)
			continue;
		troubles++;
		if (log_lines[i].level == RPMA_LOG_LEVEL_ERROR)
			text = log_lines[i].text;
	}
	if (troubles != 1 || strstr(text, part) == NULL) {
		print_error("expected one ERROR line with \"%s\", got:\n", part);
		show();
		n_log = 0;
		_fail(file, line);
	}
	n_log = 0;
}

void expect_silence_at(const char *file, int line)
{
	if (n_log != 0) {
		print_error("expected no log line, got %d:\n", n_log);
		show();
		n_log = 0;
		_fail(file, line);
	}
}
