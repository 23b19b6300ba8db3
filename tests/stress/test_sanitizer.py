"""Whose fault a sanitizer's report is."""

from __future__ import annotations

from edgeproof.stress.sanitizer import reports

THREAD = """\
something else
==================
WARNING: ThreadSanitizer: data race (pid=12)
  Write of size 8 at 0x7b04 by thread T2:
    #0 memcpy ../../src/libsanitizer/tsan/interceptors.inc:827 (libtsan.so.2+0x1)
    #1 work(int) {first} (x.so+0x2)

  Previous read of size 8 at 0x7b04 by thread T1:
    #0 {second}

  Thread T2 (tid=14, running) created by main thread at:
    #0 pthread_create ../../src/libsanitizer/tsan/interceptors.inc:1001 (libtsan.so.2+0x3)
    #1 Driver::run /x/native/driver.cpp:10 (driver.cpython-311-x86_64-linux-gnu.so+0x4)

SUMMARY: ThreadSanitizer: data race x.cc:1 in work(int)
==================
"""
ADDRESS = """\
=================================================================
==77==ERROR: AddressSanitizer: heap-use-after-free on address 0x60 at pc 0x55 bp 0x7f sp 0x7f
READ of size 4 at 0x60 thread T1
    #0 0x55 in read(int*) /x/native/bridge.cpp:33
    #1 0x56 in main /x/main.cpp:4

0x60 is located 0 bytes inside of 4-byte region [0x60,0x64)
freed by thread T0 here:
    #0 0x57 in operator delete(void*) (libasan.so.8+0x1)
    #1 0x58 in drop() /x/wheel.cpp:9

SUMMARY: AddressSanitizer: heap-use-after-free /x/native/bridge.cpp:33 in read(int*)
==77==ABORTING
"""


def thread(first: str, second: str) -> str:
    return THREAD.replace("{first}", first).replace("{second}", second)


def test_a_race_in_a_wheel_is_not_ours_though_our_thread_ran_it() -> None:
    [found] = reports(thread("x.cc:1", "y() y.cc:2 (y.so+0x1)"))
    assert (found.what, found.ours) == ("data race", False)
    assert found.where.startswith("work(int) x.cc:1")
    assert "SUMMARY" in found.text


def test_a_race_with_either_access_in_our_code_is_ours() -> None:
    for pair in (
        ("/x/native/driver.cpp:7", "y() y.cc:2"),
        ("x.cc:1", "y() /x/native/bridge.cpp:7"),
    ):
        [found] = reports(thread(*pair))
        assert found.ours


def test_each_place_is_told_once() -> None:
    assert len(reports(2 * thread("x.cc:1", "y() y.cc:2") + thread("z.cc:3", "y() y.cc:2"))) == 2


def test_a_use_after_free_is_found() -> None:
    [found] = reports(ADDRESS)
    assert (found.what.split()[0], found.ours) == ("heap-use-after-free", True)
    assert found.where == "read(int*) /x/native/bridge.cpp:33"


def test_a_quiet_log_has_none() -> None:
    assert reports("all is well\n") == []
