/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * syscalls.c -- every system call of the library fails once, at each of its occurrences, each in a separate
 * process.
 *
 * The process is both initiator and target. With each failure, each function returns 0 or an error that
 * librpma.h lists, each request completes once, the effects of successful ones are correct, and nothing hangs
 * or crashes. Then the same runs again without a failure and must succeed, and the process must have as many
 * descriptors and threads as one without any failure.
 */
#include "failing.h"
#include "stress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (256 << 10)
#define UNSIGNALLED 99
#define BURST 8 /* fewer than a send queue has by default */
#define MESSAGE 1024
#define RECEIVES 4
#define TIMEOUT_MS 6000
#define AT_ONCE 6
/* of one function; later calls of epoll_wait(2) return no event, more often on an idle machine */
#define MOST_OF_A_CALL 100
#define CHILD_SECONDS 30

/* How the scenario ended. */
enum { SUCCEEDED = 0, ERROR = 3, NOT_REACHED = 4 };

struct scene {
	struct node node;
	struct region offered;
	struct region local;
	struct region in;
	struct rpma_conn_req *req;
	struct rpma_conn *out; /* the initiator's connection */
	struct rpma_conn *accepted; /* the target's connection */
	struct rpma_mr_remote *remote;
	char *memory;
	unsigned errors;
	const char *first; /* the first call that failed */
};

/*
 * Whether a call has succeeded; otherwise its error must be one that librpma.h lists for a failure of the
 * system.
 */
static bool
good(struct scene *scene, int ret, const char *call)
{
	if (ret == 0)
		return true;
	/* memory that cannot be unmapped is RPMA_E_INVAL */
	EXPECT(ret == RPMA_E_PROVIDER || ret == RPMA_E_NOMEM || ret == RPMA_E_AGAIN ||
			(ret == RPMA_E_INVAL && strncmp(call, "rpma_conn_delete", 16) == 0),
		"%s returned %d (%s)", call, ret, rpma_err_2str(ret));
	scene->errors++;
	if (scene->first == NULL)
		scene->first = call;
	return false;
}

#define GOOD(call) good(scene, (call), #call)

static uint16_t
some_port(unsigned slot)
{
	for (unsigned port = 20000 + slot * 1000;; port++) {
		struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
			.sin_port = htons((uint16_t)port)};
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		int ret = bind(fd, (struct sockaddr *)&here, sizeof(here));

		close(fd);
		if (ret == 0)
			return (uint16_t)port;
	}
}

static bool
register_all(struct scene *scene)
{
	struct node *node = &scene->node;
	struct {
		struct region *region;
		size_t at;
		size_t size;
	} regions[] = {{&scene->offered, 0, SIZE}, {&scene->local, SIZE, 2 * SIZE}, {&scene->in, 3 * SIZE, RECEIVES * MESSAGE}};

	memset(scene->memory, 0, 4 * SIZE);
	for (int i = 0; i < 3; i++) {
		struct region *region = regions[i].region;

		*region = (struct region){.ptr = scene->memory + regions[i].at, .size = regions[i].size};
		if (!GOOD(rpma_mr_reg(node->peer, region->ptr, region->size, USAGE_ALL, &region->mr)))
			return false;
	}
	return true;
}

static bool
open_all(struct scene *scene, struct side *side)
{
	struct ibv_context *dev = NULL;

	scene->node = (struct node){.side = side};
	return GOOD(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev)) &&
		GOOD(rpma_peer_new(dev, &scene->node.peer)) &&
		GOOD(rpma_ep_listen(scene->node.peer, side->addr, side->port, &scene->node.ep)) && register_all(scene);
}

/* The next event of a connection, which must arrive. */
static bool
next_event(struct scene *scene, struct rpma_conn *conn, enum rpma_conn_event *event)
{
	*event = RPMA_CONN_UNDEFINED;
	EXPECT(readable(event_fd(conn), TIMEOUT_MS), "no event of the %s's connection", conn == scene->out ? "initiator" : "target");
	/* only the call has failed: the event is still pending */
	return GOOD(rpma_conn_next_event(conn, event)) || GOOD(rpma_conn_next_event(conn, event));
}

