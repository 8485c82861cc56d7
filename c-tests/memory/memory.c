/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.c -- a program calls all functions of the library while an allocation, or a system call that needs
 * memory or a descriptor, fails: each in turn, in a separate process; all those of one call of the library;
 * all from some call on; all while other programs connect; and those that the kernel refuses in a limited
 * address space.
 *
 * Each process runs the scenario once with the failure and then once more without. It passes when it ends
 * without a signal, the calls of the scenario returned 0 or an error that their documentation lists,
 * connections were established or ended with an event, all objects could be deleted, the second run
 * succeeded, and no more blocks and descriptors remain than without a failure.
 */
#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <librpma.h>

#define SIZE 65536
#define DESCRIPTOR 21
#define WAIT_MS 3000
#define CHILD_S 40
#define MOST_CALLS 160
#define ALL_USAGES                                                                                                      \
	(RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST |          \
		RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_SEND |        \
		RPMA_MR_USAGE_RECV)

/* The report of a process to its parent. */
struct report {
	unsigned long seen;
	unsigned long failed;
	unsigned calls; /* of the library, in the first run */
	unsigned nomem; /* of those, how many returned RPMA_E_NOMEM */
	unsigned others; /* how many returned another documented error */
	unsigned ended; /* connections and operations that ended with an event or an error completion */
	long blocks;
	unsigned fds;
	char wrong[512]; /* the error, or empty */
};

static struct report *report;

static void
wrong(const char *format, ...)
{
	va_list ap;

	if (report->wrong[0] != '\0')
		return;
	va_start(ap, format);
	vsnprintf(report->wrong, sizeof(report->wrong), format, ap);
	va_end(ap);
}

/*
 * ---- calls ------------------------------------------------------------------------------------------------------------------
 */

/* Allocations fail from the first to the second of these calls. 0, 0: this does not apply. */
static unsigned out_from;
static unsigned out_to;
/* True in the first run, whose calls count. */
static bool counts;

static void
before_call(void)
{
	if (!counts)
		return;
	report->calls++;
	if (out_from != 0)
		fail_armed = report->calls >= out_from && report->calls <= out_to;
}

static int
after_call(int ret)
{
	if (counts && out_from != 0 && report->calls == out_to)
		fail_armed = false;
	return ret;
}

/*
 * Whether a call succeeded. A failing allocation may lead to RPMA_E_NOMEM, or to RPMA_E_PROVIDER if a
 * function of libibverbs or librdmacm fails, as documented for the call.
 */
static bool
succeeded(int ret, const char *call)
{
	if (ret == 0)
		return true;
	if (!counts)
		wrong("%s returned %d although nothing failed", call, ret);
	else if (ret == RPMA_E_NOMEM)
		report->nomem++;
	else if (ret == RPMA_E_PROVIDER)
		report->others++;
	else
		wrong("%s returned %d", call, ret);
	return false;
}

#define CALL(call) (before_call(), succeeded(after_call(call), #call))
/* Deleting an object always succeeds. */
#define DELETE(call)                                                                                                    \
	do {                                                                                                            \
		int ret_;                                                                                               \
                                                                                                                        \
		before_call();                                                                                          \
		ret_ = after_call(call);                                                                                \
		if (ret_ != 0)                                                                                          \
			wrong("%s returned %d", #call, ret_);                                                           \
	} while (0)

/*
 * ---- the scenario -----------------------------------------------------------------------------------------------------------
 */

struct end {
	struct rpma_peer *peer;
	void *memory;
	struct rpma_mr_local *mr;
	struct rpma_conn_cfg *cfg;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_cq *cq;
	struct rpma_mr_remote *remote;
	bool established;
	bool closing; /* its end is expected */
	bool over;
};

struct pair {
	struct end target;
	struct end initiator;
	struct rpma_ep *ep;
	struct rpma_srq *srq;
	struct rpma_cq *receives;
	char port[8];
};

static uint64_t
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool
readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static void
free_port(char *port, size_t size)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* does not count */

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) != 0 || getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
		wrong("no port: %s", strerror(errno));
	snprintf(port, size, "%u", ntohs(addr.sin_port));
	close(fd);
}

