# SPDX-License-Identifier: BSD-3-Clause
"""The lines of tools/release and tools/check-release."""

import time

from roots import Failed, Missing


def run_each(tests):
    """Calls the function of each (name, function) and prints a line with its result. Returns how many passed, failed and were skipped."""
    passed = failed = skipped = 0
    for name, function in tests:
        began = time.monotonic()
        try:
            said = function()
            print(f"ok   {name}  {said} ({time.monotonic() - began:.0f} s)", flush=True)
            passed += 1
        except Missing as reason:
            print(f"skip {name}: {reason}", flush=True)
            skipped += 1
        except Failed as error:
            print(f"FAIL {name}  {error}; the end of {error.log}:", flush=True)
            if error.log.exists():
                print(*(f"     {line[:200]}" for line in error.log.read_text(errors="replace").splitlines()[-15:]), sep="\n", flush=True)
            failed += 1
    return passed, failed, skipped


def print_sum(passed, failed, skipped):
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