static bool
accept_it(struct scene *scene)
{
	char words[DESCRIPTOR_SIZE + 1] = {0};
	struct rpma_conn_private_data pdata = {words, sizeof(words)};

	if (!GOOD(rpma_ep_next_conn_req(scene->node.ep, NULL, &scene->req)))
		return false;
	EXPECT(scene->req != NULL);
	for (uintptr_t i = 0; i < RECEIVES; i++)
		if (!GOOD(rpma_conn_req_recv(scene->req, scene->in.mr, i * MESSAGE, MESSAGE, (void *)i)))
			return false;
	OK(rpma_mr_get_descriptor(scene->offered.mr, words));
	words[DESCRIPTOR_SIZE] = 1; /* the peer configuration: direct write to pmem */
	return GOOD(rpma_conn_req_connect(&scene->req, &pdata, &scene->accepted));
}

static bool
connect_it(struct scene *scene)
{
	enum rpma_conn_event event;
	struct rpma_conn_private_data pdata;
	struct rpma_conn_req *req = NULL;
	struct rpma_peer_cfg *pcfg = NULL;
	struct side *side = scene->node.side;

	if (!GOOD(rpma_conn_req_new(scene->node.peer, side->addr, side->port, NULL, &req)) ||
		!GOOD(rpma_conn_req_connect(&req, NULL, &scene->out)))
		return false;
	for (int fd = event_fd(scene->out), ms = 0; !readable(ep_fd(scene->node.ep), 1); ms++) {
		EXPECT(ms < TIMEOUT_MS, "neither a connection request nor an event");
		if (readable(fd, 0) && !readable(ep_fd(scene->node.ep), 100)) {
			if (next_event(scene, scene->out, &event))
				EXPECT(event != RPMA_CONN_ESTABLISHED, "established without an accepted request");
			scene->errors++;
			return false;
		}
	}
	if (!accept_it(scene))
		return false;
	if (!next_event(scene, scene->accepted, &event) || event != RPMA_CONN_ESTABLISHED) {
		scene->errors++;
		return false;
	}
	if (!next_event(scene, scene->out, &event) || event != RPMA_CONN_ESTABLISHED) {
		scene->errors++;
		return false;
	}
	OK(rpma_conn_get_private_data(scene->out, &pdata));
	EXPECT(pdata.ptr != NULL && pdata.len == DESCRIPTOR_SIZE + 1);
	if (!GOOD(rpma_mr_remote_from_descriptor(pdata.ptr, DESCRIPTOR_SIZE, &scene->remote)))
		return false;
	if (!GOOD(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + DESCRIPTOR_SIZE, 1, &pcfg)))
		return false;
	OK(rpma_conn_apply_remote_peer_cfg(scene->out, pcfg));
	OK(rpma_peer_cfg_delete(&pcfg));
	return true;
}

/* Waits for the completion of the only outstanding request, in one of two ways. */
static bool
complete(struct scene *scene, struct rpma_cq *cq, uint64_t wr_id, bool sleeps)
{
	uint64_t deadline = now_ms() + TIMEOUT_MS;
	struct ibv_wc wc;
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION || (ret == 0 && wc.wr_id == UNSIGNALLED)) {
		EXPECT(ret != 0 || wc.status != IBV_WC_SUCCESS, "an unsignalled request has a successful completion");
		/* there may be more completions: an event is raised only when the queue was empty */
		if (ret == 0)
			continue;
		EXPECT(now_ms() < deadline, "request %llu does not complete", (unsigned long long)wr_id);
		/* an interrupted wait affects only that call */
		if (!sleeps || !GOOD(rpma_cq_wait(cq)))
			usleep(200);
	}
	if (!good(scene, ret, "rpma_cq_get_wc"))
		return false;
	EXPECT(wc.wr_id == wr_id, "%llu completed, expected %llu", (unsigned long long)wc.wr_id, (unsigned long long)wr_id);
	if (wc.status != IBV_WC_SUCCESS)
		scene->errors++;
	return wc.status == IBV_WC_SUCCESS;
}

