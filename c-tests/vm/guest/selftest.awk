# SPDX-License-Identifier: BSD-3-Clause
# usage: awk -v wanted="INITIATOR|RESPONDER;..." -f selftest.awk OUTPUT
#
# Prints a line for each pair of ends that `rpma selftest` tested, and for each that it should have and did not.

function trimmed(text) { sub(/ +$/, "", text); return text }
/^initiator +responder +passed/ { table = 1; next }
/^$/ { table = 0 }
table {
	name = trimmed(substr($0, 1, 14)) "|" trimmed(substr($0, 16, 14))
	split(substr($0, 30), counts, " ")
	if (counts[1] + counts[2] == 0) next
	printf "%s %s  %d passed, %d failed, %d skipped\n", counts[2] ? "FAIL" : "ok  ", name, counts[1], counts[2], counts[3]
	seen[name] = 1
}
/^(FAIL|skip) / { print "     " $0 }
END {
	count = split(wanted, names, ";")
	for (i = 1; i <= count; i++) if (!(names[i] in seen)) print "FAIL " names[i] "  was not tested"
}
