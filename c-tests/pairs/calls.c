/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * calls.c -- the number of system calls of the provider.
 *
 * This program's epoll_wait(), syscall(), sendmsg(), process_vm_readv(), timerfd_settime() and getpid()
 * override libc's, so the provider calls them. A count does not depend on the speed of the machine; other
 * load changes it a little, so each limit is several times the necessary number, and a fraction of that of a
 * provider that processes each request separately.
 */
#include "link.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* Of the provider's thread: wake-ups with an event, and polls without sleeping that found none. */
static _Atomic unsigned found;
static _Atomic unsigned empty;
/* Of all threads. */
static _Atomic unsigned sends;
static _Atomic unsigned copies;
static _Atomic unsigned identities;
static _Atomic unsigned timers;

static long
real_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	static long (*_Atomic next)(long number, ...);

	if (next == NULL)
		next = (long (*)(long number, ...))dlsym(RTLD_NEXT, "syscall");
	return next(number, a, b, c, d, e, f);
}

/* Determined once per thread: the provider's thread has its name before it polls. */
static bool
is_providers_thread(void)
{
	static __thread int known;
	char name[16];
	int before = errno;

	if (known == 0) {
		prctl(PR_GET_NAME, name);
		known = strcmp(name, "softverbs") == 0 ? 1 : -1;
		errno = before;
	}
	return known > 0;
}

/*
 * Events of the descriptor on which the thread sleeps are counted; polls of others, without sleeping, belong
 * to the same event.
 */
static void
count_look(int fd, bool sleeps, int n)
{
	static __thread int sleeps_on = -1;

	if (!is_providers_thread())
		return;
	if (sleeps)
		sleeps_on = fd;
	found += n > 0 && (fd == sleeps_on || sleeps_on < 0);
	empty += n == 0 && !sleeps;
}

int
epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
	int n = (int)real_syscall(SYS_epoll_pwait, fd, (long)events, most, timeout, 0, 8);

	count_look(fd, timeout != 0, n);
	return n;
}

/* epoll_pwait2() is called by number: older C libraries lack it. */
long
syscall(long number, ...)
{
	va_list ap;
	long a[6];
	long ret;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	ret = real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_epoll_pwait2)
		count_look((int)a[0], true, (int)ret);
	return ret;
}

ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
	sends++;
	return real_syscall(SYS_sendmsg, fd, (long)message, flags, 0, 0, 0);
}

ssize_t
process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote, unsigned long remotes,
	unsigned long flags)
{
	copies++;
	return real_syscall(SYS_process_vm_readv, pid, (long)local, (long)locals, (long)remote, (long)remotes, (long)flags);
}

int
timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old)
{
	timers++;
	return (int)real_syscall(SYS_timerfd_settime, fd, flags, (long)when, (long)old, 0, 0);
}