static bool
open_end(struct end *end, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *dev = NULL;

	return CALL(rpma_utils_get_ibv_context("127.0.0.1", type, &dev)) && CALL(rpma_peer_new(dev, &end->peer)) &&
		CALL(rpma_mr_reg(end->peer, end->memory, SIZE, ALL_USAGES, &end->mr)) && CALL(rpma_conn_cfg_new(&end->cfg));
}

static bool
connect_end(struct end *end)
{
	struct rpma_peer_cfg *pcfg = NULL;
	char words[DESCRIPTOR + 1];
	struct rpma_conn_private_data pdata = {words, sizeof(words)};
	bool good;

	if (!CALL(rpma_mr_get_descriptor(end->mr, words)) || !CALL(rpma_peer_cfg_new(&pcfg)))
		return false;
	good = CALL(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true)) &&
		CALL(rpma_peer_cfg_get_descriptor(pcfg, words + DESCRIPTOR)) && CALL(rpma_conn_req_connect(&end->req, &pdata, &end->conn));
	DELETE(rpma_peer_cfg_delete(&pcfg));
	return good;
}

/* Fetches the next event of a connection, and sets its state. */
static bool
next_event(struct end *end, const char *who)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	int fd;

	if (!CALL(rpma_conn_get_event_fd(end->conn, &fd)))
		return false;
	if (!readable(fd, WAIT_MS)) {
		wrong("no event for the %s", who);
		return false;
	}
	if (!CALL(rpma_conn_next_event(end->conn, &event)))
		return false;
	if (event == RPMA_CONN_ESTABLISHED) {
		end->established = true;
		return true;
	}
	end->over = true;
	report->ended += counts && !end->closing;
	if (!counts && !end->closing)
		wrong("the %s: %s although nothing failed", who, rpma_utils_conn_event_2str(event));
	return false;
}

static bool
take_offer(struct end *end)
{
	struct rpma_conn_private_data pdata;
	struct rpma_peer_cfg *pcfg = NULL;
	bool good;

	if (!CALL(rpma_conn_get_private_data(end->conn, &pdata)))
		return false;
	if (pdata.len != DESCRIPTOR + 1) {
		wrong("private data of %u bytes", pdata.len);
		return false;
	}
	if (!CALL(rpma_mr_remote_from_descriptor(pdata.ptr, DESCRIPTOR, &end->remote)) ||
		!CALL(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + DESCRIPTOR, 1, &pcfg)))
		return false;
	good = CALL(rpma_conn_apply_remote_peer_cfg(end->conn, pcfg));
	DELETE(rpma_peer_cfg_delete(&pcfg));
	return good && CALL(rpma_conn_get_cq(end->conn, &end->cq));
}

