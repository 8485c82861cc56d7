/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * local.c -- two processes of one host: which connections use shared memory. A connection that must not or
 * cannot use it uses TCP, works like any other, and logs the reason at level NOTICE.
 */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 65536
#define SEED_T 11
#define SEED_I 12
#define OTHER_UID 65533

static atomic_uint notices; /* that a connection uses TCP */
static char notice[512]; /* the last one */

static void
take_notice(enum rpma_log_level level, const char *file, int line, const char *function, const char *format, ...)
{
	char text[sizeof(notice)];
	va_list ap;

	(void)file, (void)line, (void)function;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (level != RPMA_LOG_LEVEL_NOTICE || strstr(text, "TCP") == NULL)
		return;
	memcpy(notice, text, sizeof(text));
	notices++;
}

static void
listen_to_log(void)
{
	OK(rpma_log_set_function(take_notice));
	OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_NOTICE));
}

/* A connection over which the peer writes and reads; this side has `shared` mappings. */
static void
target(struct side *side, unsigned shared)
{
	struct region region;
	struct node node;
	struct link link;

	listen_to_log();
	open_target(&node, side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	fill_pattern(region.ptr, SIZE, SEED_T);
	accept_link(&node, &link, NULL, &region);
	EXPECT(await_shared(shared) == shared, "%u mappings", count_shared());
	notify(side, 'C');
	await_end(&link);
	check_pattern(region.ptr, SIZE / 2, SEED_I, "what was written");
	EXPECT(count_shared() == 0, "%u mappings remain", count_shared());
	close_with_region(&node, &region);
}

/* Called while the target listens, before connecting. */
static void (*before_connecting)(struct side *side);

static void
initiator(struct side *side, unsigned shared, const char *why)
{
	struct region region;
	struct node node;
	struct link link;

	listen_to_log();
	open_initiator(&node, side);
	if (before_connecting != NULL)
		before_connecting(side);
	region_new(&node, &region, SIZE, USAGE_ALL);
	connect_link(&node, &link, NULL, NULL);
	await(side, 'C');
	EXPECT(await_shared(shared) == shared, "%u mappings", count_shared());
	EXPECT(notices == (why != NULL), "%u notices, the last one: %s", notices, notice);
	EXPECT(why == NULL || strstr(notice, why) != NULL, "the notice is: %s", notice);
	read_part(&link, &region, 0, 0, SIZE);
	check_pattern(region.ptr, SIZE, SEED_T, "what was read");
	fill_pattern(region.ptr, SIZE, SEED_I);
	write_part(&link, 0, &region, 0, SIZE / 2);
	end_link(&link);
	EXPECT(count_shared() == 0, "%u mappings remain", count_shared());
	close_with_region(&node, &region);
}

/* "": not applicable: this run tests a device, two hosts or TCP. */
static const char *
elsewhere(void)
{
	static const char *const others[] = {"PAIRS_PROVIDER", "PAIRS_TARGET_PROVIDER", "PAIRS_INITIATOR_PROVIDER",
		"PAIRS_TARGET_NETNS", "PAIRS_INITIATOR_NETNS"};
	const char *setting = getenv("SOFTVERBS_LOCAL");

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (getenv(others[i]) != NULL)
			return "";
	return setting != NULL && strcmp(setting, "0") == 0 ? "" : NULL;
}

static void
tcp_target(struct side *side)
{
	target(side, 0);
}

/* ---- both permit shared memory ---- */

static void
sharing_target(struct side *side)
{
	target(side, 1);
}

static void
sharing_initiator(struct side *side)
{
	initiator(side, 1, NULL);
}

/* ---- one side has disabled shared memory ---- */

static void
disabled_target(struct side *side)
{
	setenv("SOFTVERBS_LOCAL", "0", 1);
	target(side, 0);
}

static void
disabled_initiator(struct side *side)
{
	setenv("SOFTVERBS_LOCAL", "0", 1);
	initiator(side, 0, NULL);
}

static void
quiet_initiator(struct side *side)
{
	initiator(side, 0, NULL);
}

/* ---- another user, user namespace or PID namespace, or a process that may not inspect the other one ---- */

static const char *
not_root(void)
{
	return geteuid() == 0 ? elsewhere() : "only root can become another user";
}

static void
become_another_user(void)
{
	EXPECT(setresuid(OTHER_UID, OTHER_UID, OTHER_UID) == 0, "%s", strerror(errno));
	/* otherwise /proc/self belongs to root */
	EXPECT(prctl(PR_SET_DUMPABLE, 1) == 0);
}

static void
foreign_initiator(struct side *side)
{
	become_another_user();
	initiator(side, 0, NULL);
}

static void
foreign_target(struct side *side)
{
	become_another_user();
	target(side, 0);
}

static const char *
no_user_namespace(void)
{
	return unshare(CLONE_NEWUSER) == 0 ? elsewhere() : "this machine forbids user namespaces";
}

static void
namespaced_initiator(struct side *side)
{
	EXPECT(unshare(CLONE_NEWUSER) == 0, "%s", strerror(errno));
	initiator(side, 0, NULL);
}

static const char *
no_pid_namespace(void)
{
	return unshare(CLONE_NEWPID) == 0 ? elsewhere() : "only root can create a PID namespace";
}

static void
unseeing_initiator(struct side *side)
{
	int status;
	pid_t pid;

	EXPECT(unshare(CLONE_NEWPID) == 0, "%s", strerror(errno));
	pid = fork();
	EXPECT(pid >= 0, "%s", strerror(errno));
	if (pid == 0) {
		/* it cannot see the listener's process */
		initiator(side, 0, "another PID namespace");
		_exit(0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0, "status 0x%x", status);
}

static void
unprivileged_initiator(struct side *side)
{
	drop_capabilities();
	initiator(side, 0, "not permitted to inspect");
}

static void
unprivileged_target(struct side *side)
{
	drop_capabilities();
	target(side, 0);
	EXPECT(notices == 1, "%u notices", notices);
	EXPECT(strstr(notice, "not permitted to inspect") != NULL, "the notice is: %s", notice);
}

/* ---- another user passes a socket whose close(2) takes a minute ---- */

/* A TCP socket with data that the peer does not read. */
static int
lingering_socket(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = 60};
	socklen_t len = sizeof(addr);
	static char data[65536];
	int listening = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

	EXPECT(bind(listening, (struct sockaddr *)&addr, len) == 0 && listen(listening, 1) == 0, "%s", strerror(errno));
	EXPECT(getsockname(listening, (struct sockaddr *)&addr, &len) == 0, "%s", strerror(errno));
	EXPECT(connect(fd, (struct sockaddr *)&addr, len) == 0, "%s", strerror(errno));
	while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	EXPECT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0, "%s", strerror(errno));
	return fd;
}