static bool
use_it(struct scene *scene, bool sleeps, uint32_t seed)
{
	char *out = scene->local.ptr;
	char *back = scene->local.ptr + SIZE;
	struct rpma_mr_local *mr = scene->local.mr;
	struct rpma_conn *conn = scene->out;
	struct rpma_cq *there = NULL;
	struct rpma_cq *cq = NULL;

	OK(rpma_conn_get_cq(conn, &cq));
	OK(rpma_conn_get_cq(scene->accepted, &there));
	fill_pattern(out, SIZE, seed);
	memset(back, 0, SIZE);
#define DO(id, call) (GOOD(call) && complete(scene, cq, id, sleeps))
	if (!DO(1, rpma_write(conn, scene->remote, 0, mr, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)1)) ||
		!DO(2, rpma_read(conn, mr, SIZE, scene->remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)2)))
		return false;
	check_pattern(back, SIZE, seed, "what was read back");
	check_pattern(scene->offered.ptr, SIZE, seed, "what was written");
	if (!DO(3, rpma_atomic_write(conn, scene->remote, 8, "\1\2\3\4\5\6\7\10", RPMA_F_COMPLETION_ALWAYS, (void *)3)) ||
		!DO(4, rpma_write(conn, scene->remote, 64, mr, 0, 64, RPMA_F_COMPLETION_ALWAYS, (void *)4)) ||
		!DO(5, rpma_flush(conn, scene->remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, (void *)5)))
		return false;
	EXPECT(memcmp(scene->offered.ptr + 8, "\1\2\3\4\5\6\7\10", 8) == 0 && memcmp(scene->offered.ptr + 64, out, 64) == 0);
	/* small unsignalled requests, which may wait for one another */
	for (size_t i = 0; i < BURST; i++)
		if (!GOOD(rpma_write(conn, scene->remote, 4096 + i * 8, mr, i * 8, 8, RPMA_F_COMPLETION_ON_ERROR,
			    (void *)UNSIGNALLED)))
			return false;
	for (unsigned ms = 0; memcmp(scene->offered.ptr + 4096, out, BURST * 8) != 0 && !readable(event_fd(conn), 1); ms++)
		EXPECT(ms < TIMEOUT_MS, "unsignalled requests do not arrive");
	if (!DO(6, rpma_flush(conn, scene->remote, 0, SIZE, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, (void *)6)))
		return false;
	for (uintptr_t i = 0; i < RECEIVES / 2; i++) {
		uintptr_t which = (sleeps ? RECEIVES / 2 : 0) + i;

		if (!DO(7, rpma_send(conn, mr, i * MESSAGE, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)7)) ||
			!complete(scene, there, which, sleeps))
			return false;
		EXPECT(memcmp(scene->in.ptr + which * MESSAGE, out + i * MESSAGE, MESSAGE) == 0, "a message is wrong");
	}
	return true;
}

/* Disconnects the existing connections; each must report its end. */
static void
end_it(struct scene *scene, bool established)
{
	struct rpma_conn **conns[2] = {&scene->out, &scene->accepted};

	if (scene->req != NULL)
		GOOD(rpma_conn_req_delete(&scene->req));
	if (established) {
		GOOD(rpma_conn_disconnect(scene->out));
		for (int i = 0; i < 2; i++) {
			enum rpma_conn_event event;

			if (next_event(scene, *conns[i], &event))
				EXPECT(is_end(event), "%s", rpma_utils_conn_event_2str(event));
			scene->errors += event != RPMA_CONN_CLOSED;
		}
	}
	GOOD(rpma_mr_remote_delete(&scene->remote));
	for (int i = 0; i < 2; i++) {
		if (*conns[i] != NULL) {
			GOOD(rpma_conn_delete(conns[i]));
			EXPECT(*conns[i] == NULL);
		}
	}
	for (int i = 0; i < 3; i++) {
		struct region *region = i == 0 ? &scene->offered : i == 1 ? &scene->local : &scene->in;

		if (region->mr != NULL)
			GOOD(rpma_mr_dereg(&region->mr));
	}
	GOOD(rpma_ep_shutdown(&scene->node.ep));
	if (scene->node.peer != NULL)
		GOOD(rpma_peer_delete(&scene->node.peer));
}

