/* SPDX-License-Identifier: BSD-3-Clause */
/* harness.c -- see harness.h */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_SECONDS 20
#define GRACE_MS 3000 /* time for the other process to end after one has failed */

struct process {
	const char *who;
	pid_t pid;
	FILE *output;
	int status;
	bool ended;
};

static volatile pid_t *pids;

/* A free port below the range of ephemeral ports. */
static uint16_t
free_port(void)
{
	static unsigned next;

	if (next == 0)
		next = 14000 + (unsigned)getpid() % 5000;
	for (;; next++) {
		struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any,
			.sin6_port = htons((uint16_t)next)};
		int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
		int ret;

		if (fd < 0) {
			perror("socket");
			exit(2);
		}
		ret = bind(fd, (struct sockaddr *)&any, sizeof(any));
		close(fd);
		if (ret == 0)
			return (uint16_t)next++;
	}
}

/* The value of a setting in the environment, or its default. */
static const char *
setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : otherwise;
}

/* The tests use three addresses of this host; on an RDMA device they are replaced by other addresses. */
static const char *
address_of(const struct test *test)
{
	if (test->addr == NULL)
		return setting("PAIRS_ADDRESS", "127.0.0.1");
	if (strcmp(test->addr, "::1") == 0)
		return setting("PAIRS_ADDRESS6", test->addr);
	if (strcmp(test->addr, "localhost") == 0)
		return setting("PAIRS_NAME", test->addr);
	return test->addr;
}

/* Whether the file PAIRS_SKIP has a line with this name; what follows the name is the reason. */
static bool
left_out(const char *name, char *reason, size_t size)
{
	const char *path = setting("PAIRS_SKIP", "/dev/null");
	FILE *file = fopen(path, "r");
	bool found = false;
	char line[512];

	if (file == NULL) {
		perror(path);
		exit(2);
	}
	while (!found && fgets(line, sizeof(line), file) != NULL) {
		size_t len = strcspn(line, " \t\n");
		const char *rest = line + len + strspn(line + len, " \t");

		found = len == strlen(name) && strncmp(line, name, len) == 0;
		if (found)
			snprintf(reason, size, "%.*s", (int)strcspn(rest, "\n"), rest);
	}
	fclose(file);
	return found;
}

/*
 * The settings of one side: the provider, which on_device() checks, the file of its network namespace, and
 * the address of its GID, for connections without rdma_cm. By default both sides have the provider
 * PAIRS_PROVIDER, the namespace of this process and the address 127.0.0.1.
 */
static void
take_side(bool is_target)
{
	const char *provider = setting(is_target ? "PAIRS_TARGET_PROVIDER" : "PAIRS_INITIATOR_PROVIDER",
		setting("PAIRS_PROVIDER", "soft"));
	const char *netns = getenv(is_target ? "PAIRS_TARGET_NETNS" : "PAIRS_INITIATOR_NETNS");
	const char *gid = setting(is_target ? "PAIRS_TARGET_GID" : "PAIRS_INITIATOR_GID", "::ffff:127.0.0.1");

	setenv("PAIRS_PROVIDER", provider, 1);
	setenv("PAIRS_GID", gid, 1);
	if (netns != NULL) {
		int fd = open(netns, O_RDONLY | O_CLOEXEC);

		EXPECT(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, "%s: %s", netns, strerror(errno));
		close(fd);
	}
}

static void
start(struct process *process, const struct test *test, int sync, int other, bool is_target,
	const char *port)
{
	struct side side = {.addr = address_of(test), .sync = sync, .target_pid = &pids[0],
		.initiator_pid = &pids[1]};

	process->who = is_target ? "target" : "initiator";
	process->ended = false;
	process->output = tmpfile();
	if (process->output == NULL) {
		perror("tmpfile");
		exit(2);
	}
	/* children of the process must append to the file */
	fcntl(fileno(process->output), F_SETFL, O_APPEND);
	fflush(NULL);
	process->pid = fork();
	if (process->pid < 0) {
		perror("fork");
		exit(2);
	}
	if (process->pid > 0) {
		setpgid(process->pid, process->pid);
		pids[is_target ? 0 : 1] = process->pid;
		return;
	}

	setpgid(0, 0);
	pids[is_target ? 0 : 1] = getpid();
	close(other);
	snprintf(side.port, sizeof(side.port), "%s", port);
	dup2(fileno(process->output), STDOUT_FILENO);
	dup2(fileno(process->output), STDERR_FILENO);
	take_side(is_target);
	if (!test->raw_env)
		setenv("RPMA_PROVIDER", getenv("PAIRS_PROVIDER"), 1);
	(is_target ? test->target : test->initiator)(&side);
	exit(0);
}

/* Collects the process if it has ended. */
static void
look_at(struct process *process)
{
	if (!process->ended && waitpid(process->pid, &process->status, WNOHANG) == process->pid)
		process->ended = true;
}