static bool
pass(const char *name, int fd)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct iovec part = {(void *)"x", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	size_t len = strlen(name);
	int to = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	EXPECT(to >= 0 && len < sizeof(addr.sun_path), "%s", name);
	/* '@' stands for the NUL byte of an abstract name */
	memcpy(addr.sun_path + (name[0] == '@'), name + (name[0] == '@'), len - (name[0] == '@'));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return connect(to, (struct sockaddr *)&addr, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) == 0 &&
		sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

/* Passes such a socket to each Unix socket of the target that another user can reach, and keeps running. */
static void
pass_to_all(struct side *side, int ready)
{
	int fd = lingering_socket();
	static const char *const directories[] = {"/run/softverbs/.", "/tmp/softverbs-0/."};
	char line[512], *name;
	bool passed = false, closed = false;
	FILE *all;

	EXPECT(setresuid(OTHER_UID, OTHER_UID, OTHER_UID) == 0, "%s", strerror(errno));
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
		EXPECT(access(directories[i], F_OK) != 0, "another user can enter %s", directories[i]);
		closed |= errno == EACCES;
	}
	EXPECT(closed, "no directory for sockets has refused access");
	/* a path there is relative to a descriptor of the target; an abstract name could be reached */
	all = fopen("/proc/net/unix", "r");
	EXPECT(all != NULL, "%s", strerror(errno));
	while (fgets(line, sizeof(line), all) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		name = strpbrk(line, "@/");
		if (name != NULL && strstr(name, side->port) != NULL)
			passed |= pass(name, fd);
	}
	/* the receiver is then the last one to close it */
	if (passed)
		close(fd);
	EXPECT(write(ready, "x", 1) == 1);
	pause();
	_exit(0);
}

static pid_t other_user;

static void
start_other_user(struct side *side)
{
	int ready[2];
	char byte;

	EXPECT(pipe(ready) == 0, "%s", strerror(errno));
	other_user = fork();
	EXPECT(other_user >= 0, "%s", strerror(errno));
	if (other_user == 0)
		pass_to_all(side, ready[1]);
	close(ready[1]);
	EXPECT(read(ready[0], &byte, 1) == 1, "the other user has ended");
	close(ready[0]);
}

static void
attacked_initiator(struct side *side)
{
	before_connecting = start_other_user;
	initiator(side, 1, NULL);
	EXPECT(kill(other_user, SIGKILL) == 0 && waitpid(other_user, NULL, 0) == other_user, "%s", strerror(errno));
}

/* ---- no memory, no descriptors, a limit on files ---- */