/* Returns the first call that failed, or NULL. */
static const char *
play(struct side *side, char *memory)
{
	struct scene scene = {.memory = memory};
	bool established = false;

	if (open_all(&scene, side)) {
		established = connect_it(&scene);
		if (established && use_it(&scene, false, 1))
			use_it(&scene, true, 2);
	}
	end_it(&scene, established);
	return scene.first != NULL ? scene.first : scene.errors > 0 ? "a completion or an event" : NULL;
}

/* The errors with which the kernel may fail each call. */
static const struct failure {
	enum call call;
	int errors[4];
} failures[] = {
	{CALL_accept4, {EMFILE, ENFILE, ENOMEM, EINTR}},
	{CALL_bind, {ENOMEM, EADDRINUSE}},
	{CALL_connect, {ENOMEM, EADDRNOTAVAIL, ENETUNREACH}},
	{CALL_epoll_create1, {EMFILE, ENFILE, ENOMEM}},
	{CALL_epoll_ctl, {ENOMEM, ENOSPC}},
	{CALL_epoll_wait, {EINTR}},
	{CALL_eventfd, {EMFILE, ENFILE, ENOMEM}},
	{CALL_fcntl, {EINTR, ENOMEM}},
	{CALL_getpeername, {ENOMEM}},
	{CALL_getrandom, {EINTR}},
	{CALL_getrlimit, {ENOMEM}},
	{CALL_getrusage, {EINTR, ENOMEM}},
	{CALL_getsockname, {ENOMEM}},
	{CALL_getsockopt, {ENOMEM}},
	{CALL_listen, {ENOMEM, EADDRINUSE}},
	{CALL_madvise, {ENOMEM, EINTR, EAGAIN}},
	{CALL_mmap, {ENOMEM}},
	{CALL_mmap64, {ENOMEM}},
	{CALL_msync, {EIO, ENOSPC, EINTR, ENOMEM}},
	{CALL_munmap, {ENOMEM}},
	{CALL_open, {EMFILE, ENFILE, ENOMEM, EINTR}},
	{CALL_open64, {EMFILE, ENFILE, ENOMEM, EINTR}},
	{CALL_poll, {EINTR, ENOMEM}},
	{CALL_preadv2, {EINTR, ENOMEM}},
	{CALL_process_vm_readv, {ENOMEM, EINTR}},
	{CALL_process_vm_writev, {ENOMEM, EINTR}},
	{CALL_pthread_create, {EAGAIN, ENOMEM}},
	{CALL_read, {EINTR, ENOMEM}},
	{CALL_recv, {EINTR, ENOMEM}},
	{CALL_recvmsg, {EINTR, ENOMEM}},
	{CALL_sched_getaffinity, {ENOMEM}},
	{CALL_sched_setaffinity, {ENOMEM}},
	{CALL_sendmsg, {EINTR, ENOMEM, ENOBUFS}},
	{CALL_setsockopt, {ENOMEM}},
	{CALL_shutdown, {ENOMEM}},
	{CALL_socket, {EMFILE, ENFILE, ENOMEM}},
	{CALL_syscall, {EINTR}},
	{CALL_timerfd_create, {EMFILE, ENFILE, ENOMEM}},
	{CALL_timerfd_settime, {EINTR, ENOMEM}},
	{CALL_write, {EINTR}},
};

#define FAILURES (sizeof(failures) / sizeof(failures[0]))

/*
 * One process with one failure, or none if `nth` is 0. Both runs use the same memory, so that it does not
 * count as a leak.
 */
struct trial {
	enum call call;
	unsigned nth;
	int error;
	pid_t pid;
	int output;
	uint64_t deadline;
};

