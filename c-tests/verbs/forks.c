/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * forks.c -- programs that fork: a child does not use the objects of its parent, and the parent is not
 * affected
 */
#include "ends.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (16 * 4096)
#define CHILDREN 24
#define ROUNDS 10
#define LAST 1000000
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* The initiator continuously writes a pattern to the target, and reads it back. */
struct traffic {
	struct end end;
	struct place place;
	char *out, *in;
	struct ibv_mr *from, *to;
	atomic_bool over;
	atomic_uint rounds;
	pthread_t thread;
};

static void
once_around(struct traffic *traffic, unsigned seed)
{

	fill_pattern(traffic->out, SIZE, seed);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &traffic->end, IBV_WR_RDMA_WRITE, traffic->from, traffic->out, SIZE, traffic->place.addr, traffic->place.rkey);
	EXPECT_TRANSFER(IBV_WC_SUCCESS, &traffic->end, IBV_WR_RDMA_READ, traffic->to, traffic->in, SIZE, traffic->place.addr, traffic->place.rkey);
	check_pattern(traffic->in, SIZE, seed, "what was read back");
}

static void *
pump(void *arg)
{
	struct traffic *traffic = arg;

	for (unsigned seed = 1; !traffic->over; seed++) {
		once_around(traffic, seed);
		traffic->rounds++;
	}
	return NULL;
}

static void
start(struct traffic *traffic, struct side *side)
{
	memset(traffic, 0, sizeof(*traffic));
	connect_end(&traffic->end, side);
	receive_bytes(side, &traffic->place, sizeof(traffic->place));
	traffic->out = pages(SIZE);
	traffic->in = pages(SIZE);
	traffic->from = REG_MR(traffic->end.pd, traffic->out, SIZE, 0);
	traffic->to = REG_MR(traffic->end.pd, traffic->in, SIZE, IBV_ACCESS_LOCAL_WRITE);
	EXPECT(pthread_create(&traffic->thread, NULL, pump, traffic) == 0, "");
}

static void
wait_for_rounds(struct traffic *traffic, unsigned more)
{
	unsigned until = traffic->rounds + more;

	while (traffic->rounds < until)
		sleep_ms(1);
}

/* The last pattern is the one that the target expects. */
static void
finish(struct traffic *traffic)
{
	traffic->over = true;
	EXPECT(pthread_join(traffic->thread, NULL) == 0, "");
	once_around(traffic, LAST);
}

static void
close_all(struct traffic *traffic)
{
	DONE(ibv_dereg_mr(traffic->from));
	DONE(ibv_dereg_mr(traffic->to));
	close_end(&traffic->end);
}

static void
reap(pid_t pid)
{
	int status;

	EXPECT(waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child ended with status 0x%x", status);
}

/*
 * Children that end immediately, that execute another program, and that call the functions that destroy
 * objects at the end of a program.
 */
static void
fork_children(void)
{
	for (unsigned i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		EXPECT(pid >= 0, "%s", strerror(errno));
		if (pid == 0 && i % 3 == 0)
			_exit(7);
		if (pid == 0 && i % 3 == 1)
			exit(7);
		if (pid == 0) {
			execl("/bin/sh", "sh", "-c", "exit 7", NULL);
			_exit(1);
		}
		reap(pid);
	}
}

/* A child that shares the pages of its parent's regions until the parent ends it. */
static pid_t
sleeping_child(void)
{
	pid_t pid = fork();

	EXPECT(pid >= 0, "%s", strerror(errno));
	while (pid == 0)
		pause();
	return pid;
}

static void
end_child(pid_t pid)
{
	EXPECT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "%s", strerror(errno));
}

/*
 * The target forks in between as well: its memory is then written by a peer while a child has the same pages.
 */
static void
forking_t(struct side *side, bool init)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;
	pid_t child;

	if (init)
		DONE(ibv_fork_init());
	mr = accept_with_memory(&end, side, memory, SIZE, FULL);
	fork_children();
	child = sleeping_child();
	notify(side, 'f');
	await(side, 'f');
	/* the connection has not ended */
	EXPECT(poll(&(struct pollfd){.fd = end.id->channel->fd, .events = POLLIN}, 1, 0) == 0, "an event");
	notify(side, 'e');
	await(side, 'd');
	/* the last writes of the peer are in the memory of this process, not in the child's copy */
	check_pattern(memory, SIZE, LAST, "the target's memory");
	end_child(child);
	close_with_memory(&end, mr);
}

