/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c -- starts the two sides of one measurement; see the usage below. */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *side_name = "bench";

static const struct measurement {
	const char *name;
	void (*run)(struct side *side);
	const char *what;
} measurements[] = {
	{"raw-pingpong", raw_pingpong, "8 bytes over TCP, round trip in us"},
	{"raw-rate", raw_rate, "one send() for each 28-byte FPDU of an 8-byte write, million/s"},
	{"raw-stream", raw_stream, "messages of --size over TCP, GB/s"},
	{"udp-pingpong", udp_pingpong, "a RoCE write of 8 bytes and its ACK over UDP, initiator spins, round trip in us"},
	{"udp-rate", udp_rate, "one send() for each such write, 64 in flight, million/s"},
	{"udp-stream", udp_stream, "messages of --size over UDP with UDP_SEGMENT, UDP_GRO, ICRCs and ACKs, GB/s"},
	{"write-pingpong", write_pingpong, "8-byte writes, both sides spin on memory, half a round in us"},
	{"write-oneway", write_oneway, "an 8-byte write, initiator blocked, target spins, us"},
	{"send-pingpong", send_pingpong, "8-byte messages, half a round in us"},
	{"srq-pingpong", srq_pingpong, "8-byte messages on one of --conns with an SRQ, round in us"},
	{"flooded-pingpong", flooded_pingpong, "8-byte messages on one of --conns, 8-byte writes on all others, round in us"},
	{"write-rate", write_rate, "writes of --size (8 to 64), million/s"},
	{"write-stream", write_stream, "writes of --size, GB/s"},
	{"read-stream", read_stream, "reads of --size, GB/s"},
	{"small-writes", small_writes, "--count writes of --size for each line on stdin"},
	{"idle", idle, "--conns connections without traffic until stdin ends"},
	{"write-burst", write_burst, "--signal 8-byte writes, the last one signalled; us a write"},
	{"write-streams", write_streams, "writes of --size on --conns connections, --depth in flight on each, GB/s in all"},
	{"write-completion", write_completion, "a write of --size until its completion, target polls or sleeps, us"},
	{"write-depth", write_depth, "writes of --size, --depth in flight, million/s"},
	{"read-rate", read_rate, "reads of --size, --depth in flight, million/s"},
	{"target-cpu", target_cpu, "CPU time of the target's process for each of --count reads and writes of --size, ns"},
	{"switches", switches, "context switches a second of an initiator that writes, flushes and polls, all threads"},
	{"connect-cycle", connect_cycle, "connect, established, disconnect, us"},
	{"first-write", first_write, "a process's first connection until its first write has completed, us"},
	{"raw-connect", raw_connect, "TCP connect, accept, a byte each way, close, us"},
	{"vm-write", vm_write, "one process_vm_writev() of --size, us"},
	{"vm-write-guarded", vm_write_guarded, "the same with a byte in another page before, us"},
	{"vm-read-guarded", vm_read_guarded, "one process_vm_readv() of 16 bytes and of --size in another page, us"},
	{"vm-read", vm_read, "one process_vm_readv() of --size, us"},
	{"vm-write-stream", vm_write_stream, "process_vm_writev() of --size, GB/s"},
	{"vm-read-stream", vm_read_stream, "process_vm_readv() of --size, GB/s"},
	{"memcpy", memcpy_stream, "memcpy() of --size, GB/s"},
	{"shm-pingpong", shm_pingpong, "8 bytes in shared memory, both sides spin, round trip in us"},
	{"eventfd-pingpong", eventfd_pingpong, "both sides asleep in read() of an eventfd, round trip in us"},
	{"start-up", start_up, "start and end of /bin/true, with --preload if given, us"},
};

#define MEASUREMENTS (sizeof(measurements) / sizeof(measurements[0]))

