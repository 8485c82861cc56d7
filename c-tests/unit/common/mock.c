/* SPDX-License-Identifier: BSD-3-Clause */

/* The call log, programmed failures, and the fixture around each test. */

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "mock_impl.h"

enum { MAX_LINES = 160, LINE = 320, MAX_FAILURES = 8 };

static char lines[MAX_LINES][LINE];
static int n_lines;
static bool quiet;

enum { MAX_FNS = 64 };
static struct {
	char fn[40];
	int n;
} counts[MAX_FNS];

static struct failure {
	char fn[40];
	int skip;   /* calls that succeed first */
	int err;
	bool always;
	bool used;
} failures[MAX_FAILURES];
static int n_failures;

static char misuse[4096];
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int saved_errno;

/* Before main, and before the first call of the library, which reads it. */
__attribute__((constructor)) static void choose_provider(void)
{
	setenv("RPMA_PROVIDER", "rdma-core", 1);
}

bool original(void)
{
	return getenv("RPMA_TEST_ORIGINAL") != NULL;
}

void mock_misuse(const char *fmt, ...)
{
	size_t used = strlen(misuse);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(misuse + used, sizeof(misuse) - used, fmt, ap);
	va_end(ap);
	used = strlen(misuse);
	snprintf(misuse + used, sizeof(misuse) - used, "\n");
}

/* ---- failures ---- */

static void add_failure(const char *fn, int nth, int err, bool always)
{
	assert_true(n_failures < MAX_FAILURES);
	struct failure *f = &failures[n_failures++];
	snprintf(f->fn, sizeof(f->fn), "%s", fn);
	f->skip = nth - 1;
	f->err = err;
	f->always = always;
	f->used = false;
}

void mock_fail(const char *fn, int nth, int err)
{
	add_failure(fn, nth, err, false);
}

void mock_fail_always(const char *fn, int err)
{
	add_failure(fn, 1, err, true);
}

void mock_fail_reset(void)
{
	n_failures = 0;
}

static int programmed_error(const char *fn)
{
	int result = -1;

	/* every entry for this function counts this call */
	for (int i = 0; i < n_failures; i++) {
		struct failure *f = &failures[i];
		if (strcmp(f->fn, fn) != 0 || (f->used && !f->always))
			continue;
		if (f->skip > 0) {
			f->skip--;
		} else if (result < 0) {
			f->used = true;
			result = f->err;
			if (result < 0) /* EAI_*: any value but -1 */
				result = f->err - 1000;
		}
	}
	return result;
}

/* ---- log of calls ---- */

static const char *err_name(int err)
{
	static char text[24];

	if (err == 0)
		return "0";
	if (err < 0) {
		snprintf(text, sizeof(text), "EAI%d", err + 1000);
		return text;
	}
	return strerrorname_np(err);
}

static void count(const char *fn)
{
	int i = 0;

	while (i < MAX_FNS - 1 && counts[i].n != 0 && strcmp(counts[i].fn, fn) != 0)
		i++;
	snprintf(counts[i].fn, sizeof(counts[i].fn), "%s", fn);
	counts[i].n++;
}

int mock_called(const char *fn)
{
	for (int i = 0; i < MAX_FNS; i++)
		if (counts[i].n != 0 && strcmp(counts[i].fn, fn) == 0)
			return counts[i].n;
	return 0;
}

void mock_lock(void)
{
	int e = errno;

	pthread_mutex_lock(&lock);
	mock_enter();
	saved_errno = e;
}

void mock_unlock(void)
{
	mock_leave();
	pthread_mutex_unlock(&lock);
}

int mock_call_locked(const char *fmt, ...)
{
	char line[LINE];
	char fn[40];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	size_t n = strcspn(line, "(");
	snprintf(fn, sizeof(fn), "%.*s", (int)(n < sizeof(fn) ? n : sizeof(fn) - 1), line);

	count(fn);
	int err = programmed_error(fn);
	if (!quiet) {
		if (n_lines == MAX_LINES) {
			mock_misuse("the call log is full");
			n_lines = 0;
		}
		if (err == -1)
			snprintf(lines[n_lines++], LINE, "%s", line);
		else
			snprintf(lines[n_lines++], LINE, "%.290s ! %s", line, err_name(err));
	}
	return err < -1 ? err + 1000 : err;
}

void mock_made_text(const char *text)
{
	if (quiet || n_lines == 0)
		return;
	char *line = lines[n_lines - 1];
	size_t used = strlen(line);
	snprintf(line + used, LINE - used, " = %s", text);
}