static bool
set_up(struct pair *pair)
{
	struct rpma_srq_cfg *srq_cfg = NULL;
	struct end *target = &pair->target;
	struct end *initiator = &pair->initiator;
	bool good;
	int fd;

	if (!open_end(target, RPMA_UTIL_IBV_CONTEXT_LOCAL) || !open_end(initiator, RPMA_UTIL_IBV_CONTEXT_REMOTE))
		return false;
	if (!CALL(rpma_srq_cfg_new(&srq_cfg)))
		return false;
	good = CALL(rpma_srq_cfg_set_rq_size(srq_cfg, 64)) && CALL(rpma_srq_cfg_set_rcq_size(srq_cfg, 64)) &&
		CALL(rpma_srq_new(target->peer, srq_cfg, &pair->srq));
	DELETE(rpma_srq_cfg_delete(&srq_cfg));
	if (!good || !CALL(rpma_srq_get_rcq(pair->srq, &pair->receives)) || !CALL(rpma_conn_cfg_set_srq(target->cfg, pair->srq)) ||
		!CALL(rpma_srq_recv(pair->srq, target->mr, 0, 64, (void *)1)))
		return false;
	if (!CALL(rpma_ep_listen(target->peer, "127.0.0.1", pair->port, &pair->ep)) || !CALL(rpma_ep_get_fd(pair->ep, &fd)))
		return false;
	if (!CALL(rpma_conn_req_new(initiator->peer, "127.0.0.1", pair->port, initiator->cfg, &initiator->req)) ||
		!CALL(rpma_conn_req_recv(initiator->req, initiator->mr, 0, 64, (void *)2)) || !connect_end(initiator))
		return false;
	if (!readable(fd, WAIT_MS)) {
		/* the target had no memory for the request: then the initiator gets an event */
		next_event(initiator, "initiator");
		if (initiator->established)
			wrong("established without a request");
		return false;
	}
	if (!CALL(rpma_ep_next_conn_req(pair->ep, target->cfg, &target->req)) || !connect_end(target))
		return false;
	return next_event(initiator, "initiator") && next_event(target, "target") && take_offer(initiator) && take_offer(target);
}

/* Polls for a completion until a timeout; without a failure it must be successful. */
static bool
completes(struct rpma_cq *cq, struct pair *pair, const char *what)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	struct ibv_wc wc;
	int ret;

	(void)pair;
	do {
		before_call();
		ret = after_call(rpma_cq_get_wc(cq, 1, &wc, NULL));
		/* the number of such calls varies: all count as one */
		if (counts && ret == RPMA_E_NO_COMPLETION)
			report->calls--;
	} while (ret == RPMA_E_NO_COMPLETION && now_ms() < deadline);
	if (ret == RPMA_E_NO_COMPLETION) {
		wrong("%s does not complete", what);
		return false;
	}
	if (!succeeded(ret, "rpma_cq_get_wc"))
		return false;
	if (wc.status == IBV_WC_SUCCESS)
		return true;
	report->ended += counts;
	if (!counts)
		wrong("%s: status %d although nothing failed", what, wc.status);
	return false;
}

/* The same, sleeping instead of polling. */
static bool
awaited(struct rpma_cq *cq, struct pair *pair, const char *what)
{
	int fd;

	if (!CALL(rpma_cq_get_fd(cq, &fd)))
		return false;
	if (!readable(fd, WAIT_MS)) {
		wrong("%s does not raise an event", what);
		return false;
	}
	return CALL(rpma_cq_wait(cq)) && completes(cq, pair, what);
}

#define ALWAYS RPMA_F_COMPLETION_ALWAYS, (void *)7

static bool
use(struct pair *pair)
{
	struct end *t = &pair->target;
	struct end *i = &pair->initiator;
	char *from = i->memory;
	char *to = t->memory;
	const char word[8] = "8 bytes";

	memset(from + 4096, 'w', 16384);
	memset(to + 4096, 0, 32768);
	if (!CALL(rpma_write(i->conn, i->remote, 4096, i->mr, 4096, 16384, ALWAYS)) || !awaited(i->cq, pair, "the write"))
		return false;
	if (!CALL(rpma_flush(i->conn, i->remote, 4096, 16384, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS)) ||
		!completes(i->cq, pair, "the persistent flush"))
		return false;
	if (memcmp(from + 4096, to + 4096, 16384) != 0)
		wrong("the flushed data are wrong");
	if (!CALL(rpma_atomic_write(i->conn, i->remote, 32768, word, ALWAYS)) || !completes(i->cq, pair, "the atomic write") ||
		!CALL(rpma_flush(i->conn, i->remote, 32768, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS)) ||
		!completes(i->cq, pair, "the flush"))
		return false;
	if (memcmp(to + 32768, word, 8) != 0)
		wrong("the word was not written");
	if (!CALL(rpma_read(i->conn, i->mr, 40960, i->remote, 32768, 8, ALWAYS)) || !completes(i->cq, pair, "the read"))
		return false;
	if (memcmp(from + 40960, word, 8) != 0)
		wrong("the word was not read");
	if (!CALL(rpma_send(i->conn, i->mr, 4096, 64, ALWAYS)) || !completes(i->cq, pair, "the send") ||
		!completes(pair->receives, pair, "the receive of the shared queue"))
		return false;
	return CALL(rpma_send_with_imm(t->conn, t->mr, 4096, 64, RPMA_F_COMPLETION_ALWAYS, 5, (void *)7)) && completes(t->cq, pair, "the target's send") &&
		completes(i->cq, pair, "the initiator's receive");
}

