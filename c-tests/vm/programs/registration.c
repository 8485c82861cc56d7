/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The messages about memory that a device can or cannot register.
 *
 *   registration [-k] ADDR LIMIT BYTES...
 *
 * Sets the limit of locked memory to LIMIT bytes, drops CAP_IPC_LOCK unless -k is given, and registers
 * regions of these sizes, one after another, until one is refused. For each it prints the log messages,
 * without the region's address, or that it was registered; for the last registered one also the result of
 * rpma_mr_advise, and the support of on-demand paging.
 */

#include <librpma.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void give_up_capability(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) != 0)
		exit(3);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	data[0].permitted &= ~(1u << CAP_IPC_LOCK);
	if (syscall(SYS_capset, &header, data) != 0)
		exit(3);
}

static void print(enum rpma_log_level level, const char *file_name, const int line_no,
		const char *function_name, const char *message_format, ...)
{
	char text[1024];
	char *from, *to;
	va_list ap;

	(void)file_name;
	(void)line_no;
	(void)function_name;
	if (level > RPMA_LOG_LEVEL_ERROR)
		return;
	va_start(ap, message_format);
	vsnprintf(text, sizeof(text), message_format, ap);
	va_end(ap);
	from = strstr(text, "addr=0x");
	to = from != NULL ? strstr(from, ", ") : NULL;
	if (to != NULL)
		memmove(from, to + 2, strlen(to + 2) + 1);
	fputs(text, stdout);
}

int main(int argc, char *argv[])
{
	int keep = argc > 1 && strcmp(argv[1], "-k") == 0;
	struct rlimit limit;
	struct ibv_context *ctx = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_mr_local *mr = NULL;
	size_t size = 0;
	int capable = -1;

	argv += keep;
	argc -= keep;
	if (argc < 4) {
		fprintf(stderr, "usage: registration [-k] ADDR LIMIT BYTES...\n");
		return 2;
	}
	limit.rlim_cur = limit.rlim_max = strtoul(argv[2], NULL, 0);
	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
		return 3;
	if (!keep)
		give_up_capability();
	if (rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx) != 0 ||
			rpma_peer_new(ctx, &peer) != 0 || rpma_log_set_function(print) != 0)
		return 3;

	for (int i = 3; i < argc; i++) {
		size = strtoul(argv[i], NULL, 0);
		void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			return 3;
		if (rpma_mr_reg(peer, memory, size, RPMA_MR_USAGE_WRITE_DST, &mr) != 0)
			return 1;
		printf("registered\n");
	}
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED);
	int advised = rpma_mr_advise(mr, 0, size, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH);
	if (rpma_utils_ibv_context_is_odp_capable(ctx, &capable) != 0)
		return 3;
	printf("advice: %s\non-demand paging: %s\n", rpma_err_2str(advised), capable ? "yes" : "no");
	/* the regions end with the process */
	return 0;
}
