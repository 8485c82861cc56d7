/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loader.c -- a program that is not linked with libibverbs and librdmacm: it loads them, and looks each
 * function up.
 *
 * usage: loader [ADDR]
 *
 * Prints the functions found and, as the last line, "soft0 works", and exits with 0; or with 1 and a line
 * with the error. Exits with 2 if there is no soft0, as with `rpma run --dlsym=off`.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno));        \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* A function with this name and with the type that the headers declare. */
#define FIND(handle, name) ((__typeof__(&name))dlsym((handle), #name))
#define FIND_NODE(handle, name, node) ((__typeof__(&name))dlvsym((handle), #name, (node)))

/* The file that an address belongs to. */
static const char *
file_of(void *address)
{
	Dl_info info;
	const char *name;

	EXPECT(dladdr(address, &info) != 0);
	name = strrchr(info.dli_fname, '/');
	return name != NULL ? name + 1 : info.dli_fname;
}

static struct ibv_device *
soft0(struct ibv_device **list, const char *(*name_of)(struct ibv_device *))
{
	for (; *list != NULL; list++)
		if (strcmp(name_of(*list), "soft0") == 0)
			return *list;
	return NULL;
}

/* Uses verbs, all of whose functions are looked up in the same way. */
static void
use_device(void *handle, const char *node)
{
#define FOUND(name) (node == NULL ? FIND(handle, name) : FIND_NODE(handle, name, node))
	__typeof__(&ibv_get_device_list) get = FOUND(ibv_get_device_list);
	__typeof__(&ibv_free_device_list) release = FOUND(ibv_free_device_list);
	__typeof__(&ibv_get_device_name) name_of = FOUND(ibv_get_device_name);
	__typeof__(&ibv_open_device) open_it = FOUND(ibv_open_device);
	__typeof__(&ibv_close_device) close_it = FOUND(ibv_close_device);
	__typeof__(&ibv_alloc_pd) alloc = FOUND(ibv_alloc_pd);
	__typeof__(&ibv_dealloc_pd) dealloc = FOUND(ibv_dealloc_pd);
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, int) = NULL;
	__typeof__(&ibv_dereg_mr) dereg = FOUND(ibv_dereg_mr);
	static char memory[4096];
	struct ibv_device **list;
	struct ibv_device *device;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int n;

	/* a macro of the header has this name */
	*(void **)&reg = node == NULL ? dlsym(handle, "ibv_reg_mr") : dlvsym(handle, "ibv_reg_mr", node);
	EXPECT(get && release && name_of && open_it && close_it && alloc && dealloc && reg && dereg);
	list = get(&n);
	/* the real library has no list at all on a system without support for devices in its kernel */
	device = list != NULL ? soft0(list, name_of) : NULL;
	if (device == NULL) {
		printf("there is no soft0\n");
		exit(2);
	}
	context = open_it(device);
	EXPECT(context != NULL);
	release(list);
	pd = alloc(context);
	EXPECT(pd != NULL);
	mr = reg(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	EXPECT(mr != NULL && mr->length == sizeof(memory));
	EXPECT(dereg(mr) == 0 && dealloc(pd) == 0 && close_it(context) == 0);
	printf("%s finds soft0\n", node == NULL ? "dlsym" : "dlvsym");
}

static void
use_cm(void *handle, const char *addr)
{
	__typeof__(&rdma_create_id) create = FIND(handle, rdma_create_id);
	__typeof__(&rdma_resolve_addr) resolve = FIND(handle, rdma_resolve_addr);
	__typeof__(&rdma_destroy_id) destroy = FIND_NODE(handle, rdma_destroy_id, "RDMACM_1.0");
	__typeof__(&rdma_event_str) name_of = FIND(handle, rdma_event_str);
	struct sockaddr_in dst = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct rdma_cm_id *id;

	EXPECT(create && resolve && destroy && name_of);
	EXPECT(inet_pton(AF_INET, addr, &dst.sin_addr) == 1);
	EXPECT(create(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	EXPECT(resolve(id, NULL, (struct sockaddr *)&dst, 2000) == 0);
	EXPECT(id->verbs != NULL && strcmp(id->verbs->device->name, "soft0") == 0);
	EXPECT(destroy(id) == 0);
	/* functions without an object are those of the real library */
	EXPECT(strcmp(file_of((void *)name_of), "librdmacm.so.1") == 0 || strncmp(file_of((void *)name_of), "librdmacm.so.1.", 15) == 0);
	printf("rdma_cm finds soft0\n");
}

int
main(int argc, char *argv[])
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void *cm;

	if (verbs == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	use_device(verbs, NULL);
	use_device(verbs, "IBVERBS_1.1");
	/* the functions of IBVERBS_1.0 have objects with another layout */
	EXPECT(strncmp(file_of(dlvsym(verbs, "ibv_open_device", "IBVERBS_1.0")), "libibverbs.so.1", 15) == 0);
	EXPECT(strncmp(file_of(dlsym(verbs, "ibv_wc_status_str")), "libibverbs.so.1", 15) == 0);
	EXPECT(dlsym(verbs, "ibv_no_such_function") == NULL && dlerror() != NULL);
	EXPECT(dlvsym(verbs, "ibv_open_device", "IBVERBS_9.9") == NULL && dlerror() != NULL);
	/* all other functions are those without the preloaded library */
	EXPECT(strncmp(file_of(dlsym(RTLD_NEXT, "malloc")), "libc.so", 7) == 0);
	EXPECT(strncmp(file_of(dlsym(RTLD_DEFAULT, "dlsym")), "libc.so", 7) == 0);

	cm = dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL);
	EXPECT(cm != NULL);
	use_cm(cm, argc > 1 ? argv[1] : "127.0.0.1");
	/* once more, after the libraries have been closed and loaded again */
	EXPECT(dlclose(cm) == 0 && dlclose(verbs) == 0);
	verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_GLOBAL);
	EXPECT(verbs != NULL);
	use_device(verbs, NULL);
	printf("soft0 works\n");
	return 0;
}