static void
usage(FILE *out)
{
	fprintf(out, "usage: bench MEASUREMENT [OPTIONS]\n\n"
		"One measurement on " ADDR ", between two processes that this one forks. benches/run runs\n"
		"them in turn with their references and makes a table.\n\n");
	for (size_t i = 0; i < MEASUREMENTS; i++)
		fprintf(out, "  %-16s %s\n", measurements[i].name, measurements[i].what);
	fprintf(out, "\n"
		"  --cpus A,B    CPUs of initiator and target; without it they are not pinned\n"
		"  --free        pin only the applications' threads, not the library's\n"
		"  --sleep       sleep in rpma_cq_wait() or recv() instead of polling\n"
		"  --ms N        milliseconds to measure (100)\n"
		"  --limit N     seconds after which both sides are ended (10)\n"
		"  --size N      bytes of an operation (8)\n"
		"  --signal N    one write in N is signalled (16)\n"
		"  --count N     writes of small-writes (15000)\n"
		"  --conns N     connections (1)\n"
		"  --depth N     operations in flight (1)\n"
		"  --memfd       all memory is that of memfds that cannot shrink, which both sides map\n"
		"  --preload LIB LD_PRELOAD of start-up\n");
}

void
give_up(const char *file, int line, const char *format, ...)
{
	char text[512];
	va_list ap;
	int n = snprintf(text, sizeof(text), "%s: %s:%d: ", side_name, file, line);

	va_start(ap, format);
	vsnprintf(text + n, sizeof(text) - (size_t)n, format, ap);
	va_end(ap);
	/* in one piece: the other side may fail at the same time */
	fprintf(stderr, "%s\n", text);
	exit(1);
}

void
check_result(int ret, const char *call, const char *file, int line)
{
	if (ret != 0)
		give_up(file, line, "%s failed: %s (%d)", call, rpma_err_2str(ret), ret);
}

void
ctl_send(struct side *side, const void *data, size_t size)
{
	ssize_t n = send(side->ctl, data, size, MSG_NOSIGNAL);

	REQUIRE(n == (ssize_t)size, "the other side is gone");
}

void
ctl_recv(struct side *side, void *data, size_t size)
{
	ssize_t n = recv(side->ctl, data, size, MSG_WAITALL);

	REQUIRE(n == (ssize_t)size, "the other side is gone");
}

void
ctl_barrier(struct side *side)
{
	char byte = 0;

	ctl_send(side, &byte, 1);
	ctl_recv(side, &byte, 1);
}