static struct trial running[AT_ONCE];

/* In shared->counts: the number of calls of each function, then the resources of a process at the end. */
#define HELD_FDS 62
#define HELD_THREADS 63

static void
run_trial(struct side *side, const struct trial *trial, unsigned slot)
{
	uint64_t deadline = now_ms() + TIMEOUT_MS;
	struct side own = *side;
	char *memory = pages(4 * SIZE);
	const char *failed;
	const char *again;
	bool reached;

	/* collect() of the parent prints it after a failure */
	dup2(trial->output, STDERR_FILENO);
	snprintf(own.port, sizeof(own.port), "%u", some_port(slot));
	if (trial->nth == 0) {
		start_counting();
		failed = play(&own, memory);
		EXPECT(failed == NULL, "%s, although no call has failed", failed);
		for (int i = 0; i < CALL_COUNT; i++)
			shared->counts[i] = calls_made((enum call)i);
	} else
		let_fail(trial->call, trial->nth, trial->error, false);
	failed = play(&own, memory);
	/* the number of some calls depends on the order of threads */
	reached = has_failed();
	let_nothing_fail();
	again = play(&own, memory);
	EXPECT(again == NULL, "%s fails the second time, when no call fails; the first time: %s", again, failed);
	while (trial->nth != 0 && (count_fds() > shared->counts[HELD_FDS] || count_threads() > shared->counts[HELD_THREADS])) {
		EXPECT(now_ms() < deadline, "%u descriptors and %u threads at the end, instead of %u and %u", count_fds(),
			count_threads(), shared->counts[HELD_FDS], shared->counts[HELD_THREADS]);
		sleep_ms(10);
	}
	if (trial->nth == 0) {
		sleep_ms(3000);
		shared->counts[HELD_FDS] = count_fds();
		shared->counts[HELD_THREADS] = count_threads();
	}
	/* an interrupted call is repeated, except if the program itself waits for an event */
	EXPECT(failed == NULL || trial->error != EINTR || trial->call == CALL_read || trial->call == CALL_poll,
		"%s fails after an interrupted system call", failed);
	EXPECT(reached || failed == NULL, "%s, although no call has failed", failed);
	_exit(!reached ? NOT_REACHED : failed == NULL ? SUCCEEDED : ERROR);
}

struct results {
	unsigned succeeded[CALL_COUNT];
	unsigned errors[CALL_COUNT];
	unsigned not_reached;
	unsigned bad;
};