pid_t
getpid(void)
{
	identities++;
	return (pid_t)real_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

/* Fails if the provider does not call these functions: then the counts mean nothing. */
static void
expect_counted(void)
{
	EXPECT(found > 0, "no epoll_wait of the provider's thread was counted, although it has set up a connection");
	EXPECT(sends > 0, "no sendmsg was counted, although a connection has been set up");
}

/*
 * Messages in both directions, over many connections in turn, with one queue for all receives at the target.
 * A poll moves the bytes itself; the provider's thread must not be woken for each message. While other
 * processes use the processors, the thread may run before the program that polls, for a long time; so there
 * are several series, and one in which the program was mostly first shows that polls move the bytes.
 */
#define MOST_LINKS 64
#define MESSAGE 8
#define RECEIVES (2 * MOST_LINKS)

#define ROUNDS 100
#define SERIES 60

static void
take_wc(struct rpma_cq *cq, struct ibv_wc *wc)
{
	int ret;

	while ((ret = rpma_cq_get_wc(cq, 1, wc, NULL)) == RPMA_E_NO_COMPLETION)
		;
	OK(ret);
	EXPECT(wc->status == IBV_WC_SUCCESS, "status %d", wc->status);
}

static void
answering_target(struct side *side, unsigned count)
{
	struct rpma_srq_cfg *srq_cfg = NULL;
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_cq *receives = NULL;
	struct rpma_srq *srq = NULL;
	struct link links[MOST_LINKS];
	uint32_t qp_num[MOST_LINKS];
	struct region in;
	struct region out;
	struct node node;
	unsigned before = 0;
	unsigned fewest = ROUNDS * 2;
	bool *done;

	open_target(&node, side);
	region_new(&node, &in, RECEIVES * MESSAGE, RPMA_MR_USAGE_RECV);
	region_new(&node, &out, MESSAGE, RPMA_MR_USAGE_SEND);
	done = (bool *)out.ptr;
	OK(rpma_srq_cfg_new(&srq_cfg));
	OK(rpma_srq_cfg_set_rq_size(srq_cfg, RECEIVES));
	OK(rpma_srq_cfg_set_rcq_size(srq_cfg, RECEIVES));
	OK(rpma_srq_new(node.peer, srq_cfg, &srq));
	OK(rpma_srq_cfg_delete(&srq_cfg));
	OK(rpma_srq_get_rcq(srq, &receives));
	for (uintptr_t i = 0; i < RECEIVES; i++)
		OK(rpma_srq_recv(srq, in.mr, i * MESSAGE, MESSAGE, (void *)i));
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_conn_cfg_set_srq(cfg, srq));
	for (unsigned i = 0; i < count; i++) {
		accept_link(&node, &links[i], cfg, NULL);
		OK(rpma_conn_get_qp_num(links[i].conn, &qp_num[i]));
	}
	OK(rpma_conn_cfg_delete(&cfg));
	expect_counted();
	notify(side, 'g');

	for (unsigned i = 0; !*done; i++) {
		unsigned from = i % count;
		struct ibv_wc wc;

		if (i % ROUNDS == 0)
			before = found;
		take_wc(receives, &wc);
		EXPECT(wc.qp_num == qp_num[from], "queue pair %u, expected %u", wc.qp_num, qp_num[from]);
		OK(rpma_srq_recv(srq, in.mr, wc.wr_id * MESSAGE, MESSAGE, (void *)(uintptr_t)wc.wr_id));
		/* the reply contains whether it is the last one */
		if (i % ROUNDS == ROUNDS - 1) {
			if (found - before < fewest)
				fewest = found - before;
			*done = fewest < ROUNDS / 2 || i + 1 == SERIES * ROUNDS;
		}
		OK(rpma_send(links[from].conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		take_wc(links[from].cq, &wc);
	}
	EXPECT(fewest < ROUNDS / 2, "the provider's thread was woken at least %u times in each %u rounds", fewest, ROUNDS);
	notify(side, 'd');
	for (unsigned i = 0; i < count; i++)
		await_end(&links[i]);
	OK(rpma_srq_delete(&srq));
	region_free(&in);
	close_with_region(&node, &out);
}

static void
asking_initiator(struct side *side, unsigned count)
{
	struct link links[MOST_LINKS];
	struct region in;
	struct region out;
	struct node node;

	open_initiator(&node, side);
	region_new(&node, &in, MESSAGE, RPMA_MR_USAGE_RECV);
	region_new(&node, &out, MESSAGE, RPMA_MR_USAGE_SEND);
	for (unsigned i = 0; i < count; i++)
		connect_link(&node, &links[i], NULL, NULL);
	expect_counted();
	await(side, 'g');
	for (unsigned i = 0; !*(bool *)in.ptr; i++) {
		struct link *link = &links[i % count];
		struct ibv_wc wc;

		OK(rpma_recv(link->conn, in.mr, 0, MESSAGE, (void *)1));
		OK(rpma_send(link->conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		/* which of them is first does not matter here */
		take_wc(link->cq, &wc);
		take_wc(link->cq, &wc);
	}
	await(side, 'd');
	for (unsigned i = 0; i < count; i++)
		end_link(&links[i]);
	region_free(&in);
	close_with_region(&node, &out);
}

/*
 * Both ends sleep for each completion: the kernel wakes the sleeping thread, and the provider's thread is not
 * involved. The kernel wakes the sleeping thread before any other, so other load does not matter.
 */
#define ROUNDS_ASLEEP 3000

static void
asleep(struct side *side, bool is_target)
{
	struct rpma_conn_req *req;
	struct region in;
	struct region out;
	struct node node;
	struct link link;
	struct ibv_wc wc;
	unsigned before;

	(is_target ? open_target : open_initiator)(&node, side);
	region_new(&node, &in, MESSAGE, RPMA_MR_USAGE_RECV);
	region_new(&node, &out, MESSAGE, RPMA_MR_USAGE_SEND);
	req = (is_target ? next_req : new_req)(&node, NULL);
	OK(rpma_conn_req_recv(req, in.mr, 0, MESSAGE, (void *)1));
	start_link(&link, &req, NULL);
	finish_link(&link);
	expect_counted();

	before = found;
	if (is_target)
		next_wc(link.cq, &wc);
	for (unsigned i = 0; i < ROUNDS_ASLEEP; i++) {
		/* the receives of the first message and of the first reply are already posted */
		if (is_target || i > 0)
			OK(rpma_recv(link.conn, in.mr, 0, MESSAGE, (void *)1));
		OK(rpma_send(link.conn, out.mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		/* which of them is first does not matter here */
		next_wc(link.cq, &wc);
		if (!is_target || i + 1 < ROUNDS_ASLEEP)
			next_wc(link.cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
	}
	before = found - before;
	notify(side, 'd');
	await(side, 'd');
	(is_target ? await_end : end_link)(&link);
	EXPECT(before < ROUNDS_ASLEEP / 4, "the provider's thread was woken %u times in %u rounds", before, ROUNDS_ASLEEP);
	region_free(&in);
	close_with_region(&node, &out);
}

static void
asleep_target(struct side *side)
{
	asleep(side, true);
}

static void
asleep_initiator(struct side *side)
{
	asleep(side, false);
}

/*
 * A target that polls its memory, with one processor for all its threads: a thread that polls in vain takes
 * processor time from the others.
 */
#define AWAITED 300

static void
use_one_processor(void)
{
	cpu_set_t all;
	cpu_set_t one;
	int cpu = 0;

	EXPECT(sched_getaffinity(0, sizeof(all), &all) == 0, "%s", strerror(errno));
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	EXPECT(sched_setaffinity(0, sizeof(one), &one) == 0, "%s", strerror(errno));
}

static void
spinning_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;
	unsigned before;

	use_one_processor();
	accept_with_region(&node, &link, &region, side, 4096, RPMA_MR_USAGE_WRITE_DST, NULL);
	expect_counted();
	notify(side, 'g');
	before = empty;
	for (uint64_t i = 1; i <= AWAITED; i++) {
		while (__atomic_load_n((uint64_t *)region.ptr, __ATOMIC_ACQUIRE) != i)
			;
		notify(side, 'a');
	}
	EXPECT(empty - before < 3 * AWAITED, "%u polls in vain during %u writes", empty - before, AWAITED);
	await_end(&link);
	close_with_region(&node, &region);
}

static void
awaited_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &local, side, 4096, RPMA_MR_USAGE_WRITE_SRC, NULL);
	await(side, 'g');
	for (uint64_t i = 1; i <= AWAITED; i++) {
		*(uint64_t *)local.ptr = i;
		write_part(&link, 0, &local, 0, 8);
		await(side, 'a');
	}
	end_link(&link);
	close_with_region(&node, &local);
}

/*
 * A ping-pong of unsignalled writes, each side polling its memory: no write follows another one closely, so
 * each has been passed to the kernel, or to the other side, when the call returns, and none is left to the
 * provider's thread, which might have to wait for a processor. A write that is left to that thread starts a
 * timer. Requests that the thread sends are not counted: while it processes bytes that the other side has
 * already used, it also sends requests posted meanwhile, for which no side waits.
 */
#define PINGS 4000
#define SIGNALLED 8

static void
ping_pong(struct side *side, bool target)
{
	struct region memory;
	struct region value;
	struct node node;
	struct link link;
	unsigned sent;
	unsigned left;

	if (target)
		open_target(&node, side);
	else
		open_initiator(&node, side);
	region_new(&node, &memory, 4096, RPMA_MR_USAGE_WRITE_DST);
	region_new(&node, &value, 4096, RPMA_MR_USAGE_WRITE_SRC);
	if (target)
		accept_link(&node, &link, NULL, &memory);
	else
		connect_link(&node, &link, NULL, &memory);
	expect_counted();
	notify(side, 'g');
	await(side, 'g');
	sent = sends;
	left = timers;
	for (uint64_t i = 1; i <= PINGS; i++) {
		bool signalled = i % SIGNALLED == 0;

		if (target)
			while (__atomic_load_n((uint64_t *)memory.ptr, __ATOMIC_ACQUIRE) != i)
				;
		*(uint64_t *)value.ptr = i;
		OK(rpma_write(link.conn, link.remote, 0, value.mr, 0, 8,
			signalled ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, (void *)i));
		if (signalled)
			expect_wc(link.cq, i, IBV_WC_RDMA_WRITE);
		if (!target)
			while (__atomic_load_n((uint64_t *)memory.ptr, __ATOMIC_ACQUIRE) != i)
				;
	}
	sent = sends - sent;
	left = timers - left;
	/* Writes through shared memory, and direct copies, need no sendmsg. */
	if (count_shared() == 0)
		EXPECT(sent >= PINGS, "%u writes, %u calls", PINGS, sent);
	EXPECT(left < PINGS / 25, "%u timers for %u writes", left, PINGS);
	notify(side, 'e');
	await(side, 'e');
	if (target)
		await_end(&link);
	else
		end_link(&link);
	region_free(&value);
	close_with_region(&node, &memory);
}

static void
ping_target(struct side *side)
{
	ping_pong(side, true);
}

static void
ping_initiator(struct side *side)
{
	ping_pong(side, false);
}

/*
 * Writes that are flushed immediately share the sendmsg of the flush. That is predicted from earlier writes;
 * a write without a flush arrives nevertheless, without another call of its program.
 */
#define FLUSHED 2000
#define ALONE 50

static void
flushing_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, 4096, USAGE_ALL, NULL);
	for (uint64_t i = 1; i <= ALONE; i++) {
		while (__atomic_load_n((uint64_t *)region.ptr, __ATOMIC_ACQUIRE) != i)
			sched_yield();
		notify(side, 'a');
	}
	await_end(&link);
	close_with_region(&node, &region);
}

static void
write_word(struct link *link, struct region *from, size_t slot, size_t to, uint64_t value)
{
	((uint64_t *)from->ptr)[slot] = value;
	OK(rpma_write(link->conn, link->remote, to, from->mr, slot * 8, 8, RPMA_F_COMPLETION_ON_ERROR, NULL));
}

static void
write_and_flush(struct link *link, struct region *from, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct ibv_wc wc;

		write_word(link, from, i % 2, 8, i);
		OK(rpma_flush(link->conn, link->remote, 8, 8, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
		take_wc(link->cq, &wc);
	}
}

static void
flushing_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;
	unsigned sent;

	connect_with_region(&node, &link, &local, side, 4096, RPMA_MR_USAGE_WRITE_SRC, NULL);
	expect_counted();
	sent = sends;
	write_and_flush(&link, &local, FLUSHED);
	sent = sends - sent;
	EXPECT(sent <= FLUSHED * 3 / 2, "%u calls for %u writes with a flush each", sent, FLUSHED);
	for (uint64_t i = 1; i <= ALONE; i++) {
		write_and_flush(&link, &local, 20);
		write_word(&link, &local, 2 + i % 2, 0, i);
		await(side, 'a');
	}
	end_link(&link);
	close_with_region(&node, &local);
}

/* Small writes one at a time: none is left to the provider's thread, for which a timer would be started. */
#define WAITED_FOR 5000

static void
waiting_initiator(struct side *side)
{
	struct region local;
	struct node node;
	struct link link;
	unsigned started;

	connect_with_region(&node, &link, &local, side, 4096, RPMA_MR_USAGE_WRITE_SRC, NULL);
	expect_counted();
	started = timers;
	for (uintptr_t i = 0; i < WAITED_FOR; i++) {
		OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)i));
		expect_wc(link.cq, i, IBV_WC_RDMA_WRITE);
	}
	started = timers - started;
	EXPECT(started <= WAITED_FOR / 100, "%u timers for %u writes that were waited for", started, WAITED_FOR);
	/*
	 * More than sixteen in a row start a timer, which is counted, unless a tick of the provider comes
	 * first; a while after the last poll there are no ticks.
	 */
	for (int tries = 0; timers == 0 && tries < 100; tries++) {
		write_and_flush(&link, &local, 1);
		sleep_ms(10);
		for (uint64_t i = 0; i < 30; i++)
			write_word(&link, &local, 0, 8, i);
	}
	EXPECT(timers > 0, "no timer was counted");
	end_link(&link);
	close_with_region(&node, &local);
}

