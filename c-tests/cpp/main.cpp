// SPDX-License-Identifier: BSD-3-Clause
// usage: tests [WORD...]   runs the tests whose name contains one of the words, each side in a separate process
#include "harness.hpp"

#include <cstring>
#include <exception>
#include <sys/wait.h>

static constexpr unsigned limit_s = 20;

std::error_code thrown(const std::function<void()> &call) {
	try {
		call();
	} catch (const rpma::error &error) {
		REQUIRE(error.call()[0] != '\0');
		REQUIRE(std::string(error.what()).find(error.code().message()) != std::string::npos);
		return error.code();
	}
	throw std::logic_error("nothing was thrown");
}

std::string message(const std::function<void()> &call) {
	try {
		call();
	} catch (const rpma::error &error) {
		return error.what();
	}
	throw std::logic_error("nothing was thrown");
}

void place::start_client() const { REQUIRE(write(ready, "", 1) == 1); }

rpma::endpoint place::listen(rpma::peer &peer) const {
	auto endpoint = peer.listen(addr, port.c_str());
	start_client();
	return endpoint;
}

/* A free port below the ephemeral ones. */
static std::string free_port() {
	static unsigned next = static_cast<unsigned>(getpid());
	for (;;) {
		const unsigned port = 20000 + next++ * 7919 % 12000;
		const int fd = socket(AF_INET, SOCK_STREAM, 0);
		sockaddr_in addr{};
		addr.sin_family = AF_INET;
		addr.sin_port = htons(static_cast<std::uint16_t>(port));
		addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		const int ret = bind(fd, reinterpret_cast<sockaddr *>(&addr), sizeof(addr));
		close(fd);
		if (ret == 0)
			return std::to_string(port);
	}
}

static pid_t start(const char *side, const std::function<void(const place &)> &body, const place &where) {
	std::fflush(nullptr);
	const pid_t pid = fork();
	if (pid != 0)
		return pid;
	alarm(limit_s);
	int code = 1;
	try {
		body(where);
		code = 0;
	} catch (const on_purpose &) {
		code = 0;
	} catch (const std::exception &error) {
		std::printf("     %s: %s\n", side, error.what());
	}
	std::exit(code);
}

static bool ends_well(pid_t pid, const char *side) {
	int status = 0;
	waitpid(pid, &status, 0);
	if (status != 0)
		std::printf("     the %s ended with status %d\n", side, status);
	return status == 0;
}

static bool run(const test &test) {
	place where;
	where.port = free_port();
	int ends[2];
	char byte;
	if (pipe(ends) != 0)
		return false;
	where.ready = ends[1];
	const pid_t server = test.server ? start("server", test.server, where) : 0;
	close(ends[1]);
	/* returns at the end of the server, too: then the client reports the error */
	bool good = !test.server || read(ends[0], &byte, 1) >= 0;
	close(ends[0]);
	good &= ends_well(start("client", test.client, where), "client");
	return (!server || ends_well(server, "server")) && good;
}

int main(int argc, char **argv) {
	int passed = 0, failed = 0;
	auto tests = alone();
	for (auto &pair : pairs())
		tests.push_back(pair);
	for (const auto &test : tests) {
		bool wanted = argc == 1;
		for (int i = 1; i < argc; i++)
			wanted |= std::strstr(test.name, argv[i]) != nullptr;
		if (!wanted)
			continue;
		const bool good = run(test);
		std::printf("%s %s\n", good ? "ok  " : "FAIL", test.name);
		++(good ? passed : failed);
	}
	std::printf("%d passed, %d failed\n", passed, failed);
	return failed != 0 || passed == 0;
}
