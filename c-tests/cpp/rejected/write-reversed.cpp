// cannot convert\|could not convert\|no viable conversion\|no matching
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

void write(rpma::conn &conn, rpma::remote_slice there, rpma::local_slice here) {
#ifdef RIGHT
	conn.write(there, here);
#else
	conn.write(here, there);
#endif
}
