/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c -- effects of the library on its process: threads, file descriptors, signals, fork. */
#include "link.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 4096
#define SEED_T 21

static void
serve_one(struct side *side)
{
	serve(side, SIZE, SEED_T, SEED_T);
}

/* Objects that need no thread or file descriptor start and open none. */
static void
idle_initiator(struct side *side)
{
	unsigned fds = count_fds();
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_conn_cfg *cfg = NULL;
	struct ibv_context *dev = NULL;
	struct region local;
	struct node node;
	struct link link;

	EXPECT(count_threads() == 1 && count_sockets() == 0);
	OK(rpma_conn_cfg_new(&cfg));
	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_conn_cfg_delete(&cfg));
	OK(rpma_peer_cfg_delete(&pcfg));
	EXPECT(count_threads() == 1 && count_sockets() == 0 && count_fds() == fds);
	await(side, 'L');
	OK(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &dev));
	EXPECT(count_threads() == 1 && count_sockets() == 0, "%u threads, %u sockets after the look-up",
		count_threads(), count_sockets());

	open_peer(&node, side);
	region_new(&node, &local, SIZE, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	/* a connection needs one thread */
	EXPECT(count_threads() <= 2, "%u threads", count_threads());
	read_part(&link, &local, 0, 0, SIZE);
	check_pattern(local.ptr, SIZE, SEED_T, "what was read");
	end_link(&link);
	close_with_region(&node, &local);
}

/* Without RPMA_PROVIDER, an address that no device serves is served by the soft provider. */
static void
unset_target(struct side *side)
{
	unsetenv("RPMA_PROVIDER");
	serve_one(side);
}

static void
unset_initiator(struct side *side)
{
	unsetenv("RPMA_PROVIDER");
	idle_initiator(side);
}

/* A program that forks after the look-up, as servers do: parent and child both use the library. */
static void
forking_target(struct side *side)
{
	struct ibv_context *dev = NULL;
	pid_t child;
	int status;

	OK(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &dev));
	child = fork();
	EXPECT(child >= 0);
	if (child == 0) {
		serve_one(side);
		exit(0);
	}
	EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d",
		status);
	serve_one(side);
}

static void
forking_initiator(struct side *side)
{
	struct ibv_context *dev = NULL;
	int status;

	OK(rpma_utils_get_ibv_context(side->addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &dev));
	for (int i = 0; i < 2; i++) {
		struct region local;
		struct node node;
		struct link link;
		pid_t child = i == 0 ? fork() : 0;

		EXPECT(child >= 0);
		if (child > 0) {
			EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
				WEXITSTATUS(status) == 0, "%d", status);
			continue;
		}
		connect_with_region(&node, &link, &local, side, SIZE, USAGE_ALL, NULL);
		read_part(&link, &local, 0, 0, SIZE);
		check_pattern(local.ptr, SIZE, SEED_T, "what was read");
		end_link(&link);
		close_with_region(&node, &local);
		if (i == 0)
			exit(0);
	}
}

/* The library's own thread receives none of the program's signals. */
static void
signals_initiator(struct side *side)
{
	struct node node;
	struct link link;
	struct dirent *entry;
	unsigned others = 0;
	DIR *tasks;

	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	tasks = opendir("/proc/self/task");
	EXPECT(tasks != NULL);
	while ((entry = readdir(tasks)) != NULL) {
		unsigned long long blocked = 0;
		unsigned long long wanted = 0;
		char path[300];
		char line[256];
		FILE *status;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
			continue;
		others++;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		status = fopen(path, "r");
		EXPECT(status != NULL, "%s", strerror(errno));
		while (fgets(line, sizeof(line), status) != NULL)
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(status);
		static const int asynchronous[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM,
			SIGCHLD, SIGIO, SIGPROF, SIGVTALRM, SIGWINCH};
		for (size_t i = 0; i < sizeof(asynchronous) / sizeof(asynchronous[0]); i++)
			wanted |= 1ull << (asynchronous[i] - 1);
		EXPECT((blocked & wanted) == wanted, "blocked: 0x%llx", blocked);
	}
	closedir(tasks);
	EXPECT(others > 0, "the check proves nothing");
	end_link(&link);
	close_node(&node);
}

