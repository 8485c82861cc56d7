/* SPDX-License-Identifier: BSD-3-Clause */
/* raw.c -- the references: the same patterns on a plain TCP connection. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * An FPDU of an 8-byte RDMA Write: 2 bytes of MPA length, 14 of the tagged DDP/RDMAP header, the 8 bytes,
 * 4 of CRC field.
 */
#define FPDU_OF_8 28

int
raw_open(struct side *side)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	int one = 1;
	int fd;

	inet_pton(AF_INET, ADDR, &sin.sin_addr);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(fd >= 0, "socket: %s", strerror(errno));
	if (side->initiator) {
		ctl_recv(side, &sin.sin_port, sizeof(sin.sin_port));
		REQUIRE(connect(fd, (struct sockaddr *)&sin, len) == 0, "connect: %s", strerror(errno));
	} else {
		int listener = fd;

		REQUIRE(bind(listener, (struct sockaddr *)&sin, len) == 0, "bind: %s", strerror(errno));
		REQUIRE(listen(listener, 1) == 0, "listen: %s", strerror(errno));
		REQUIRE(getsockname(listener, (struct sockaddr *)&sin, &len) == 0, "getsockname: %s",
			strerror(errno));
		ctl_send(side, &sin.sin_port, sizeof(sin.sin_port));
		fd = accept(listener, NULL, NULL);
		REQUIRE(fd >= 0, "accept: %s", strerror(errno));
		close(listener);
	}
	REQUIRE(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY: %s",
		strerror(errno));
	return fd;
}

static void
send_all(int fd, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = send(fd, p, size, MSG_NOSIGNAL);

		REQUIRE(n > 0, "send: %s", strerror(errno));
		p += n;
		size -= (size_t)n;
	}
}

/* Receives all bytes; spins, unless it may sleep. */
static void
recv_all(int fd, void *data, size_t size, bool sleep)
{
	char *p = data;

	while (size > 0) {
		ssize_t n = recv(fd, p, size, sleep ? 0 : MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			continue;
		REQUIRE(n > 0, "recv: %s", n == 0 ? "end of stream" : strerror(errno));
		p += n;
		size -= (size_t)n;
	}
}

void
raw_pingpong(struct side *side)
{
	bool sleep = side->opt.sleep;
	int fd = raw_open(side);
	uint64_t value = 0, answer = 0;

	ctl_barrier(side);
	if (!side->initiator) {
		do {
			recv_all(fd, &value, sizeof(value), sleep);
			send_all(fd, &value, sizeof(value));
		} while (value != STOP);
	} else {
		struct timer t;

		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			value++;
			send_all(fd, &value, sizeof(value));
			recv_all(fd, &answer, sizeof(answer), sleep);
			REQUIRE(answer == value, "answer %" PRIu64 " to %" PRIu64, answer, value);
		}
		value = STOP;
		send_all(fd, &value, sizeof(value));
		recv_all(fd, &answer, sizeof(answer), sleep);
		timer_report(&t, 1);
	}
	close(fd);
}

/* One send() per message, as in a program without a library; the receiver reads the available bytes. */
void
raw_rate(struct side *side)
{
	int fd = raw_open(side);
	char message[FPDU_OF_8] = {0};
	static char buf[256 * 1024];
	char done = 1;

	ctl_barrier(side);
	if (!side->initiator) {
		ssize_t n;
		size_t total = 0;

		while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
			total += (size_t)n;
		REQUIRE(n == 0, "recv: %s", strerror(errno));
		ctl_send(side, &total, sizeof(total));
	} else {
		uint64_t began = now_ns();
		uint64_t end = began + side->opt.ms * UINT64_C(1000000);
		uint64_t n = 0, elapsed;
		size_t total;

		do {
			for (int i = 0; i < 256; i++, n++)
				send_all(fd, message, sizeof(message));
		} while (now_ns() < end);
		shutdown(fd, SHUT_WR);
		REQUIRE(recv(fd, &done, 1, 0) == 0, "an answer where none was expected");
		elapsed = now_ns() - began;
		ctl_recv(side, &total, sizeof(total));
		REQUIRE(total == n * sizeof(message), "%zu bytes arrived of %" PRIu64 " messages", total, n);
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * 1e3 / (double)elapsed, n);
	}
	close(fd);
}

/* Messages of opt.size, repeatedly the same buffer on both sides; the end is when all have arrived. */
void
raw_stream(struct side *side)
{
	size_t size = side->opt.size;
	int fd = raw_open(side);
	char *buf = calloc(1, size);

	REQUIRE(buf != NULL, "no memory");
	memset(buf, 1, size);
	ctl_barrier(side);
	if (!side->initiator) {
		ssize_t n;
		size_t total = 0;

		while ((n = recv(fd, buf, size, 0)) > 0)
			total += (size_t)n;
		REQUIRE(n == 0, "recv: %s", strerror(errno));
		ctl_send(side, &total, sizeof(total));
	} else {
		uint64_t began = now_ns();
		uint64_t end = began + side->opt.ms * UINT64_C(1000000);
		uint64_t n = 0, elapsed;
		size_t total;

		do {
			for (int i = 0; i < 4; i++, n++)
				send_all(fd, buf, size);
		} while (now_ns() < end);
		shutdown(fd, SHUT_WR);
		REQUIRE(recv(fd, buf, 1, 0) == 0, "an answer where none was expected");
		elapsed = now_ns() - began;
		ctl_recv(side, &total, sizeof(total));
		REQUIRE(total == n * size, "%zu bytes arrived of %" PRIu64 " messages", total, n);
		printf("value=%.4f rounds=%" PRIu64 "\n", (double)n * (double)size / (double)elapsed, n);
	}
	free(buf);
	close(fd);
}