static void
forking_i(struct side *side, bool init)
{
	struct traffic traffic;
	unsigned fds;
	pid_t child;

	if (init)
		DONE(ibv_fork_init());
	start(&traffic, side);
	wait_for_rounds(&traffic, ROUNDS);
	fds = count_fds();
	fork_children();
	child = sleeping_child();
	await(side, 'f');
	wait_for_rounds(&traffic, ROUNDS);
	notify(side, 'f');
	await(side, 'e');
	EXPECT(count_fds() == fds, "%u descriptors, there were %u", count_fds(), fds);
	finish(&traffic);
	notify(side, 'd');
	close_all(&traffic);
	end_child(child);
}

static void plain_t(struct side *side) { forking_t(side, false); }
static void plain_i(struct side *side) { forking_i(side, false); }
static void init_t(struct side *side) { forking_t(side, true); }
static void init_i(struct side *side) { forking_i(side, true); }

/*
 * A child that destroys objects of its parent affects neither the connection nor the peer. It may block
 * forever on a lock of a thread that it does not have: the other thread of its parent was in a call.
 */
static void
stays_t(struct side *side)
{
	offer_until_done(side, SIZE, FULL);
}

static void
destroying_i(struct side *side)
{
	struct traffic traffic;

	start(&traffic, side);
	wait_for_rounds(&traffic, ROUNDS);
	for (unsigned i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();
		int status;

		EXPECT(pid >= 0, "%s", strerror(errno));
		if (pid == 0) {
			ualarm(200000, 0);
			rdma_disconnect(traffic.end.id);
			ibv_dereg_mr(traffic.from);
			ibv_dereg_mr(traffic.to);
			rdma_destroy_ep(traffic.end.id);
			_exit(7);
		}
		EXPECT(waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
		EXPECT(WIFSIGNALED(status) ? WTERMSIG(status) == SIGALRM : WEXITSTATUS(status) == 7, "the child ended with status 0x%x", status);
	}
	wait_for_rounds(&traffic, ROUNDS);
	finish(&traffic);
	close_all(&traffic);
	notify(side, 'd');
}

/* A child has its own objects and connections, while those of its parent continue. */
static void
child_target(struct side *side, int sync)
{
	struct side own = *side;

	own.sync = sync;
	stays_t(&own);
}

static void
connecting_t(struct side *side)
{
	struct end end;
	char *memory = pages(SIZE);
	struct ibv_mr *mr;
	int status;
	pid_t pid;

	mr = accept_with_memory(&end, side, memory, SIZE, FULL);
	await(side, 'c');
	/* the listener of this process uses the port, and the child must not use that listener */
	DONE(rdma_destroy_id(end.listener));
	end.listener = NULL;
	pid = fork();
	EXPECT(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		child_target(side, side->sync);
		_exit(7);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child ended with status 0x%x", status);
	notify(side, 'e');
	await(side, 'd');
	close_with_memory(&end, mr);
}

static void
connecting_i(struct side *side)
{
	struct traffic traffic;
	pid_t pid;

	start(&traffic, side);
	wait_for_rounds(&traffic, ROUNDS);
	notify(side, 'c');
	pid = fork();
	EXPECT(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		struct traffic own;

		alarm(15);
		start(&own, side);
		wait_for_rounds(&own, ROUNDS);
		finish(&own);
		close_all(&own);
		notify(side, 'd');
		_exit(7);
	}
	reap(pid);
	await(side, 'e');
	wait_for_rounds(&traffic, ROUNDS);
	finish(&traffic);
	close_all(&traffic);
	notify(side, 'd');
}

const struct test forks[] = {
	{.name = "fork-under-traffic", .target = plain_t, .initiator = plain_i, .seconds = 40},
	{.name = "fork-under-traffic-after-fork-init", .target = init_t, .initiator = init_i, .seconds = 40},
	{.name = "fork-child-destroys", .target = stays_t, .initiator = destroying_i, .seconds = 40},
	{.name = "fork-child-connects", .target = connecting_t, .initiator = connecting_i, .seconds = 40},
	{.name = NULL},
};
