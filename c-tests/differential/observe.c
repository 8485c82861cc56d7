/* SPDX-License-Identifier: BSD-3-Clause */

/* Child processes, observations, and the failure of each call in turn. */

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe.h"
#include "mock_impl.h"

enum { NAME = 400, MAX_SEEN = 160, SEEN = 320, SECONDS_PER_SCENARIO = 20 };

const void *given;

/* The calls that the child of a scenario observed, for the parent. */
static struct {
	int n;
	char calls[MAX_SEEN][SEEN];
} *seen;

static char scenario_name[NAME];
static char open_call[NAME]; /* the current call, or empty */
static int n_calls;
static char levels[65];
static bool note_calls;

/* ---- observations ---- */

static void print(const char *what, const char *answer)
{
	char *text = strdup(answer);

	for (char *p = text; *p != '\0'; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
	printf("%s/%s\t%s\n", scenario_name, what, text);
	fflush(stdout);
	free(text);
}

void record(const char *what, const char *fmt, ...)
{
	char answer[2048];
	va_list ap;

	mock_untracked_begin();
	va_start(ap, fmt);
	vsnprintf(answer, sizeof(answer), fmt, ap);
	va_end(ap);
	print(what, answer);
	mock_untracked_end();
}

static void log_function(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...)
{
	static const char letters[] = "FEWNID";
	size_t n = strlen(levels);

	(void)line_no;
	if (file_name == NULL || function_name == NULL || message_format == NULL)
		mock_misuse("a log line without its place or text");
	if (n + 1 < sizeof(levels))
		levels[n] = level >= 0 && level < 6 ? letters[level] : '?';
}

void observe_log(void)
{
	rpma_log_set_function(log_function);
}

void forget(void)
{
	mock_forget_calls();
	memset(levels, 0, sizeof(levels));
}

void call_begins(const char *name, const char *expr)
{
	n_calls++;
	forget();
	if (name != NULL)
		snprintf(open_call, sizeof(open_call), "%s", name);
	else
		snprintf(open_call, sizeof(open_call), "%02d %.*s", n_calls, (int)strcspn(expr, "("), expr);
}

static void append(char *text, size_t size, const char *fmt, ...)
{
	size_t used = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + used, size - used, fmt, ap);
	va_end(ap);
}

void call_ends(int ret, const char *fmt, ...)
{
	char answer[16384], out[1024];
	const char *line;
	va_list ap;

	mock_untracked_begin();
	va_start(ap, fmt);
	vsnprintf(out, sizeof(out), fmt, ap);
	va_end(ap);
	snprintf(answer, sizeof(answer), "%s", ret_name(ret));
	if (out[0] != '\0')
		append(answer, sizeof(answer), "; %s", out);
	if (levels[0] != '\0')
		append(answer, sizeof(answer), "; log %s", levels);
	for (int i = 0; (line = mock_call_line(i)) != NULL; i++) {
		append(answer, sizeof(answer), "%s%s", i == 0 ? "; calls " : " | ", line);
		if (note_calls && seen->n < MAX_SEEN)
			snprintf(seen->calls[seen->n++], SEEN, "%s", line);
	}
	print(open_call, answer);
	open_call[0] = '\0';
	forget();
	mock_untracked_end();
}

const char *obj(const void *p)
{
	return p == NULL ? "NULL" : p == UNTOUCHED ? "untouched" : "object";
}

bool live(const void *p)
{
	return p != NULL && p != UNTOUCHED;
}

const char *ret_name(int ret)
{
	static const char *const names[] = {"UNKNOWN", "NOSUPP", "PROVIDER", "NOMEM", "INVAL", "NO_COMPLETION",
		"NO_EVENT", "AGAIN", "SHARED_CHANNEL", "NOT_SHARED_CHNL"};
	static char text[32];
	int i = RPMA_E_UNKNOWN - ret;

	if (ret == 0)
		return "0";
	if (i >= 0 && i < (int)(sizeof(names) / sizeof(names[0])))
		return names[i];
	snprintf(text, sizeof(text), "%d", ret);
	return text;
}