static void
sandboxed_initiator(struct side *side)
{
	forbid_call(SYS_memfd_create);
	initiator(side, 0, "cannot allocate shared memory");
}

static void
limit(int resource, rlim_t to)
{
	struct rlimit limit = {to, RLIM_INFINITY};

	EXPECT(getrlimit(resource, &limit) == 0);
	limit.rlim_cur = to;
	EXPECT(setrlimit(resource, &limit) == 0, "%s", strerror(errno));
}

static void
short_of_descriptors(struct side *side)
{
	limit(RLIMIT_NOFILE, 24);
	for (int fd = 0; fd < 12;) {
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		EXPECT(fd >= 0, "%s", strerror(errno));
	}
	initiator(side, 0, "half of the descriptors");
}

static void
limited_initiator(struct side *side)
{
	limit(RLIMIT_FSIZE, 4096);
	initiator(side, 0, "cannot allocate shared memory");
}

/* The target creates no file. */
static void
limited_target(struct side *side)
{
	limit(RLIMIT_FSIZE, 4096);
	target(side, 1);
}

/*
 * The limit is lowered, or system calls are forbidden, on open connections: messages through the rings
 * continue.
 */
#define LONG (256 * 1024)

static void
nothing(void)
{
}

static void
receive(struct side *side, void (*restrict_it)(void))
{
	struct region region;
	struct node node;
	struct link link;

	open_target(&node, side);
	region_new(&node, &region, LONG, USAGE_ALL);
	accept_link(&node, &link, NULL, NULL);
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_wc wc;

		if (i == 1)
			restrict_it();
		memset(region.ptr, 0, LONG);
		OK(rpma_recv(link.conn, region.mr, 0, LONG, NULL));
		notify(side, 'r');
		next_wc(link.cq, &wc);
		EXPECT(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "status %d, opcode %d", wc.status, wc.opcode);
		check_pattern(region.ptr, LONG, i, "the message");
	}
	await_end(&link);
	close_with_region(&node, &region);
}

static void
receiving_target(struct side *side)
{
	receive(side, nothing);
}

/* How often the provider has blocked SIGXFSZ. */
static atomic_uint masks;
static unsigned masks_while_sending;

static void
sending_initiator(struct side *side, void (*restrict_it)(void))
{
	struct region region;
	struct node node;
	struct link link;

	connect_with_region(&node, &link, &region, side, LONG, USAGE_ALL, NULL);
	EXPECT(count_shared() == 1, "%u mappings", count_shared());
	masks_while_sending = masks;
	for (unsigned i = 0; i < 4; i++) {
		if (i == 1)
			restrict_it();
		await(side, 'r');
		fill_pattern(region.ptr, LONG, i);
		OK(rpma_send(link.conn, region.mr, 0, LONG, RPMA_F_COMPLETION_ALWAYS, (void *)1));
		expect_wc(link.cq, 1, IBV_WC_SEND);
	}
	masks_while_sending = masks - masks_while_sending;
	end_link(&link);
	close_with_region(&node, &region);
}

static void
lower_limit(void)
{
	limit(RLIMIT_FSIZE, 0);
}

static void
later_limited_initiator(struct side *side)
{
	sending_initiator(side, lower_limit);
}

/*
 * Once the limit is lowered, nothing can be copied to the ring, since the sandbox permits only writes to the
 * file: the connection fails, and SIGXFSZ does not end the program. The sandbox includes the provider's
 * thread.
 */
static void
limited_sandboxed_initiator(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;
	struct ibv_wc wc;

	forbid_call(SYS_process_vm_writev);
	connect_with_region(&node, &link, &region, side, LONG, USAGE_ALL, NULL);
	EXPECT(count_shared() == 1, "%u mappings", count_shared());
	await(side, 'r');
	limit(RLIMIT_FSIZE, 0);
	OK(rpma_send(link.conn, region.mr, 0, LONG, RPMA_F_COMPLETION_ALWAYS, (void *)1));
	next_wc(link.cq, &wc);
	EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
	await_end(&link);
	close_with_region(&node, &region);
}

static void
failing_target(struct side *side)
{
	struct region region;
	struct node node;
	struct link link;
	struct ibv_wc wc;

	open_target(&node, side);
	region_new(&node, &region, LONG, USAGE_ALL);
	accept_link(&node, &link, NULL, NULL);
	OK(rpma_recv(link.conn, region.mr, 0, LONG, NULL));
	notify(side, 'r');
	next_wc(link.cq, &wc);
	EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR, "status %d", wc.status);
	await_end(&link);
	close_with_region(&node, &region);
}

