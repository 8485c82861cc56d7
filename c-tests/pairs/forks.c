/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * forks.c -- a child that was forked while other threads of its parent executed library code can create
 * objects.
 */
#include "link.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* AddressSanitizer makes a fork five times slower; hanging children are found without it, too */
#ifdef __SANITIZE_ADDRESS__
#define FORKS 200
#else
#define FORKS 1500
#endif
#define SIZE 4096
#define REGISTRARS 3
/* for a child, which needs milliseconds */
#define LIMIT_S 10
/* the exit status of a child that hung */
#define HUNG 99
#define FRAMES 64

static atomic_bool over;
static atomic_uint registered;

/* Registers and deregisters in a loop. */
static void *
registrar(void *arg)
{
	struct node *node = arg;
	char *memory = pages(SIZE);

	while (!over) {
		struct rpma_mr_local *mrs[4];

		for (unsigned i = 0; i < 4; i++)
			OK(rpma_mr_reg(node->peer, memory, SIZE, RPMA_MR_USAGE_WRITE_DST, &mrs[i]));
		for (unsigned i = 0; i < 4; i++)
			OK(rpma_mr_dereg(&mrs[i]));
		registered += 4;
	}
	return NULL;
}

/* Listens and stops listening in a loop, with a separate peer. */
static void *
listener(void *arg)
{
	struct node *node = arg;

	while (!over) {
		struct rpma_ep *ep = NULL;

		OK(rpma_ep_listen(node->peer, node->side->addr, "0", &ep));
		OK(rpma_ep_shutdown(&ep));
	}
	return NULL;
}

/* Prints where the child hangs. */
static void
report_hang(int signal)
{
	void *frames[FRAMES];

	(void)signal;
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
	_exit(HUNG);
}

/* Creates new objects: those of the parent belong to the parent. */
static void
child(struct side *side)
{
	struct region region;
	struct node node;

	signal(SIGALRM, report_hang);
	alarm(LIMIT_S);
	open_peer(&node, side);
	region_new(&node, &region, SIZE, RPMA_MR_USAGE_WRITE_DST);
	OK(rpma_ep_listen(node.peer, side->addr, "0", &node.ep));
	close_with_region(&node, &region);
	_exit(0);
}

static void
forking_initiator(struct side *side)
{
	pthread_t threads[REGISTRARS + 1];
	struct node listening;
	struct node node;
	unsigned hung = 0;
	void *frame;

	/* its first call loads a library, which a hanging child must not do */
	backtrace(&frame, 1);
	open_peer(&node, side);
	open_peer(&listening, side);
	for (unsigned i = 0; i < REGISTRARS; i++)
		EXPECT(pthread_create(&threads[i], NULL, registrar, &node) == 0);
	EXPECT(pthread_create(&threads[REGISTRARS], NULL, listener, &listening) == 0);
	/* one child that hangs decides */
	for (unsigned i = 0; i < FORKS && hung < 1; i++) {
		pid_t pid = fork();
		int status;

		EXPECT(pid >= 0, "%s", strerror(errno));
		if (pid == 0)
			child(side);
		EXPECT(waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
		if (WIFEXITED(status) && WEXITSTATUS(status) == HUNG)
			hung++;
		else
			EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %u: status 0x%x", i, status);
	}
	over = true;
	for (unsigned i = 0; i < REGISTRARS + 1; i++)
		EXPECT(pthread_join(threads[i], NULL) == 0);
	EXPECT(hung == 0, "%u children hung", hung);
	EXPECT(registered > FORKS, "only %u registrations while %u children were forked: the check proves nothing", registered, FORKS);
	close_node(&listening);
	close_node(&node);
}

/* Strict mode has additional tables. */
static void
strict_initiator(struct side *side)
{
	setenv("SOFTVERBS_STRICT", "adapter", 1);
	forking_initiator(side);
}

static void
no_target(struct side *side)
{
	(void)side;
}

const struct test forks_tests[] = {
	{"fork-while-threads-register", no_target, forking_initiator, .seconds = 120},
	{"fork-while-threads-register-strict", no_target, strict_initiator, .seconds = 120},
	{.name = NULL},
};