void
pin_here(const struct side *side)
{
	cpu_set_t set;

	if (side->opt.cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(side->opt.cpu, &set);
	REQUIRE(sched_setaffinity(0, sizeof(set), &set) == 0, "pinning to CPU %d: %s", side->opt.cpu,
		strerror(errno));
}

void
timer_start(struct timer *t, unsigned ms)
{
	memset(t, 0, sizeof(*t));
	/*
	 * any round takes longer than a quarter of a microsecond; rounds that do not fit count only in the
	 * mean
	 */
	t->room = (size_t)ms * 4000;
	t->sample = malloc(t->room * sizeof(*t->sample));
	REQUIRE(t->sample != NULL, "no memory");
	/* page faults occur here, not while measuring */
	memset(t->sample, 0xff, t->room * sizeof(*t->sample));
	t->last = now_ns();
	t->counted_from = t->last + ms * UINT64_C(100000);
	t->end = t->last + ms * UINT64_C(1100000);
}

void
timer_add(struct timer *t, uint64_t ns)
{
	uint64_t now = now_ns();

	if (now < t->counted_from)
		return;
	t->total += ns;
	t->rounds++;
	if (t->samples < t->room)
		t->sample[t->samples++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

bool
timer_next(struct timer *t)
{
	uint64_t now = now_ns();

	if (t->started)
		timer_add(t, now - t->last);
	t->started = true;
	t->last = now_ns();
	return t->last < t->end;
}

static int
by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

void
timer_report(struct timer *t, double parts)
{
	double us = 1e3 * parts;

	REQUIRE(t->rounds > 0, "no round within the time");
	qsort(t->sample, t->samples, sizeof(*t->sample), by_value);
	printf("value=%.4f p50=%.4f p99=%.4f rounds=%" PRIu64 "\n",
		(double)t->total / (double)t->rounds / us, t->sample[t->samples / 2] / us,
		t->sample[t->samples * 99 / 100] / us, t->rounds);
	free(t->sample);
}

static pid_t
start(const struct measurement *m, struct side side, int other_ctl, int cpu, unsigned limit)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	side_name = side.initiator ? "initiator" : "target";
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		exit(1);
	close(other_ctl);
	alarm(limit);
	side.opt.cpu = cpu;
	if (!side.opt.free)
		pin_here(&side);
	m->run(&side);
	exit(0);
}

/* The outcome of a side; after a failure the other one is ended, too. */
static int
outcome(const char *name, int status, unsigned limit)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		fprintf(stderr, "%s: not done after %u s\n", name, limit);
	else if (WIFSIGNALED(status))
		fprintf(stderr, "%s: ended by signal %d (%s)\n", name, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	return status == 0 ? 0 : 1;
}

static unsigned long
number(const char *text, unsigned long min, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != '\0' || n < min || n > max) {
		fprintf(stderr, "bench: '%s' is not a number from %lu to %lu\n", text, min, max);
		exit(2);
	}
	return n;
}

int
main(int argc, char *argv[])
{
	static const struct option longs[] = {{"cpus", 1, 0, 'c'}, {"free", 0, 0, 'f'},
		{"sleep", 0, 0, 's'}, {"ms", 1, 0, 'm'}, {"limit", 1, 0, 'l'}, {"size", 1, 0, 'z'},
		{"signal", 1, 0, 'g'}, {"count", 1, 0, 'n'}, {"conns", 1, 0, 'k'},
		{"depth", 1, 0, 'd'}, {"memfd", 0, 0, 'F'}, {"preload", 1, 0, 'p'}, {"help", 0, 0, 'h'}, {0, 0, 0, 0}};
	struct options opt = {.cpu = -1, .ms = 100, .signal = 16, .count = 15000, .conns = 1, .depth = 1, .size = 8};
	const struct measurement *m = NULL;
	int cpus[2] = {-1, -1};
	unsigned limit = 10;
	int c, fds[2];
	int failed = 0;
	pid_t pid[2];
	struct rlimit files;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			if (sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2) {
				fprintf(stderr, "bench: --cpus takes two numbers, A,B\n");
				return 2;
			}
			break;
		case 'f': opt.free = true; break;
		case 's': opt.sleep = true; break;
		case 'm': opt.ms = (unsigned)number(optarg, 1, 10000); break;
		case 'l': limit = (unsigned)number(optarg, 1, 3600); break;
		case 'z': opt.size = number(optarg, 1, 1 << 30); break;
		case 'g': opt.signal = (unsigned)number(optarg, 1, 1 << 16); break;
		case 'n': opt.count = (unsigned)number(optarg, 1, 1 << 30); break;
		case 'k': opt.conns = (unsigned)number(optarg, 1, 1 << 16); break;
		case 'd': opt.depth = (unsigned)number(optarg, 1, 64); break;
		case 'F': opt.memfd = true; break;
		case 'p': opt.preload = optarg; break;
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	for (size_t i = 0; i < MEASUREMENTS && optind == argc - 1; i++)
		if (strcmp(argv[optind], measurements[i].name) == 0)
			m = &measurements[i];
	if (m == NULL) {
		usage(stderr);
		return 2;
	}

	/* many connections need many descriptors */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair: %s",
		strerror(errno));
	for (int i = 0; i < 2; i++) {
		struct side side = {.opt = opt, .initiator = i == 0, .ctl = fds[i]};

		pid[i] = start(m, side, fds[!i], cpus[i], limit);
		REQUIRE(pid[i] > 0, "fork: %s", strerror(errno));
	}
	close(fds[0]);
	close(fds[1]);
	for (int ended = 0; ended < 2; ended++) {
		int status;
		pid_t who = wait(&status);
		int i = who == pid[0] ? 0 : 1;

		REQUIRE(who > 0, "wait: %s", strerror(errno));
		pid[i] = 0;
		if (failed)
			continue;
		failed = outcome(i == 0 ? "initiator" : "target", status, limit);
		if (failed && pid[!i] != 0)
			kill(pid[!i], SIGKILL);
	}
	return failed;
}