const char *pdata_text(const struct rpma_conn_private_data *pdata)
{
	static char text[64 + 2 * 256];

	if (pdata->ptr == NULL || pdata->ptr == UNTOUCHED)
		snprintf(text, sizeof(text), "%s %u", obj(pdata->ptr), pdata->len);
	else
		snprintf(text, sizeof(text), "%s %u", hex(pdata->ptr, pdata->len), pdata->len);
	return text;
}

const char *hex(const void *bytes, size_t n)
{
	static char text[4][2 * 256 + 1];
	static unsigned next;
	char *out = text[next++ % 4];
	const unsigned char *b = bytes;

	out[0] = '\0';
	for (size_t i = 0; i < n && i < 256; i++)
		snprintf(out + 2 * i, 3, "%02x", b[i]);
	return out;
}

static uint64_t state;

void seed(uint64_t start)
{
	state = start * 0x9e3779b97f4a7c15 + 1;
}

/* xorshift64* */
uint64_t next_random(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1d;
}

/* ---- the end of a scenario ---- */

/* Printed only if objects remain: most scenarios delete all. */
static void say_rest(int blocks)
{
	static const char *const kinds[] = {"pd", "mr", "chan", "cq", "srq", "evch", "id", "qp", "ai", "ev", "page"};
	char rest[2048] = "";
	char name[32];

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		for (int i = 0; i < 64; i++) {
			snprintf(name, sizeof(name), "%s%d", kinds[k], i);
			void *p = mock_named(name);
			if (p == NULL)
				break;
			struct obj *o = obj_find(p);
			if (o->destroyed != 1)
				append(rest, sizeof(rest), "%s destroyed %d times; ", name, o->destroyed);
		}
	}
	if (blocks != 0)
		append(rest, sizeof(rest), "%d blocks of memory; ", blocks);
	if (mock_misuse_text()[0] != '\0')
		append(rest, sizeof(rest), "misuse: %s", mock_misuse_text());
	if (rest[0] != '\0')
		record("left", "%s", rest);
}

static void crashed(int sig)
{
	char text[NAME + SEEN];
	int n = snprintf(text, sizeof(text), "%s/%s\tcrash: %s\n", scenario_name, open_call[0] ? open_call : "between calls",
			sigabbrev_np(sig));

	if (write(STDOUT_FILENO, text, (size_t)n) != n)
		_exit(3);
	_exit(0);
}

static void catch_crashes(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], crashed);
	alarm(SECONDS_PER_SCENARIO);
}

/* ---- children ---- */

static void run(const void *what, void (*body)(void), bool fresh, const char *fn, int nth, int err)
{
	int status;

	fflush(stdout);
	pid_t child = fork();
	if (child < 0) {
		perror("fork");
		exit(2);
	}
	if (child == 0) {
		catch_crashes();
		given = what;
		n_calls = 0;
		if (fresh) {
			mock_setup(NULL);
			observe_log();
		}
		if (fn != NULL && nth > 0)
			mock_fail(fn, nth, err);
		else if (fn != NULL)
			mock_fail_always(fn, err);
		forget();
		body();
		if (fresh)
			say_rest(mock_track_end());
		else if (mock_misuse_text()[0] != '\0')
			record("left", "misuse: %s", mock_misuse_text());
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status != 0) {
		if (WIFSIGNALED(status))
			printf("%s/left\tended by SIG%s\n", scenario_name, sigabbrev_np(WTERMSIG(status)));
		else
			printf("%s/left\tended with status %d\n", scenario_name, WEXITSTATUS(status));
	}
}

void scenario(const void *what, void (*body)(void), const char *name, ...)
{
	va_list ap;

	va_start(ap, name);
	vsnprintf(scenario_name, sizeof(scenario_name), name, ap);
	va_end(ap);
	run(what, body, true, NULL, 0, 0);
}

void scenario_as_is(const void *what, void (*body)(void), const char *name, ...)
{
	va_list ap;

	va_start(ap, name);
	vsnprintf(scenario_name, sizeof(scenario_name), name, ap);
	va_end(ap);
	run(what, body, false, NULL, 0, 0);
}