/* Uses the file's size, since the file position is shared with the writer. */
static bool
has_printed(const struct process *process)
{
	struct stat st;

	return fstat(fileno(process->output), &st) != 0 || st.st_size != 0;
}

static bool
as_expected(const struct process *process, int signal)
{
	if (!process->ended || has_printed(process))
		return false;
	if (signal != 0)
		return WIFSIGNALED(process->status) && WTERMSIG(process->status) == signal;
	return WIFEXITED(process->status) && WEXITSTATUS(process->status) == 0;
}

static void
report(const struct process *process)
{
	char line[512];

	if (!process->ended)
		printf("     %s did not end in time\n", process->who);
	else if (WIFSIGNALED(process->status))
		printf("     %s was ended by signal %d\n", process->who, WTERMSIG(process->status));
	else
		printf("     %s exited with %d\n", process->who, WEXITSTATUS(process->status));
	rewind(process->output);
	while (fgets(line, sizeof(line), process->output) != NULL)
		printf("     %s: %s", process->who, line);
}

/* A failure of a run that is not the last one is printed as "again". */
static bool
run(const struct test *test, bool is_last)
{
	struct process p[2] = {{0}};
	unsigned seconds = (test->seconds != 0 ? test->seconds : DEFAULT_SECONDS) *
		(unsigned)atoi(setting("PAIRS_SLOWER", "1"));
	uint64_t deadline = now_ms() + 1000 * seconds;
	int sync[2];
	bool good;
	char port[8];

	snprintf(port, sizeof(port), "%u", free_port());
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sync) != 0) {
		perror("socketpair");
		exit(2);
	}
	pids[0] = pids[1] = 0;
	start(&p[0], test, sync[0], sync[1], true, port);
	start(&p[1], test, sync[1], sync[0], false, port);
	close(sync[0]);
	close(sync[1]);

	for (bool failed = false; !p[0].ended || !p[1].ended;) {
		for (int i = 0; i < 2; i++) {
			look_at(&p[i]);
			if (!failed && p[i].ended && !as_expected(&p[i], i == 0 ? test->target_ends_by : 0)) {
				failed = true;
				if (deadline > now_ms() + GRACE_MS)
					deadline = now_ms() + GRACE_MS;
			}
		}
		if (now_ms() >= deadline)
			break;
		sleep_ms(2);
	}

	/* kill all processes of the test, also those that it has forked */
	for (int i = 0; i < 2; i++) {
		kill(-p[i].pid, SIGKILL);
		if (!p[i].ended)
			waitpid(p[i].pid, NULL, 0);
	}
	good = as_expected(&p[0], test->target_ends_by) && as_expected(&p[1], 0);
	printf("%s %s\n", good ? "ok  " : is_last ? "FAIL" : "again", test->name);
	for (int i = 0; i < 2; i++) {
		if (!good)
			report(&p[i]);
		fclose(p[i].output);
	}
	fflush(stdout);
	return good;
}

/* Runs in a separate process: the check may make calls that cannot be undone. */
static bool
is_missing(const struct test *test, char *reason, size_t size)
{
	int ends[2];
	ssize_t n;
	pid_t pid;

	if (test->missing == NULL)
		return false;
	if (pipe(ends) != 0 || (pid = fork()) < 0) {
		perror("harness");
		exit(2);
	}
	if (pid == 0) {
		const char *why = test->missing();

		_exit(why == NULL || write(ends[1], why, strlen(why) + 1) > 0 ? 0 : 1);
	}
	close(ends[1]);
	n = read(ends[0], reason, size);
	close(ends[0]);
	waitpid(pid, NULL, 0);
	return n > 0;
}

int
main(int argc, char *argv[])
{
	unsigned passed = 0;
	unsigned failed = 0;
	unsigned skipped = 0;
	/* retry on a device whose driver sometimes fails */
	int runs = atoi(setting("PAIRS_RUNS", "1"));

	pids = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pids == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	/* a notify() to a process that has ended must fail, not kill this one */
	signal(SIGPIPE, SIG_IGN);

	for (size_t t = 0; tables[t] != NULL; t++)
		for (const struct test *test = tables[t]; test->name != NULL; test++) {
			bool wanted = argc == 1;
			bool good = false;
			char reason[256];

			/* arguments are parts of names; without any, all tests are run */
			for (int i = 1; i < argc; i++)
				wanted = wanted || strstr(test->name, argv[i]) != NULL;
			if (!wanted || (test->needs != NULL && getenv(test->needs) == NULL))
				continue;
			if (left_out(test->name, reason, sizeof(reason)) || is_missing(test, reason, sizeof(reason))) {
				if (reason[0] != '\0') {
					printf("skip %s  %s\n", test->name, reason);
					skipped++;
				}
				continue;
			}
			for (int n = 1; n <= runs && !good; n++)
				good = run(test, n == runs);
			*(good ? &passed : &failed) += 1;
		}

	printf("%u passed, %u failed", passed, failed);
	if (skipped > 0)
		printf(", %u skipped", skipped);
	putchar('\n');
	return failed != 0 || passed == 0;
}
