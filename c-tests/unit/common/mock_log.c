/* SPDX-License-Identifier: BSD-3-Clause */

/* What the library says to a log function of the application. */

#include "mock_impl.h"

enum { MAX_LOG = 64 };

static struct {
	enum rpma_log_level level;
	char text[8192];
} log_lines[MAX_LOG];
static int n_log;

void mock_log_function(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...)
{
	int slot = __atomic_fetch_add(&n_log, 1, __ATOMIC_RELAXED) % MAX_LOG;
	va_list ap;

	log_lines[slot].level = level;
	va_start(ap, message_format);
	vsnprintf(log_lines[slot].text, sizeof(log_lines[slot].text), message_format, ap);
	va_end(ap);
	size_t n = strlen(log_lines[slot].text);
	if (n == 0 || log_lines[slot].text[n - 1] != '\n')
		mock_misuse("a log line does not end with a newline: %s", log_lines[slot].text);
	if (file_name == NULL || function_name == NULL || line_no <= 0)
		mock_misuse("a log line does not say where it comes from");
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
