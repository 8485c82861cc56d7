/* SPDX-License-Identifier: BSD-3-Clause */
/* proxy.c -- see proxy.h */
#include "proxy.h"

#include "stress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The largest offset of a fault: more than most connections send. */
#define FAR 300000
/* MPA Request and Reply: key, flags, revision, length of the private data. */
#define FRAME_HEADER 20
#define FRAME_LENGTH_AT 18
#define SPLIT_BYTES 4000

const char *const spoil_names[SPOILS] = {"nothing", "split", "delay", "cut", "truncate", "flip", "burst", "drop", "repeat", "handshake"};

enum spoil
spoil_of(uint64_t number, bool changes)
{
	struct rng rng = rng_of("spoil", number);

	return (enum spoil)rng_below(&rng, changes ? SPOILS : SPOIL_TRUNCATE + 1);
}

/* One connection. Direction 0 is from the initiator to the target. */
struct stream {
	int from[2];
	uint64_t seen[2]; /* bytes forwarded */
	uint64_t frame[2]; /* length of the MPA frame at its beginning; 0: not yet known */
	enum spoil how;
	unsigned direction;
	uint64_t at; /* offset of the fault in that direction, after the frame */
	struct rng rng;
	bool done;
	bool changes;
	const char *to;
};

static bool
send_all(int fd, const unsigned char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		bytes += n;
		len -= (size_t)n;
	}
	return true;
}