static void
close_connection(struct end *end)
{
	DELETE(rpma_mr_remote_delete(&end->remote));
	DELETE(rpma_conn_delete(&end->conn));
	DELETE(rpma_conn_req_delete(&end->req));
}

static void
close_end(struct end *end)
{
	DELETE(rpma_conn_cfg_delete(&end->cfg));
	DELETE(rpma_mr_dereg(&end->mr));
	DELETE(rpma_peer_delete(&end->peer));
}

static void
tear_down(struct pair *pair)
{
	struct end *i = &pair->initiator;
	struct end *t = &pair->target;

	if (i->established && !i->over) {
		i->closing = true;
		t->closing = true;
		DELETE(rpma_conn_disconnect(i->conn));
		next_event(i, "initiator");
		if (t->established && !t->over)
			next_event(t, "target");
	}
	close_connection(i);
	close_connection(t);
	DELETE(rpma_ep_shutdown(&pair->ep));
	DELETE(rpma_srq_delete(&pair->srq));
	close_end(i);
	close_end(t);
}

static bool
prepare(struct pair *pair)
{
	*pair = (struct pair){0};
	free_port(pair->port, sizeof(pair->port));
	pair->target.memory = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pair->initiator.memory = (char *)pair->target.memory + SIZE;
	return pair->target.memory != MAP_FAILED;
}

static bool
scenario(void)
{
	struct pair pair;
	bool good = prepare(&pair) && set_up(&pair) && use(&pair);

	tear_down(&pair);
	munmap(pair.target.memory, 2 * SIZE);
	return good;
}

/*
 * ---- a process --------------------------------------------------------------------------------------------------------------
 */

struct variant {
	const char *name;
	enum fail_kind kind;
	bool warm; /* the library has been used before, and an earlier connection stays open */
	enum { EACH, DURING_A_CALL, FROM_A_CALL_ON, WHILE_OTHERS_CONNECT, IN_A_LIMIT } when;
};

static const struct variant variants[] = {
	{"allocation-in-a-new-process", FAIL_ALLOCATIONS, false, EACH},
	{"allocation-beside-a-connection", FAIL_ALLOCATIONS, true, EACH},
	{"call-without-memory-in-a-new-process", FAIL_ALLOCATIONS, false, DURING_A_CALL},
	{"call-without-memory-beside-a-connection", FAIL_ALLOCATIONS, true, DURING_A_CALL},
	{"memory-gone-from-a-call-on", FAIL_ALLOCATIONS, true, FROM_A_CALL_ON},
	{"memory-gone-while-others-connect", FAIL_ALLOCATIONS, true, WHILE_OTHERS_CONNECT},
	{"address-space-limit", FAIL_ALLOCATIONS, false, IN_A_LIMIT},
	{"address-space-limit-beside-a-connection", FAIL_ALLOCATIONS, true, IN_A_LIMIT},
	{"system-call-in-a-new-process", FAIL_SYSTEM, false, EACH},
	{"system-call-beside-a-connection", FAIL_SYSTEM, true, EACH},
	{"call-without-descriptors", FAIL_SYSTEM, true, DURING_A_CALL},
};

/* Uses the earlier connection again, with new receives. */
static void
use_again(struct pair *beside)
{
	if (!CALL(rpma_srq_recv(beside->srq, beside->target.mr, 0, 64, (void *)1)) ||
		!CALL(rpma_recv(beside->initiator.conn, beside->initiator.mr, 0, 64, (void *)2)) || !use(beside))
		wrong("an existing connection has ended");
}

