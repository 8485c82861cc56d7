/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Logging: levels that pass the thresholds, to a function, to stderr and to syslog. The texts of the two
 * libraries differ and are not compared; the tags of the levels are.
 */

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <syslog.h>
#include <unistd.h>

#include "observe.h"

/* ---- syslog, instead of the C library's ---- */

static char priorities[256];

static void note_priority(int priority)
{
	size_t used = strlen(priorities);

	snprintf(priorities + used, sizeof(priorities) - used, " %d", priority);
}

void syslog(int priority, const char *fmt, ...)
{
	(void)fmt;
	note_priority(priority);
}

void vsyslog(int priority, const char *fmt, va_list ap)
{
	(void)fmt;
	(void)ap;
	note_priority(priority);
}

void __syslog_chk(int priority, int flag, const char *fmt, ...);
void __syslog_chk(int priority, int flag, const char *fmt, ...)
{
	(void)flag;
	(void)fmt;
	note_priority(priority);
}

/* ---- lines at several levels ---- */

/*
 * WARNING and NOTICE from events, INFO from a descriptor, DEBUG from an empty queue, ERROR from a short
 * descriptor.
 */
static void speak(void)
{
	static const unsigned char byte[1];
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_mr_remote *mr = NULL;
	struct rpma_peer_cfg *cfg = NULL;
	struct rpma_cq *cq = NULL;
	struct ibv_wc wc;

	rpma_mr_remote_from_descriptor(byte, 1, &mr);
	mock_cm_event(RDMA_CM_EVENT_ADDR_CHANGE, mock_named("id0"), NULL, 0);
	rpma_conn_next_event(d_conn, &event);
	mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id0"), NULL, 0);
	rpma_conn_next_event(d_conn, &event);
	rpma_peer_cfg_from_descriptor(byte, 1, &cfg);
	rpma_peer_cfg_delete(&cfg);
	rpma_conn_get_cq(d_conn, &cq);
	rpma_cq_get_wc(cq, 1, &wc, NULL);
}

static int do_speak(void)
{
	speak();
	return 0;
}

/* The defaults, read before mock_setup sets others. */
static void defaults(void)
{
	enum rpma_log_level level = (enum rpma_log_level)77;

	CALL(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level), "%d", (int)level);
	CALL(rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &level), "%d", (int)level);
}

static void thresholds(void)
{
	static const int which[] = {-1, 0, 1, 2, INT_MAX};
	static const int levels[] = {-1, 0, 1, 2, 3, 4, 5, 6, -2, INT_MAX, INT_MIN};
	char name[64];

	for (size_t w = 0; w < sizeof(which) / sizeof(which[0]); w++) {
		for (size_t l = 0; l < sizeof(levels) / sizeof(levels[0]); l++) {
			enum rpma_log_level main_level = (enum rpma_log_level)77, aux = (enum rpma_log_level)77;
			snprintf(name, sizeof(name), "threshold %d level %d", which[w], levels[l]);
			CALL_AS(name, rpma_log_set_threshold((enum rpma_log_threshold)which[w], (enum rpma_log_level)levels[l]), "%s", "");
			snprintf(name, sizeof(name), "threshold %d level %d: main", which[w], levels[l]);
			CALL_AS(name, rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &main_level), "%d", (int)main_level);
			snprintf(name, sizeof(name), "threshold %d level %d: auxiliary", which[w], levels[l]);
			CALL_AS(name, rpma_log_get_threshold(RPMA_LOG_THRESHOLD_AUX, &aux), "%d", (int)aux);
		}
	}
}

/* To a function: the auxiliary threshold must not matter. */
static void to_function(void)
{
	char name[64];

	data_begin();
	for (int m = RPMA_LOG_DISABLED; m <= RPMA_LOG_LEVEL_DEBUG; m++) {
		for (int a = RPMA_LOG_DISABLED; a <= RPMA_LOG_LEVEL_DEBUG; a++) {
			rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)m);
			rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, (enum rpma_log_level)a);
			snprintf(name, sizeof(name), "main %d, auxiliary %d", m, a);
			CALL_AS(name, do_speak(), "%s", "");
		}
	}
	data_end();
}

/* The shape of a line before the text: letters become A, digits 9, the tag of the level stays. */
static void shape(const char *line, char *out, size_t size)
{
	const char *tag = strchr(line, '*');
	size_t n = 0;

	for (const char *p = line; *p != '\0' && p < tag && n + 2 < size; p++) {
		char c = isalpha((unsigned char)*p) ? 'A' : isdigit((unsigned char)*p) ? '9' : *p;
		/* a thread ID may have any number of digits */
		if (c == '9' && n > 0 && out[n - 1] == '9' && strchr(line, '[') != NULL && p > strchr(line, '['))
			continue;
		out[n++] = c;
	}
	out[n] = '\0';
	if (tag != NULL)
		snprintf(out + n, size - n, "%.8s", tag);
	for (char *p = out; *p != '\0'; p++)
		if (*p == '*')
			*p = '='; /* a star has a meaning in the table */
}

/* To the built-in function: syslog and stderr. */
static void built_in(void)
{
	char name[64], lines[65536], text[2048], one[128];

	data_begin();
	rpma_log_set_function(NULL);
	for (int m = RPMA_LOG_DISABLED; m <= RPMA_LOG_LEVEL_DEBUG; m++) {
		for (int a = RPMA_LOG_DISABLED; a <= RPMA_LOG_LEVEL_DEBUG; a++) {
			rpma_log_set_threshold(RPMA_LOG_THRESHOLD, (enum rpma_log_level)m);
			rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, (enum rpma_log_level)a);
			int file = memfd_create("stderr", 0), before = dup(STDERR_FILENO);
			dup2(file, STDERR_FILENO);
			priorities[0] = '\0';
			speak();
			fflush(stderr);
			dup2(before, STDERR_FILENO);
			close(before);
			ssize_t n = pread(file, lines, sizeof(lines) - 1, 0);
			close(file);
			lines[n > 0 ? n : 0] = '\0';
			text[0] = '\0';
			for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n")) {
				shape(line, one, sizeof(one));
				snprintf(text + strlen(text), sizeof(text) - strlen(text), "<%s>", one);
			}
			snprintf(name, sizeof(name), "main %d, auxiliary %d: stderr", m, a);
			record(name, "%s", text);
			snprintf(name, sizeof(name), "main %d, auxiliary %d: syslog", m, a);
			record(name, "%s", priorities);
		}
	}
	data_end();
}

void observe_logging(void)
{
	scenario_as_is(NULL, defaults, "log, before anything is set");
	scenario(NULL, thresholds, "log thresholds");
	scenario(NULL, to_function, "log to a function");
	scenario(NULL, built_in, "log to stderr and syslog");
}