/*
 * Small reads, sixteen outstanding, each posted when an earlier one has completed: reads that are posted
 * together share a sendmsg.
 */
#define IN_FLIGHT 16
#define READS 4000
#define ATTEMPTS 20

static void
post_read(struct link *link, struct region *local, uintptr_t i)
{
	OK(rpma_read(link->conn, local->mr, i % IN_FLIGHT * 8, link->remote, 0, 8, RPMA_F_COMPLETION_ALWAYS, (void *)i));
}

/* The calls of sendmsg for READS reads. */
static unsigned
read_many(struct link *link, struct region *local)
{
	unsigned sent = sends;

	for (uintptr_t i = 0; i < IN_FLIGHT; i++)
		post_read(link, local, i);
	for (uintptr_t i = 0; i < READS; i++) {
		expect_wc(link->cq, i, IBV_WC_RDMA_READ);
		if (i + IN_FLIGHT < READS)
			post_read(link, local, i + IN_FLIGHT);
	}
	return sends - sent;
}

static void
reading_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(IN_FLIGHT, IN_FLIGHT, 0, 0);
	struct region local;
	struct node node;
	struct link link;
	unsigned sent = READS;

	connect_with_region(&node, &link, &local, side, 4096, RPMA_MR_USAGE_READ_DST, cfg);
	OK(rpma_conn_cfg_delete(&cfg));
	expect_counted();
	/* on busy processors the responses may arrive one by one for a while */
	for (unsigned i = 0; i < ATTEMPTS && sent > READS / 3; i++)
		sent = read_many(&link, &local);
	EXPECT(sent <= READS / 3, "%u times sendmsg for %u reads", sent, READS);
	end_link(&link);
	close_with_region(&node, &local);
}

