// use of deleted function\|cannot be assigned because\|implicitly deleted
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

void assign(rpma::conn &to, rpma::conn &from) {
#ifdef RIGHT
	to = std::move(from);
#else
	to = from;
#endif
}
