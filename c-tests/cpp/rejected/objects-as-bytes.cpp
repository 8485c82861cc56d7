// no matching\|cannot convert\|could not convert\|no viable conversion
// SPDX-License-Identifier: BSD-3-Clause
#include <rpma.hpp>

#include <string>
#include <vector>
void copy(rpma::local_region &region, const std::string &bytes, const std::vector<std::string> &objects) {
#ifdef RIGHT
	region.copy_in(0, bytes);
#else
	region.copy_in(0, objects);
#endif
}