/* Connects to the port by TCP: an endpoint without memory closes that connection, and stays open itself. */
static void
connect_by_tcp(const struct pair *pair, bool refused)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte;

	addr.sin_port = htons((uint16_t)atoi(pair->port));
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0)
		wrong("connect: %s", strerror(errno));
	else if (refused && (!readable(fd, WAIT_MS) || read(fd, &byte, 1) > 0))
		wrong("a connection for which there is no memory stays open");
	close(fd);
}

/* Allocations fail during many TCP connections to the port; the established connection stays usable. */
#define TCP_CONNECTIONS 2000

static void
hold_out(struct pair *beside, bool out)
{
	fail_first = out;
	fail_count = ~0ul;
	fail_armed = true;
	for (unsigned i = 0; i < TCP_CONNECTIONS && report->wrong[0] == '\0'; i++) {
		connect_by_tcp(beside, out);
		if (i % 100 == 0)
			use_again(beside);
	}
	fail_armed = false;
}

/* The kernel itself refuses memory: the process may grow by this many bytes only. */
#define LIMITS 48
#define LIMIT_STEP(variant) ((rlim_t)((variant)->warm ? 16 : 256) * 1024)

static void
limit_to(rlim_t more)
{
	struct rlimit limit;
	char text[64];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (getrlimit(RLIMIT_AS, &limit) != 0)
		wrong("getrlimit: %s", strerror(errno));
	limit.rlim_cur = more == RLIM_INFINITY ? limit.rlim_max : (rlim_t)strtoul(text, NULL, 10) * 4096 + more;
	if (setrlimit(RLIMIT_AS, &limit) != 0)
		wrong("setrlimit: %s", strerror(errno));
}

/* How many descriptors are open; allocates no memory. */
static unsigned
count_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* The blocks and descriptors that remain without a failure. */
static struct report base;
/*
 * Each timer of the library that has not expired needs a block; an aborted run has fewer, a repeated one
 * more.
 */
#define BLOCKS_MORE 8

/*
 * The engine closes the last sockets itself. Without a failure, this waits until nothing has changed for a
 * while; afterwards, until the same number remains, or for longer than a socket can linger.
 */
static void
settle(bool is_base)
{
	unsigned unchanged = 0;

	for (unsigned ms = 0; ms < WAIT_MS; ms += 2) {
		long blocks = fail_blocks;
		unsigned fds = count_fds();

		unchanged = blocks == report->blocks && fds == report->fds ? unchanged + 1 : 0;
		report->blocks = blocks;
		report->fds = fds;
		if (is_base ? unchanged >= 100 : fds == base.fds && blocks <= base.blocks + BLOCKS_MORE)
			return;
		usleep(2000);
	}
}

static void
child(const struct variant *variant, unsigned long number)
{
	struct pair beside;
	bool good;

	alarm(CHILD_S);
	fail_kind = variant->kind;
	if (variant->warm && (!prepare(&beside) || !set_up(&beside) || !use(&beside))) {
		wrong("the earlier connection");
		return;
	}
	if (variant->when == WHILE_OTHERS_CONNECT) {
		hold_out(&beside, number != 0);
		goto afterwards;
	}
	counts = true;
	if (variant->when == EACH) {
		fail_first = number;
		fail_count = 1;
		fail_armed = true;
	} else if (variant->when == IN_A_LIMIT) {
		limit_to(number == 0 ? RLIM_INFINITY : (number - 1) * LIMIT_STEP(variant));
	} else {
		fail_first = 1;
		fail_count = ~0ul;
		out_from = number == 0 ? ~0u : (unsigned)number;
		out_to = variant->when == FROM_A_CALL_ON ? ~0u : out_from;
	}
	good = scenario();
	fail_armed = false;
	counts = false;
	if (variant->when == IN_A_LIMIT) {
		limit_to(RLIM_INFINITY);
		fail_failed = number != 0 && !good;
	}
	if (!good && fail_failed == 0)
		wrong("the scenario fails although nothing else did");
afterwards:
	report->seen = fail_seen;
	report->failed = fail_failed;
	if (variant->warm) {
		use_again(&beside);
		tear_down(&beside);
	}
	if (!scenario())
		wrong("the scenario fails afterwards");
	settle(number == 0);
}