/* A program that this one executes inherits no descriptor of the library. */
static void
exec_initiator(struct side *side)
{
	bool before[256] = {false};
	unsigned looked_at = 0;
	struct node node;
	struct link link;

	for (int fd = 0; fd < 256; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	open_initiator(&node, side);
	connect_link(&node, &link, NULL, NULL);
	for (int fd = 0; fd < 256; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (before[fd] || flags < 0)
			continue;
		looked_at++;
		EXPECT(flags & FD_CLOEXEC, "descriptor %d", fd);
	}
	EXPECT(looked_at > 0, "the check proves nothing");
	end_link(&link);
	close_node(&node);
}

/* Without free file descriptors the call fails; it succeeds once there are some. */
static void
descriptors_initiator(struct side *side)
{
	struct rlimit limit;
	struct rlimit none;
	struct rpma_conn_req *req = NULL;
	struct region local;
	struct node node;
	struct link link;
	int ret;

	open_initiator(&node, side);
	region_new(&node, &local, SIZE, USAGE_ALL);
	EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = limit;
	none.rlim_cur = 0;
	EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
	for (int i = 0; i < 10; i++) {
		ret = rpma_conn_req_new(node.peer, side->addr, side->port, NULL, &req);
		EXPECT(ret == RPMA_E_PROVIDER || ret == RPMA_E_NOMEM, "%d", ret);
		EXPECT(req == NULL);
	}
	EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	connect_link(&node, &link, NULL, NULL);
	read_part(&link, &local, 0, 0, SIZE);
	check_pattern(local.ptr, SIZE, SEED_T, "what was read");

	/* an existing connection works: it needs no new file descriptor */
	EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
	memset(local.ptr, 0, SIZE);
	read_part(&link, &local, 0, 0, SIZE);
	check_pattern(local.ptr, SIZE, SEED_T, "what was read without a free descriptor");
	EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	end_link(&link);
	close_with_region(&node, &local);
}

/* A listener without file descriptors loses the requests of that time, but keeps working. */
static void
starved_target(struct side *side)
{
	struct rlimit limit;
	struct rlimit none;
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	fill_pattern(region.ptr, SIZE, SEED_T);
	/* one connection before, so that the objects that a process has once exist */
	accept_link(&node, &link, NULL, &region);
	await_end(&link);
	EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none = limit;
	none.rlim_cur = 0;
	EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
	notify(side, 'n');
	await(side, 't');
	sleep_ms(300);
	EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	notify(side, 'a');
	/* the initiator's request is still pending, or was refused and is repeated */
	accept_link(&node, &link, NULL, &region);
	await_end(&link);
	close_with_region(&node, &region);
}

static void
starved_initiator(struct side *side)
{
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_req *req;
	struct region local;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &local, side, SIZE, USAGE_ALL, NULL);
	end_link(&link);
	await(side, 'n');
	req = new_req(&node, NULL);
	start_link(&link, &req, NULL);
	notify(side, 't');
	await(side, 'a');
	OK(rpma_conn_next_event(link.conn, &event));
	if (event != RPMA_CONN_ESTABLISHED) {
		EXPECT(event == RPMA_CONN_REJECTED || event == RPMA_CONN_UNREACHABLE || event == RPMA_CONN_LOST,
			"%s", rpma_utils_conn_event_2str(event));
		delete_link(&link);
		connect_link(&node, &link, NULL, NULL);
	} else {
		struct rpma_conn_private_data pdata;

		OK(rpma_conn_get_private_data(link.conn, &pdata));
		OK(rpma_mr_remote_from_descriptor(pdata.ptr, DESCRIPTOR_SIZE, &link.remote));
	}
	read_part(&link, &local, 0, 0, SIZE);
	check_pattern(local.ptr, SIZE, SEED_T, "what was read");
	end_link(&link);
	close_with_region(&node, &local);
}

const struct test process_tests[] = {
	{"nothing-started-before-use", serve_one, idle_initiator},
	{"provider-chosen-by-itself", unset_target, unset_initiator, .raw_env = true},
	{"fork-after-look-up", forking_target, forking_initiator},
	{"signals-left-alone", serve_one, signals_initiator},
	{"descriptors-closed-on-exec", serve_one, exec_initiator},
	{"descriptors-run-out", serve_one, descriptors_initiator},
	{"descriptors-run-out-at-listener", starved_target, starved_initiator},
	{.name = NULL},
};