/*
 * Small writes in bursts, the last one of each signalled, to a target whose program sleeps: many of them
 * share a sendmsg.
 */
#define BURST 256
#define ROUND (4 * BURST)
#define SPACE (BURST * 64)

struct bursts {
	unsigned writes;
	size_t len;
};

static void
overwritten_target(struct side *side, const struct bursts *bursts)
{
	struct region region;
	struct node node;
	struct link link;
	unsigned copied;
	unsigned asked;

	accept_with_region(&node, &link, &region, side, SPACE, USAGE_ALL, NULL);
	expect_counted();
	copied = copies;
	asked = identities;
	notify(side, 'g');
	await(side, 'd');
	copied = copies - copied;
	asked = identities - asked;
	check_pattern(region.ptr, SPACE, 3, "the target's region");
	EXPECT(copied <= bursts->writes * 15 / 100 && asked <= bursts->writes * 15 / 100,
		"%u copies by the kernel and %u times getpid for %u writes", copied, asked, bursts->writes);
	/* eight bytes are stored, not copied: then no copy is counted */
	EXPECT(bursts->len == 8 || copied > 0, "no copy was counted");
	await_end(&link);
	close_with_region(&node, &region);
}

static void
bursting_initiator(struct side *side, const struct bursts *bursts)
{
	struct rpma_conn_cfg *cfg = sizes(BURST, BURST, 0, 0);
	const size_t len = bursts->len;
	struct region local;
	struct region back;
	struct node node;
	struct link link;
	unsigned fewest = UINT_MAX;
	unsigned posted = 0;
	unsigned before;

	open_initiator(&node, side);
	region_new(&node, &local, SPACE, RPMA_MR_USAGE_WRITE_SRC);
	region_new(&node, &back, SPACE, RPMA_MR_USAGE_READ_DST);
	fill_pattern(local.ptr, SPACE, 3);
	connect_link(&node, &link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	await(side, 'g');
	expect_counted();
	before = sends;
	for (size_t at = 0; posted < bursts->writes; posted++, at = (at + len) % SPACE) {
		bool last = posted % BURST == BURST - 1;

		OK(rpma_write(link.conn, link.remote, at, local.mr, at, len,
			last ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, (void *)(uintptr_t)posted));
		if (last)
			expect_wc(link.cq, posted, IBV_WC_RDMA_WRITE);
		if (posted % ROUND == ROUND - 1) {
			unsigned now = sends;

			fewest = now - before < fewest ? now - before : fewest;
			before = now;
		}
	}
	/* posted after the last write, so all have been placed */
	read_part(&link, &back, 0, 0, SPACE);
	check_pattern(back.ptr, SPACE, 3, "what was read back");
	notify(side, 'd');
	end_link(&link);
	/* on busy processors, fewer writes share a call for a while */
	EXPECT(fewest <= ROUND / 5, "at least %u times sendmsg for %u writes", fewest, ROUND);
	region_free(&local);
	close_with_region(&node, &back);
}

/*
 * Large writes to a target that receives nothing: its socket and that of the initiator are full; polls need
 * not try to send each time.
 */
#define LARGE (1 << 20)
#define LARGE_WRITES 64
#define POLLS 10000

static void
stopped_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;

	accept_with_region(&node, &link, &region, side, LARGE, USAGE_ALL, NULL);
	await(side, 'd');
	await_end(&link);
	check_pattern(region.ptr, LARGE, 5, "the target's region");
	close_with_region(&node, &region);
}