static void
reset(int fd)
{
	struct linger at_once = {1, 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

/* Forwards bytes, some of them in pieces. False: the connection has ended. */
static bool
forward(struct stream *stream, unsigned direction, unsigned char *bytes, size_t len)
{
	int out = stream->from[!direction];
	uint64_t begins = stream->seen[direction];
	size_t offset;

	stream->seen[direction] += len;
	if (stream->how == SPOIL_DELAY && rng_below(&stream->rng, 4) == 0)
		sleep_ms((unsigned)rng_below(&stream->rng, 15));
	if (stream->how == SPOIL_SPLIT && begins < SPLIT_BYTES) {
		while (len > 0) {
			size_t piece = 1 + rng_below(&stream->rng, 64);

			if (piece > len)
				piece = len;
			if (!send_all(out, bytes, piece))
				return false;
			bytes += piece;
			len -= piece;
		}
		return true;
	}
	if (stream->done || direction != stream->direction || stream->how <= SPOIL_DELAY || begins + len <= stream->at)
		return send_all(out, bytes, len);

	offset = stream->at - begins;
	stream->done = true;
	switch (stream->how) {
	case SPOIL_CUT:
		send_all(out, bytes, offset);
		reset(stream->from[0]);
		reset(stream->from[1]);
		return false;
	case SPOIL_TRUNCATE:
		send_all(out, bytes, offset);
		shutdown(out, SHUT_WR);
		return false;
	case SPOIL_DROP: {
		size_t missing = 1 + rng_below(&stream->rng, len - offset);

		return send_all(out, bytes, offset) && send_all(out, bytes + offset + missing, len - offset - missing);
	}
	case SPOIL_REPEAT: {
		size_t twice = 1 + rng_below(&stream->rng, len - offset);

		return send_all(out, bytes, offset + twice) && send_all(out, bytes + offset, len - offset);
	}
	case SPOIL_BURST: {
		uint32_t bits = (uint32_t)rng_next(&stream->rng) | 1;

		for (size_t i = 0; i < 4 && offset + i < len; i++)
			bytes[offset + i] ^= (unsigned char)(bits >> 8 * i);
		return send_all(out, bytes, len);
	}
	default:
		bytes[offset] ^= (unsigned char)(1u << rng_below(&stream->rng, 8));
		return send_all(out, bytes, len);
	}
}

/* Waits for the whole MPA Request, and derives the fault from its private data. */
static bool
read_request(struct stream *stream, unsigned char *bytes, size_t *len)
{
	uint64_t number;
	size_t whole = FRAME_HEADER;

	for (*len = 0; *len < whole;) {
		ssize_t n = recv(stream->from[0], bytes + *len, whole - *len, 0);

		if (n <= 0)
			return false;
		*len += (size_t)n;
		if (*len >= FRAME_HEADER)
			whole = FRAME_HEADER + ((size_t)bytes[FRAME_LENGTH_AT] << 8 | bytes[FRAME_LENGTH_AT + 1]);
	}
	/*
	 * the number is at the end of the private data: those of an enhanced request begin with 4 more bytes
	 */
	if (whole < FRAME_HEADER + sizeof(number))
		return false;
	memcpy(&number, bytes + whole - sizeof(number), sizeof(number));
	stream->how = spoil_of(number, stream->changes);
	stream->rng = rng_of("how", number);
	stream->direction = (unsigned)rng_below(&stream->rng, 2);
	/* half of the faults are near the beginning */
	stream->at = rng_below(&stream->rng, rng_below(&stream->rng, 2) == 0 ? 600 : FAR);
	stream->frame[0] = whole;
	return true;
}

/* Only the length of the Reply is needed. False: not yet known. */
static bool
know_frame(struct stream *stream, unsigned direction, const unsigned char *bytes, size_t len)
{
	if (stream->frame[direction] == 0 && len >= FRAME_HEADER)
		stream->frame[direction] =
			FRAME_HEADER + ((size_t)bytes[FRAME_LENGTH_AT] << 8 | bytes[FRAME_LENGTH_AT + 1]);
	return stream->frame[direction] != 0;
}

/*
 * Faults that break the connection can be anywhere; those that change bytes are after the frame, which no CRC
 * protects, or in its first bytes.
 */
static void
place_fault(struct stream *stream)
{
	if (stream->how == SPOIL_HANDSHAKE)
		stream->at %= FRAME_LENGTH_AT;
	else if (stream->how >= SPOIL_FLIP)
		stream->at += stream->frame[stream->direction];
}

static void
run_stream(struct stream *stream)
{
	static __thread unsigned char bytes[65536];
	bool open[2] = {true, true};
	bool placed = false;
	size_t len;

	if (!read_request(stream, bytes, &len))
		return;
	if (stream->direction == 0 || stream->how < SPOIL_FLIP || stream->how == SPOIL_HANDSHAKE) {
		place_fault(stream);
		placed = true;
	}
	if (!forward(stream, 0, bytes, len))
		return;
	while (open[0] || open[1]) {
		struct pollfd pfds[2] = {{stream->from[0], open[0] ? POLLIN : 0, 0}, {stream->from[1], open[1] ? POLLIN : 0, 0}};

		/*
		 * if the length of an FPDU was changed, its receiver waits for bytes that are never sent:
		 * then the stream ends
		 */
		if (poll(pfds, 2, stream->done && stream->how >= SPOIL_FLIP ? 300 : -1) <= 0)
			return;
		for (unsigned d = 0; d < 2; d++) {
			ssize_t n;

			if (pfds[d].revents == 0 || !open[d])
				continue;
			n = recv(stream->from[d], bytes, sizeof(bytes), 0);
			if (n < 0) {
				reset(stream->from[!d]);
				return;
			}
			if (n == 0) {
				shutdown(stream->from[!d], SHUT_WR);
				open[d] = false;
				continue;
			}
			/* a Reply is one segment; otherwise nothing would be changed in that direction */
			if (d == 1 && stream->seen[1] == 0 && know_frame(stream, 1, bytes, (size_t)n) && !placed) {
				place_fault(stream);
				placed = true;
			}
			if (!placed && d == stream->direction)
				stream->done = true;
			if (!forward(stream, d, bytes, (size_t)n))
				return;
		}
	}
}

static void *
stream_thread(void *arg)
{
	struct stream *stream = arg;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)atoi(stream->to))};
	int one = 1;

	stream->from[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (stream->from[1] >= 0 && connect(stream->from[1], (struct sockaddr *)&to, sizeof(to)) == 0) {
		setsockopt(stream->from[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		setsockopt(stream->from[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		run_stream(stream);
	}
	close(stream->from[0]);
	close(stream->from[1]);
	free(stream);
	return NULL;
}

pid_t
start_proxy(const char *to, char port[8], bool changes)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(here);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid;

	EXPECT(listener >= 0 && bind(listener, (struct sockaddr *)&here, sizeof(here)) == 0 && listen(listener, 64) == 0 &&
			getsockname(listener, (struct sockaddr *)&here, &len) == 0,
		"%s", strerror(errno));
	snprintf(port, 8, "%u", ntohs(here.sin_port));
	pid = fork();
	EXPECT(pid >= 0, "%s", strerror(errno));
	if (pid > 0) {
		close(listener);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		struct stream *stream;
		pthread_t thread;

		if (fd < 0)
			continue;
		stream = calloc(1, sizeof(*stream));
		if (stream == NULL)
			_exit(1);
		stream->from[0] = fd;
		stream->to = to;
		stream->changes = changes;
		if (pthread_create(&thread, NULL, stream_thread, stream) != 0)
			_exit(1);
		pthread_detach(thread);
	}
}
