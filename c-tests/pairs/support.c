/* SPDX-License-Identifier: BSD-3-Clause */
/* support.c -- the part of harness.h that the tests call. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void
fail(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: %s", file, line, condition);
	if (format[0] != '\0') {
		fputs(": ", stderr);
		va_start(ap, format);
		vfprintf(stderr, format, ap);
		va_end(ap);
	}
	fputc('\n', stderr);
	/* not exit(): destructors must not access the state of the library */
	_exit(1);
}

void
notify(struct side *side, char point)
{
	EXPECT(write(side->sync, &point, 1) == 1, "'%c': %s", point, strerror(errno));
}

void
await(struct side *side, char point)
{
	char heard = 0;
	ssize_t n;

	do
		n = read(side->sync, &heard, 1);
	while (n < 0 && errno == EINTR);
	EXPECT(n == 1, "the other process ended before '%c'", point);
	EXPECT(heard == point, "received '%c' instead of '%c'", heard, point);
}

void *
pages(size_t size)
{
	void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(ptr != MAP_FAILED, "%zu bytes: %s", size, strerror(errno));
	return ptr;
}

void *
sealed_pages(size_t size, int *file)
{
	void *ptr;

	*file = memfd_create("pairs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	EXPECT(*file >= 0 && posix_fallocate(*file, 0, (off_t)size) == 0 && fcntl(*file, F_ADD_SEALS, F_SEAL_SHRINK) == 0,
		"a memfd of %zu bytes: %s", size, strerror(errno));
	ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
	EXPECT(ptr != MAP_FAILED, "%zu bytes: %s", size, strerror(errno));
	return ptr;
}

static unsigned char
pattern_byte(size_t i, uint32_t seed)
{
	uint64_t x = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)seed * 0xd6e8feb86659fd93ull;

	return (unsigned char)(x >> 56 ^ x >> 24);
}

void
fill_pattern(void *ptr, size_t size, uint32_t seed)
{
	unsigned char *p = ptr;

	for (size_t i = 0; i < size; i++)
		p[i] = pattern_byte(i, seed);
}

void
check_pattern(const void *ptr, size_t size, uint32_t seed, const char *what)
{
	const unsigned char *p = ptr;

	for (size_t i = 0; i < size; i++)
		EXPECT(p[i] == pattern_byte(i, seed), "%s: byte %zu of %zu is 0x%02x, expected 0x%02x",
			what, i, size, p[i], pattern_byte(i, seed));
}

void
check_bytes(const void *ptr, size_t size, unsigned char value, const char *what)
{
	const unsigned char *p = ptr;

	for (size_t i = 0; i < size; i++)
		EXPECT(p[i] == value, "%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, i, size,
			p[i], value);
}

void
sleep_ms(unsigned ms)
{
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static unsigned
count_entries(const char *dir, const char *link_prefix)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	unsigned n = 0;

	EXPECT(d != NULL, "%s: %s", dir, strerror(errno));
	while ((entry = readdir(d)) != NULL) {
		char path[300];
		char link[64] = "";

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(d))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (link_prefix != NULL && readlink(path, link, sizeof(link) - 1) < 0)
			continue;
		if (link_prefix == NULL || strncmp(link, link_prefix, strlen(link_prefix)) == 0)
			n++;
	}
	closedir(d);
	return n;
}

unsigned
count_fds(void)
{
	return count_entries("/proc/self/fd", NULL);
}

unsigned
settled_fds(void)
{
	unsigned fds = count_fds();

	for (unsigned unchanged = 0; unchanged < 30; unchanged++) {
		unsigned before = fds;

		sleep_ms(10);
		fds = count_fds();
		if (fds != before)
			unchanged = 0;
	}
	return fds;
}

unsigned
count_sockets(void)
{
	/* one of them is that of the harness */
	return count_entries("/proc/self/fd", "socket:") - 1;
}

unsigned
count_shared(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	EXPECT(maps != NULL, "%s", strerror(errno));
	while (fgets(line, sizeof(line), maps) != NULL)
		n += strstr(line, "/memfd:softverbs") != NULL;
	fclose(maps);
	return n;
}

unsigned
await_shared(unsigned wanted)
{
	for (int i = 0; i < 500 && count_shared() != wanted; i++)
		sleep_ms(10);
	return count_shared();
}

unsigned
count_threads(void)
{
	return count_entries("/proc/self/task", NULL);
}

static void
set_filter(struct sock_filter *filter, size_t len)
{
	struct sock_fprog program = {(unsigned short)len, filter};

	EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "%s", strerror(errno));
	EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "%s", strerror(errno));
}

void
forbid_call(long number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	set_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

void
drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};

	EXPECT(syscall(SYS_capset, &header, none) == 0, "%s", strerror(errno));
	EXPECT(prctl(PR_SET_DUMPABLE, 1) == 0);
}

/* Whether Yama forbids every process without CAP_SYS_PTRACE to access the memory of others. */
static bool
yama_forbids_tracing(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "r");
	int scope = 0;

	if (file == NULL)
		return false;
	EXPECT(fscanf(file, "%d", &scope) == 1);
	fclose(file);
	return scope > 0;
}

void
forbid_tracing(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)getpid(), 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	if (yama_forbids_tracing())
		drop_capabilities();
	else
		set_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

void
stop_process(pid_t pid)
{
	char path[64];
	char state = 0;

	EXPECT(kill(pid, SIGSTOP) == 0, "%s", strerror(errno));
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	while (state != 'T') {
		FILE *stat = fopen(path, "r");

		EXPECT(stat != NULL && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
		fclose(stat);
		sleep_ms(1);
	}
}