static void
full_initiator(struct side *side)
{
	struct rpma_conn_cfg *cfg = sizes(LARGE_WRITES, LARGE_WRITES, 0, 0);
	struct region local;
	struct node node;
	struct link link;
	struct ibv_wc wc;
	unsigned sent;
	unsigned done = 0;

	open_initiator(&node, side);
	region_new(&node, &local, LARGE, RPMA_MR_USAGE_WRITE_SRC);
	fill_pattern(local.ptr, LARGE, 5);
	connect_link(&node, &link, cfg, NULL);
	OK(rpma_conn_cfg_delete(&cfg));
	expect_counted();
	stop_process(*side->target_pid);
	for (uintptr_t i = 0; i < LARGE_WRITES; i++)
		OK(rpma_write(link.conn, link.remote, 0, local.mr, 0, LARGE, RPMA_F_COMPLETION_ALWAYS, (void *)i));
	sent = sends;
	for (unsigned i = 0; i < POLLS; i++)
		done += rpma_cq_get_wc(link.cq, 1, &wc, NULL) == 0;
	sent = sends - sent;
	EXPECT(done < LARGE_WRITES, "a stopped process has received %u MiB", LARGE_WRITES);
	EXPECT(sent <= POLLS / 20, "%u times sendmsg in %u polls", sent, POLLS);
	OK(kill(*side->target_pid, SIGCONT));
	for (; done < LARGE_WRITES; done++)
		take_wc(link.cq, &wc);
	notify(side, 'd');
	end_link(&link);
	close_with_region(&node, &local);
}

