/* SPDX-License-Identifier: BSD-3-Clause */
/* common.c -- see stress.h */
#include "stress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_MS 8000 /* longer than a closing connection may linger */

struct shared *shared;
static int figures_fd = -1;
static uint64_t seed;

/* Before main(), since the harness redirects the standard output of the processes of a test. */
__attribute__((constructor)) static void
begin(void)
{
	const char *given = getenv("STRESS_SEED");
	struct timespec ts;

	figures_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	clock_gettime(CLOCK_REALTIME, &ts);
	seed = given != NULL && given[0] != '\0' ? strtoull(given, NULL, 0)
						 : (uint64_t)ts.tv_sec * 1000003 + (uint64_t)ts.tv_nsec;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	figures("seed: STRESS_SEED=%llu repeats it", (unsigned long long)seed);
}

void
reset_shared(void)
{
	memset(shared, 0, sizeof(*shared));
}

void
figures(const char *format, ...)
{
	char line[512];
	va_list ap;
	int len;

	va_start(ap, format);
	len = vsnprintf(line, sizeof(line) - 1, format, ap);
	va_end(ap);
	if (len < 0)
		return;
	if (len > (int)sizeof(line) - 2)
		len = (int)sizeof(line) - 2;
	line[len] = '\n';
	/* one write, so that lines of two processes do not mix */
	if (write(figures_fd, line, (size_t)len + 1) < 0)
		return;
}

/* splitmix64 */
uint64_t
rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t
rng_below(struct rng *rng, uint64_t limit)
{
	return rng_next(rng) % limit;
}

struct rng
rng_of(const char *purpose, uint64_t number)
{
	struct rng rng = {seed};

	for (; *purpose != '\0'; purpose++)
		rng.state = rng_next(&rng) ^ (unsigned char)*purpose;
	rng.state = rng_next(&rng) ^ number;
	rng_next(&rng);
	return rng;
}

unsigned
amount(unsigned in_short, unsigned in_long)
{
	const char *is_long = getenv("STRESS_LONG");
	const char *percent = getenv("STRESS_PERCENT");
	uint64_t n = is_long != NULL && is_long[0] == '1' ? in_long : in_short;

	if (percent != NULL && percent[0] != '\0')
		n = n * strtoull(percent, NULL, 10) / 100;
	return n > 0 ? (unsigned)n : 1;
}

struct census
take_census(void)
{
	struct census census = {.fds = count_fds(), .threads = count_threads()};
	unsigned long total = 0;
	char line[512];
	FILE *file = fopen("/proc/self/maps", "r");

	EXPECT(file != NULL, "%s", strerror(errno));
	while (fgets(line, sizeof(line), file) != NULL)
		census.mappings++;
	fclose(file);
	file = fopen("/proc/self/statm", "r");
	EXPECT(file != NULL && fscanf(file, "%lu %lu", &total, &census.resident_kb) == 2);
	fclose(file);
	census.resident_kb *= (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
	return census;
}

void
expect_no_growth(const char *what, const struct census *before, unsigned mappings, unsigned long resident_kb)
{
	uint64_t deadline = now_ms() + SETTLE_MS;
	struct census after;
	bool grown;

	do {
		after = take_census();
		grown = after.fds > before->fds || after.threads > before->threads ||
			after.mappings > before->mappings + mappings ||
			after.resident_kb > before->resident_kb + resident_kb;
		if (grown)
			sleep_ms(20);
	} while (grown && now_ms() < deadline);
	figures("     %s: growth of %+d descriptors, %+d threads, %+d mappings, %+ld KiB", what, (int)after.fds - (int)before->fds,
		(int)after.threads - (int)before->threads, (int)after.mappings - (int)before->mappings,
		(long)after.resident_kb - (long)before->resident_kb);
	EXPECT(!grown, "%s: %u descriptors, %u threads, %u mappings, %lu KiB; before: %u, %u, %u, %lu", what, after.fds,
		after.threads, after.mappings, after.resident_kb, before->fds, before->threads, before->mappings,
		before->resident_kb);
}

bool
readable(int fd, int ms)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	int n;

	do
		n = poll(&pfd, 1, ms);
	while (n < 0 && errno == EINTR);
	return n > 0;
}

int
event_fd(struct rpma_conn *conn)
{
	int fd = -1;

	OK(rpma_conn_get_event_fd(conn, &fd));
	return fd;
}

int
ep_fd(struct rpma_ep *ep)
{
	int fd = -1;

	OK(rpma_ep_get_fd(ep, &fd));
	return fd;
}

bool
is_end(enum rpma_conn_event event)
{
	return event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST;
}

bool
try_connect(struct node *node, struct link *link, const struct rpma_conn_cfg *cfg, const void *private_data, uint8_t len)
{
	/* the library copies the private data */
	struct rpma_conn_private_data pdata = {(void *)(uintptr_t)private_data, len};
	enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
	struct rpma_conn_req *req = new_req(node, cfg);
	struct rpma_peer_cfg *pcfg = NULL;

	*link = (struct link){0};
	OK(rpma_conn_req_connect(&req, len > 0 ? &pdata : NULL, &link->conn));
	OK(rpma_conn_get_cq(link->conn, &link->cq));
	OK(rpma_conn_next_event(link->conn, &event));
	if (event != RPMA_CONN_ESTABLISHED) {
		EXPECT(event == RPMA_CONN_REJECTED || event == RPMA_CONN_UNREACHABLE || event == RPMA_CONN_LOST, "%s",
			rpma_utils_conn_event_2str(event));
		OK(rpma_conn_delete(&link->conn));
		return false;
	}
	OK(rpma_conn_get_private_data(link->conn, &pdata));
	if (pdata.ptr == NULL)
		return true;
	EXPECT(pdata.len >= DESCRIPTOR_SIZE + 1, "%u", pdata.len);
	memcpy(link->descriptor, pdata.ptr, DESCRIPTOR_SIZE);
	OK(rpma_mr_remote_from_descriptor(link->descriptor, DESCRIPTOR_SIZE, &link->remote));
	OK(rpma_mr_remote_get_size(link->remote, &link->remote_size));
	OK(rpma_peer_cfg_from_descriptor((char *)pdata.ptr + DESCRIPTOR_SIZE, 1, &pcfg));
	OK(rpma_conn_apply_remote_peer_cfg(link->conn, pcfg));
	OK(rpma_peer_cfg_delete(&pcfg));
	return true;
}

void
many_descriptors(unsigned needed)
{
	struct rlimit limit;

	EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	EXPECT(limit.rlim_max >= needed, "%u descriptors are needed, the limit is %llu", needed,
		(unsigned long long)limit.rlim_max);
	limit.rlim_cur = limit.rlim_max;
	EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}