static void
run_child(const struct variant *variant, unsigned long number)
{
	int status;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		/* a process that aborts prints the reason, which must not reach the terminal */
		int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(nowhere, STDERR_FILENO);
		child(variant, number);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		wrong("no process: %s", strerror(errno));
	else if (WIFSIGNALED(status))
		snprintf(report->wrong, sizeof(report->wrong), "ended by signal %d (%s)", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) != 0)
		snprintf(report->wrong, sizeof(report->wrong), "exited with %d", WEXITSTATUS(status));
}

/*
 * ---- all of them ------------------------------------------------------------------------------------------------------------
 */

static bool
run(const struct variant *variant)
{
	unsigned long runs;
	unsigned long killed = 0, bad = 0, unaffected = 0, failed = 0;
	unsigned nomem = 0, others = 0, ended = 0;

	run_child(variant, 0);
	base = *report;
	if (base.wrong[0] != '\0') {
		printf("FAIL %s: without a failure: %s\n", variant->name, base.wrong);
		return false;
	}
	switch (variant->when) {
	case EACH:
		runs = base.seen;
		break;
	case WHILE_OTHERS_CONNECT:
		runs = 1;
		break;
	case IN_A_LIMIT:
		runs = LIMITS;
		break;
	default:
		runs = base.calls;
	}
	for (unsigned long number = 1; number <= runs; number++) {
		run_child(variant, number);
		failed += report->failed;
		nomem += report->nomem;
		others += report->others;
		ended += report->ended;
		if (report->wrong[0] == '\0' && report->fds != base.fds)
			wrong("%u descriptors remain, %u without a failure", report->fds, base.fds);
		if (report->wrong[0] == '\0' && report->blocks > base.blocks + BLOCKS_MORE)
			wrong("%ld blocks remain, %ld without a failure", report->blocks, base.blocks);
		if (strncmp(report->wrong, "ended by signal", 15) == 0) {
			killed++;
			failed++;
		}
		if (report->wrong[0] != '\0' && ++bad <= 20)
			printf("     number %lu: %s\n", number, report->wrong);
		else if (report->wrong[0] == '\0' && report->nomem + report->others + report->ended == 0)
			unaffected++;
	}
	printf("%s %s: %lu runs, %lu failures: NOMEM %u, other errors %u, connections or operations ended %u, runs unaffected %lu, by a "
	       "signal %lu, otherwise wrong %lu\n",
		bad == 0 && failed > 0 ? "ok  " : "FAIL", variant->name, runs, failed, nomem, others, ended, unaffected, killed, bad - killed);
	fflush(stdout);
	return bad == 0 && failed > 0;
}

int
main(int argc, char *argv[])
{
	unsigned passed = 0;
	unsigned failed = 0;

	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	setenv("RPMA_PROVIDER", "soft", 1);
	/* a single number of one variant, for a debugger */
	for (unsigned v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
		bool wanted = argc == 1;

		for (int i = 1; i < argc; i++)
			wanted = wanted || strstr(variants[v].name, argv[i]) != NULL;
		if (argc == 3 && strcmp(argv[1], variants[v].name) == 0) {
			child(&variants[v], strtoul(argv[2], NULL, 10));
			printf("%s\n", report->wrong[0] != '\0' ? report->wrong : "nothing wrong");
			return report->wrong[0] != '\0';
		}
		if (wanted)
			*(run(&variants[v]) ? &passed : &failed) += 1;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed != 0 || passed == 0;
}