/* Defines the two functions of a test from what both take. */
#define TEST_OF(id, target_runs, initiator_runs, ...)                                              \
	static void id##_target(struct side *side)                                                 \
	{                                                                                          \
		target_runs(side, __VA_ARGS__);                                                    \
	}                                                                                          \
	static void id##_initiator(struct side *side)                                              \
	{                                                                                          \
		initiator_runs(side, __VA_ARGS__);                                                 \
	}

static const struct bursts words = {.writes = 10 * ROUND, .len = 8};
static const struct bursts small = {.writes = 15 * ROUND, .len = 64};

TEST_OF(polled_8, answering_target, asking_initiator, 8)
TEST_OF(polled_64, answering_target, asking_initiator, 64)
TEST_OF(words, overwritten_target, bursting_initiator, &words)
TEST_OF(small, overwritten_target, bursting_initiator, &small)

#define TEST(name, id) {name, id##_target, id##_initiator}

const struct test calls_tests[] = {
	{"calls-of-8-connections-polled", polled_8_target, polled_8_initiator, .seconds = 60},
	{"calls-of-64-connections-polled", polled_64_target, polled_64_initiator, .seconds = 60},
	{"calls-of-a-connection-asleep", asleep_target, asleep_initiator},
	{"calls-while-the-target-spins", spinning_target, awaited_initiator},
	{"calls-of-polls-with-a-full-socket", stopped_target, full_initiator},
	TEST("calls-of-a-ping-pong-in-memory", ping),
	TEST("calls-of-writes-and-flushes", flushing),
	{"calls-of-writes-waited-for", serve_anything, waiting_initiator},
	{"calls-of-reads-in-flight", serve_anything, reading_initiator},
	TEST("calls-of-8-byte-writes", words),
	TEST("calls-of-64-byte-writes", small),
	{.name = NULL},
};