void mock_made(const struct obj *o)
{
	mock_made_text(o->name);
}

void mock_done(int err)
{
	errno = err >= 0 ? err : saved_errno;
	mock_unlock();
}

void mock_quiet(void)
{
	quiet = true;
}

void mock_forget_calls(void)
{
	n_lines = 0;
}

const char *mock_call_line(int i)
{
	return i < n_lines ? lines[i] : NULL;
}

const char *mock_misuse_text(void)
{
	return misuse;
}

static void show_and_fail(const char *const *want, const char *file, int line)
{
	print_error("calls expected:\n");
	for (int i = 0; want[i] != NULL; i++)
		print_error("    %s\n", want[i]);
	print_error("calls made:\n");
	for (int i = 0, same = 1; i < n_lines; i++) {
		same = same && want[i] != NULL && strcmp(want[i], lines[i]) == 0;
		print_error("  %c %s\n", same ? ' ' : '>', lines[i]);
	}
	n_lines = 0;
	_fail(file, line);
}

void expect_calls_at(const char *const *want, const char *file, int line)
{
	int i = 0;

	if (misuse[0] != '\0') {
		print_error("misuse of the provider: %s", misuse);
		misuse[0] = '\0';
		show_and_fail(want, file, line);
	}
	while (want[i] != NULL && i < n_lines && strcmp(want[i], lines[i]) == 0)
		i++;
	if (want[i] != NULL || i < n_lines)
		show_and_fail(want, file, line);
	n_lines = 0;
}

/* ---- sequences ---- */

static void fn_of(const struct step *s, char fn[40])
{
	size_t n = strcspn(s->call, "(");
	assert_true(n < 40);
	memcpy(fn, s->call, n);
	fn[n] = '\0';
}

static bool retries(const struct step *s)
{
	return s->retry != NULL && !original();
}

void fail_step(const struct step *s, int failing, int err)
{
	char fn[40], other[40];
	int nth = 1;

	fn_of(&s[failing], fn);
	for (int i = 0; i < failing; i++) {
		if (s[i].call == NULL)
			continue;
		fn_of(&s[i], other);
		if (strcmp(fn, other) == 0)
			nth++;
	}
	mock_fail(fn, nth, err);
	if (retries(&s[failing]))
		mock_fail(fn, nth + 1, err);
}

void expect_unwound_at(const struct step *s, int failing, int err, const char *file, int line)
{
	static char text[MAX_LINES][LINE];
	const char *want[MAX_LINES + 1];
	int n = 0;

	for (int i = 0; i < failing; i++)
		if (s[i].call != NULL)
			snprintf(text[n++], LINE, s[i].result ? "%s = %s" : "%s", s[i].call, s[i].result);
	snprintf(text[n++], LINE, "%s ! %s", s[failing].call, err_name(err < 0 ? err - 1000 : err));
	if (retries(&s[failing]))
		snprintf(text[n++], LINE, "%s ! %s", s[failing].retry, err_name(err));
	for (int i = failing - 1; i >= 0; i--) {
		for (const char *undo = s[i].undo; undo != NULL && *undo != '\0'; n++) {
			size_t len = strcspn(undo, "\n");
			snprintf(text[n], LINE, "%.*s", (int)len, undo);
			undo += len + (undo[len] == '\n');
		}
	}
	for (int i = 0; i < n; i++)
		want[i] = text[i];
	want[n] = NULL;
	expect_calls_at(want, file, line);
}

/* ---- fixture ---- */

int mock_setup(void **state)
{
	(void)state;
	objects_forget(); /* objects of a failed test */
	n_lines = 0;
	n_failures = 0;
	misuse[0] = '\0';
	quiet = false;
	memset(counts, 0, sizeof(counts));
	mock_verbs_reset();
	mock_cm_reset();
	mock_forget_log();
	rpma_log_set_function(mock_log_function);
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG);
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_DISABLED);
	mock_track_begin();
	return 0;
}

int mock_teardown(void **state)
{
	int bad = 0;
	int blocks = mock_track_end();

	(void)state;
	mock_fail_alloc_reset();
	bad += objects_check();
	if (misuse[0] != '\0') {
		print_error("misuse of the provider: %s", misuse);
		bad++;
	}
	for (int i = 0; i < n_failures; i++) {
		if (!failures[i].used) {
			print_error("%s was to fail and was not called\n", failures[i].fn);
			bad++;
		}
	}
	if (blocks != 0) {
		print_error("%d blocks of memory not freed by the library\n", blocks);
		bad++;
	}
	return bad;
}