static void
collect(struct trial *trial, struct results *results)
{
	bool late = false;
	char text[512];
	int status = 0;
	off_t at = 0;
	ssize_t n;

	while (waitpid(trial->pid, &status, WNOHANG) != trial->pid) {
		if (now_ms() > trial->deadline) {
			late = true;
			kill(trial->pid, SIGKILL);
			waitpid(trial->pid, &status, 0);
			break;
		}
		sleep_ms(1);
	}
	if (!late && WIFEXITED(status) && WEXITSTATUS(status) == SUCCEEDED)
		results->succeeded[trial->call]++;
	else if (!late && WIFEXITED(status) && WEXITSTATUS(status) == ERROR)
		results->errors[trial->call]++;
	else if (!late && WIFEXITED(status) && WEXITSTATUS(status) == NOT_REACHED)
		results->not_reached++;
	else {
		results->bad++;
		fprintf(stderr, "%s, call %u, %s: %s %d\n", call_names[trial->call], trial->nth, strerrorname_np(trial->error),
			late ? "hung" : WIFSIGNALED(status) ? "ended by signal" : "failed with",
			late ? 0 : WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		while ((n = pread(trial->output, text, sizeof(text), at)) > 0)
			at += write(STDERR_FILENO, text, (size_t)n);
	}
	close(trial->output);
	trial->pid = 0;
}

static void
start_trial(struct side *side, struct trial *trial, unsigned slot)
{
	fflush(NULL);
	trial->deadline = now_ms() + CHILD_SECONDS * 1000;
	trial->output = memfd_create("output", MFD_CLOEXEC);
	EXPECT(trial->output >= 0, "%s", strerror(errno));
	trial->pid = fork();
	EXPECT(trial->pid >= 0, "%s", strerror(errno));
	if (trial->pid == 0) {
		/* the descriptors of other children must not count */
		for (int i = 0; i < AT_ONCE; i++)
			if (running[i].pid != 0 && &running[i] != trial)
				close(running[i].output);
		run_trial(side, trial, slot);
	}
}

static void
nobody(struct side *side)
{
	(void)side;
}

static void
fail_all(struct side *side, const char *crc)
{
	static struct trial all[20000];
	struct rng rng = rng_of("failing calls", 0);
	struct trial none = {0};
	struct results results = {{0}};
	uint64_t began = now_ms();
	/* STRESS_CALL: the failures of this call alone */
	const char *only = getenv("STRESS_CALL");
	unsigned least[CALL_COUNT] = {0};
	unsigned wanted;
	unsigned n = 0;

	setenv("SOFTVERBS_CRC", crc, 1);
	reset_shared();
	setenv("SOFTVERBS_REPLY_TIMEOUT_MS", "1000", 1);
	/* the number of polls without an event varies: the minimum of some runs is always reached */
	for (int run = 0; run < 4; run++) {
		start_trial(side, &none, 0);
		collect(&none, &results);
		EXPECT(results.bad == 0, "without any failure");
		for (int i = 0; i < CALL_COUNT; i++)
			if (run == 0 || shared->counts[i] < least[i])
				least[i] = shared->counts[i];
	}
	memcpy(shared->counts, least, sizeof(least));
	results.not_reached = 0;
	for (size_t i = 0; i < FAILURES; i++)
		for (unsigned nth = 1; nth <= shared->counts[failures[i].call] && nth <= MOST_OF_A_CALL; nth++)
			for (int e = 0; e < 4 && failures[i].errors[e] != 0; e++) {
				EXPECT(n < sizeof(all) / sizeof(all[0]));
				if (only == NULL || only[0] == '\0' || strcmp(only, call_names[failures[i].call]) == 0)
					all[n++] = (struct trial){.call = failures[i].call, .nth = nth, .error = failures[i].errors[e]};
			}
	/* the short run is a random part of them */
	for (unsigned i = n; i-- > 1;) {
		unsigned k = (unsigned)rng_below(&rng, i + 1);
		struct trial other = all[k];

		all[k] = all[i];
		all[i] = other;
	}
	wanted = amount(300, n);
	if (wanted > n)
		wanted = n;
	for (unsigned i = 0; i < wanted + AT_ONCE; i++) {
		struct trial *slot = &running[i % AT_ONCE];

		if (slot->pid != 0)
			collect(slot, &results);
		if (i >= wanted)
			continue;
		*slot = all[i];
		start_trial(side, slot, i % AT_ONCE);
	}
	figures("     %u of %u failures of calls, %u of them not reached, in %llu ms", wanted, n, results.not_reached, (unsigned long long)(now_ms() - began));
	for (int i = 0; i < CALL_COUNT; i++)
		if (results.succeeded[i] + results.errors[i] > 0)
			figures("     %-18s %4u calls, %4u failures: %4u times all succeeded nevertheless, %4u documented errors",
				call_names[i], shared->counts[i], results.succeeded[i] + results.errors[i], results.succeeded[i],
				results.errors[i]);
	EXPECT(results.bad == 0, "%u of %u", results.bad, wanted);
	EXPECT(results.not_reached <= wanted / 4, "%u of %u were not reached", results.not_reached, wanted);
}

static void
failing_initiator(struct side *side)
{
	fail_all(side, "0");
}

static void
failing_with_crc(struct side *side)
{
	fail_all(side, "1");
}

const struct test syscalls_tests[] = {
	{"system-calls-fail", nobody, failing_initiator, .seconds = 60},
	{"system-calls-fail-with-crc", nobody, failing_with_crc, .seconds = 60},
	{.name = NULL},
};