/* ---- failures ---- */

static const int usual_errors[] = {EIO, ENOMEM, -1};

/*
 * Errors that the library checks for a function, in addition to or instead of the usual ones. 1000 - e stands
 * for EAI_*.
 */
static const struct special {
	const char *fn;
	int errors[8];
} special_errors[] = {
	{"rdma_get_cm_event", {ENODATA, EAGAIN, EINTR, EBADF, EIO, -1}},
	{"ibv_alloc_pd", {ENOMEM, 0, EIO, -1}},
	{"ibv_reg_mr", {EOPNOTSUPP, EIO, ENOMEM, EFAULT, EINVAL, -1}},
	{"ibv_advise_mr", {EOPNOTSUPP, EFAULT, EINVAL, ENOMEM, EIO, -1}},
	{"rdma_getaddrinfo", {EIO, ENOMEM, 1002, 1011, -1}},
	{"ibv_get_cq_event", {EAGAIN, EINTR, EBADF, EIO, -1}},
	{"rdma_create_qp_ex", {-1}}, /* both attempts of ours must fail: see below */
	{"mmap", {ENOMEM, EAGAIN, -1}},
	{"munmap", {EINVAL, -1}},
};

/* They return nothing, so they cannot fail. */
static const char *const cannot_fail[] = {"rdma_destroy_qp", "rdma_destroy_event_channel", "rdma_freeaddrinfo",
	"ibv_ack_cq_events"};

static const int *errors_of(const char *fn)
{
	static const int none[] = {-1};

	for (size_t i = 0; i < sizeof(cannot_fail) / sizeof(cannot_fail[0]); i++)
		if (strcmp(fn, cannot_fail[i]) == 0)
			return none;
	for (size_t i = 0; i < sizeof(special_errors) / sizeof(special_errors[0]); i++)
		if (strcmp(fn, special_errors[i].fn) == 0)
			return special_errors[i].errors;
	return usual_errors;
}

/* Function and first argument, which identify the object: "ibv_destroy_cq(cq1". */
static void key_of(const char *line, char *key, size_t size)
{
	snprintf(key, size, "%.*s)", (int)strcspn(line, ",)="), line);
}

static void fn_of(const char *line, char *fn, size_t size)
{
	snprintf(fn, size, "%.*s", (int)strcspn(line, "("), line);
}

static const char *error_text(int err)
{
	static char text[24];

	if (err >= 1000)
		snprintf(text, sizeof(text), "EAI -%d", err - 1000);
	else
		snprintf(text, sizeof(text), "%s", err == 0 ? "0" : strerrorname_np(err));
	return text;
}

static int mock_error(int err)
{
	return err >= 1000 ? 1000 - err : err;
}

void scenario_failing(const void *what, void (*body)(void), const char *name)
{
	char key[96], other[96], fn[64], other_fn[64];

	note_calls = true;
	seen->n = 0;
	scenario(what, body, "%s", name);
	note_calls = false;
	for (int i = 0; i < seen->n; i++) {
		int nth = 1, alike = 1;
		key_of(seen->calls[i], key, sizeof(key));
		fn_of(seen->calls[i], fn, sizeof(fn));
		for (int j = 0; j < i; j++) {
			key_of(seen->calls[j], other, sizeof(other));
			fn_of(seen->calls[j], other_fn, sizeof(other_fn));
			nth += strcmp(fn, other_fn) == 0;
			alike += strcmp(key, other) == 0;
		}
		for (const int *e = errors_of(fn); *e != -1; e++) {
			snprintf(scenario_name, sizeof(scenario_name), "%s/%s #%d fails: %s", name, key, alike, error_text(*e));
			run(what, body, true, fn, nth, mock_error(*e));
		}
		if (nth == 1 && (errors_of(fn)[0] != -1 || strcmp(fn, "rdma_create_qp_ex") == 0)) {
			snprintf(scenario_name, sizeof(scenario_name), "%s/every %s fails", name, fn);
			run(what, body, true, fn, 0, EIO);
		}
	}
}

/* ---- start ---- */

__attribute__((constructor)) static void share(void)
{
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}