/* Overrides libc's, so the provider calls it. */
int
pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
	/* not if all signals are blocked, as for a thread that sleeps or is created */
	if (how == SIG_BLOCK && set != NULL && sigismember(set, SIGXFSZ) && !sigismember(set, SIGTERM))
		masks++;
	return syscall(SYS_rt_sigprocmask, how, set, before, 8) == 0 ? 0 : errno;
}

static void
counting_initiator(struct side *side)
{
	sending_initiator(side, nothing);
	EXPECT(masks > 0, "no call was counted, although the provider has set the size of the shared file");
	EXPECT(masks_while_sending == 0, "%u", masks_while_sending);
}

static atomic_bool main_thread_ends;

/* Afterwards the kernel cannot access memory by the process ID. */
static void
end_main_thread(void)
{
	char from = 0, to;
	struct iovec near = {&to, 1}, far = {&from, 1};

	main_thread_ends = true;
	while (process_vm_readv(getpid(), &near, 1, &far, 1, 0) == 1)
		sleep_ms(1);
	EXPECT(errno == ESRCH, "%s", strerror(errno));
}

static void *
send_alone(void *side)
{
	sending_initiator(side, end_main_thread);
	exit(0);
}

static void *
receive_alone(void *side)
{
	receive(side, end_main_thread);
	exit(0);
}

static void
run_alone(void *(*body)(void *), const struct side *side)
{
	/* not on the stack of the main thread */
	static struct side kept;
	pthread_t thread;

	kept = *side;
	EXPECT(pthread_create(&thread, NULL, body, &kept) == 0);
	while (!main_thread_ends)
		sleep_ms(1);
	pthread_exit(NULL);
}

static void
leaderless_target(struct side *side)
{
	run_alone(receive_alone, side);
}

static void
leaderless_initiator(struct side *side)
{
	run_alone(send_alone, side);
}

static void
close_sandbox(void)
{
	forbid_call(SYS_pwritev);
	forbid_call(SYS_preadv);
}

static void
later_sandboxed_initiator(struct side *side)
{
	sending_initiator(side, close_sandbox);
}

/* From the beginning; the other system calls that copy are permitted. */
static void
early_sandboxed_initiator(struct side *side)
{
	close_sandbox();
	initiator(side, 1, NULL);
}

/* Without these calls nothing can be copied to the rings. */
static void
forbidden_initiator(struct side *side)
{
	close_sandbox();
	forbid_call(SYS_process_vm_writev);
	forbid_call(SYS_process_vm_readv);
	initiator(side, 0, "cannot allocate shared memory");
}

static void
declined_initiator(struct side *side)
{
	initiator(side, 0, "has not accepted the shared memory");
}

#define LOCAL .missing = elsewhere

const struct test local_tests[] = {
	{"local-shared-memory", sharing_target, sharing_initiator, LOCAL},
	{"local-shared-memory-ipv6", sharing_target, sharing_initiator, .addr = "::1", LOCAL},
	{"local-off-at-target", disabled_target, quiet_initiator, LOCAL},
	{"local-off-at-initiator", tcp_target, disabled_initiator, LOCAL},
	{"local-other-user", tcp_target, foreign_initiator, .missing = not_root},
	{"local-other-user-listens", foreign_target, quiet_initiator, .missing = not_root},
	{"local-other-user-passes-a-socket", sharing_target, attacked_initiator, .missing = not_root},
	{"local-no-capabilities", tcp_target, unprivileged_initiator, .missing = not_root},
	{"local-no-capabilities-at-target", unprivileged_target, declined_initiator, .missing = not_root},
	{"local-user-namespace", tcp_target, namespaced_initiator, .missing = no_user_namespace},
	{"local-pid-namespace", tcp_target, unseeing_initiator, .missing = no_pid_namespace},
	{"local-sandbox", tcp_target, sandboxed_initiator, LOCAL},
	{"local-few-descriptors", tcp_target, short_of_descriptors, LOCAL},
	{"local-file-limit", tcp_target, limited_initiator, LOCAL},
	{"local-file-limit-at-target", limited_target, sharing_initiator, LOCAL},
	{"local-file-limit-later", receiving_target, later_limited_initiator, LOCAL},
	{"local-file-limit-later-in-a-sandbox", failing_target, limited_sandboxed_initiator, LOCAL},
	{"local-signal-mask", receiving_target, counting_initiator, LOCAL},
	{"local-main-threads-end", leaderless_target, leaderless_initiator, LOCAL},
	{"local-sandbox-later", receiving_target, later_sandboxed_initiator, LOCAL},
	{"local-sandbox-pwritev", sharing_target, early_sandboxed_initiator, LOCAL},
	{"local-sandbox-all", tcp_target, forbidden_initiator, LOCAL},
	{.name = NULL},
};
