// SPDX-License-Identifier: BSD-3-Clause
// Reads the text at the beginning of the memory that another process shares.
#include <rpma.hpp>

#include <cstdio>

int main(int argc, char **argv) {
	if (argc != 3)
		return std::fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]), 2;
	try {
		auto peer = rpma::peer::open_to(argv[1]);
		auto conn = peer.connect(argv[1], argv[2]);
		auto remote = conn.remote();
		auto page = peer.reg(rpma::memory::zeroed(remote.size()), rpma::usage::read_dst);

		conn.read(page.slice(), remote.slice());
		conn.cq().next().check(); // the bytes are here only now
		std::printf("%.*s\n", static_cast<int>(page.size()), reinterpret_cast<const char *>(page.data()));
		conn.close();
	} catch (const rpma::error &error) {
		return std::fprintf(stderr, "%s\n", error.what()), 1;
	}
}
