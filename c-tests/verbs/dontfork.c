/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dontfork.c -- after ibv_fork_init() children do not inherit the memory of regions, and madvise() may fail:
 * the results of ibv_rereg_mr() that report that. If the kernel copies such pages at a fork
 * (IBV_FORK_UNNEEDED), there is no madvise() that could fail.
 */
#include "ends.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 4096
#define FULL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define TRANSLATION IBV_REREG_MR_CHANGE_TRANSLATION

/* This advice fails at this address. */
static int refused;
static char *refused_at;

/* Overrides that of the C library, also for libibverbs. */
int
madvise(void *addr, size_t length, int advice)
{
	if (advice == refused && refused_at >= (char *)addr && refused_at < (char *)addr + length) {
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_madvise, addr, length, advice);
}

/* Memory without a neighbouring mapping, which madvise() could cover together with it. */
static char *
island(int protection)
{
	char *memory = mmap(NULL, 3 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(memory != MAP_FAILED, "%s", strerror(errno));
	DONE(mprotect(memory + SIZE, SIZE, protection));
	return memory + SIZE;
}

/* Whether a child inherits the memory. */
static bool
child_has(const char *memory)
{
	int status;
	pid_t pid = fork();

	EXPECT(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(volatile const char *)memory == 0 ? 0 : 1);
	}
	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV), "status %#x", status);
	return status == 0;
}

static void
waiting_t(struct side *side)
{
	struct end end;

	accept_end(&end, side);
	await(side, 'd');
	close_end(&end);
}

static void
kept_i(struct side *side)
{
	char *memory = island(PROT_READ | PROT_WRITE), *other = island(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr, *second;
	struct end end;
	bool marks;

	DONE(ibv_fork_init());
	marks = ibv_is_fork_initialized() == IBV_FORK_ENABLED;
	connect_end(&end, side);
	mr = REG_MR(end.pd, memory, SIZE, FULL);
	EXPECT(child_has(memory) == !marks);
	/* until the last region is deregistered */
	second = ibv_reg_mr_iova(end.pd, memory, SIZE, 0, FULL);
	MADE(second);
	DONE(ibv_dereg_mr(mr));
	EXPECT(child_has(memory) == !marks);
	DONE(ibv_rereg_mr(second, TRANSLATION, NULL, other, SIZE, 0));
	EXPECT(child_has(memory) && child_has(other) == !marks);
	DONE(ibv_dereg_mr(second));
	EXPECT(child_has(other));
	/* a failed registration changes nothing */
	EXPECT(ibv_reg_mr(end.pd, memory, SIZE, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
	EXPECT(child_has(memory));
	notify(side, 'd');
	close_end(&end);
}

static void
results_i(struct side *side)
{
	char *old = island(PROT_READ | PROT_WRITE), *new = island(PROT_READ | PROT_WRITE), *barred = island(PROT_NONE);
	struct ibv_mr *mr;
	struct end end;
	bool marks;
	int code;

	DONE(ibv_fork_init());
	marks = ibv_is_fork_initialized() == IBV_FORK_ENABLED;
	connect_end(&end, side);
	mr = REG_MR(end.pd, old, SIZE, FULL);

	/* MADV_DONTFORK fails for the new memory: the region is unchanged */
	refused = MADV_DONTFORK;
	refused_at = new;
	code = ibv_rereg_mr(mr, TRANSLATION, NULL, new, SIZE, 0);
	EXPECT(code == (marks ? IBV_REREG_MR_ERR_DONT_FORK_NEW : 0), "%d, %s", code, strerror(errno));
	EXPECT(mr->addr == (marks ? old : new), "%p", mr->addr);
	refused = 0;
	DONE(ibv_rereg_mr(mr, TRANSLATION, NULL, old, SIZE, 0));

	/*
	 * MADV_DOFORK fails for the old memory: ibv_dofork_range() of libibverbs 44 reports success,
	 * otherwise this were IBV_REREG_MR_ERR_DO_FORK_OLD
	 */
	refused = MADV_DOFORK;
	refused_at = old;
	code = ibv_rereg_mr(mr, TRANSLATION, NULL, new, SIZE, 0);
	EXPECT(code == 0 || (marks && code == IBV_REREG_MR_ERR_DO_FORK_OLD), "%d, %s", code, strerror(errno));
	EXPECT(mr->addr == new && mr->length == SIZE);
	refused = 0;

	/*
	 * memory that may not be read: the command fails, and the region is no longer valid; MADV_DOFORK
	 * fails for the new memory
	 */
	refused = MADV_DOFORK;
	refused_at = barred;
	code = ibv_rereg_mr(mr, TRANSLATION, NULL, barred, SIZE, 0);
	EXPECT(code == IBV_REREG_MR_ERR_CMD || (marks && code == IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW), "%d, %s", code,
		strerror(errno));
	refused = 0;
	DONE(ibv_dereg_mr(mr));

	refused = MADV_DONTFORK;
	refused_at = old;
	mr = ibv_reg_mr(end.pd, old, SIZE, FULL);
	EXPECT((mr == NULL) == marks, "%s", strerror(errno));
	if (mr != NULL)
		DONE(ibv_dereg_mr(mr));
	notify(side, 'd');
	close_end(&end);
}

const struct test dontfork[] = {
	{.name = "fork-init-keeps-regions-from-children", .target = waiting_t, .initiator = kept_i},
	{.name = "rereg-mr-after-fork-init", .target = waiting_t, .initiator = results_i},
	{.name = NULL},
};
