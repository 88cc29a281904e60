"""The tests' own tools: golden files that differ or are missing, and leftovers of a test, make it fail."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.python_only

pytest_plugins = ["pytester"]

GOLDEN_TEST = """
    def test_text(golden):
        golden("one\\ntwo\\n")
"""


@pytest.fixture
def inner(pytester: pytest.Pytester) -> pytest.Pytester:
    """A separate project with the same conftest."""
    tests = Path(__file__).parents[1]
    text = tests.joinpath("conftest.py").read_text()
    text = text.replace("import forked\n", f"sys.path.insert(0, {str(tests)!r})\nimport forked\n")
    memory = pytester.mkdir("memory")  # other tests watch the real one at the same time
    text = text.replace('Path("/dev/shm")', f"Path({str(memory)!r})")
    pytester.makeconftest(text.replace("GRACE_SECONDS = 30.0", "GRACE_SECONDS = 0.1"))
    return pytester


def test_a_missing_golden_file_fails(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_it=GOLDEN_TEST)
    inner.runpytest().assert_outcomes(failed=1)


def test_an_accepted_golden_file_passes_until_the_text_changes(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_it=GOLDEN_TEST)
    inner.runpytest("--update-golden").assert_outcomes(passed=1)
    path = inner.path / "golden" / "test_it" / "test_text.txt"
    assert path.read_text() == "one\ntwo\n"
    inner.runpytest().assert_outcomes(passed=1)
    path.write_text("one\nthree\n")
    result = inner.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*-three", "*+two"])


def test_leftovers_of_a_test_fail_it(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import os, pathlib, subprocess, sys, tempfile
        left = []

        def test_leaves_a_process():
            left.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"]))

        def test_leaves_a_file():
            tempfile.mkstemp()

        def test_leaves_shared_memory():
            pathlib.Path("memory/gc3_test").touch()

        def test_leaves_nothing():
            with tempfile.TemporaryDirectory():
                subprocess.run([sys.executable, "-c", ""], check=True)

        def teardown_module():
            for process in left:
                process.kill()
                process.wait()
        """
    )
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=4, errors=3)
    result.stdout.fnmatch_lines(["*left behind: process *", "*left behind: */tmp*", "*left behind: *memory/gc3_test*"])


def test_a_gpu_test_is_skipped_without_a_gpu(inner: pytest.Pytester) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    inner.makeini("[pytest]\nmarkers = gpu: needs a GPU")
    inner.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_gpu():\n    raise RuntimeError\n")
    inner.runpytest("--strict-markers").assert_outcomes(skipped=1)


def test_a_child_that_a_shared_fixture_starts_anew_is_not_left_behind(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import subprocess, sys
        import pytest

        def start():
            return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])

        def end(process):
            process.kill()
            process.wait()

        @pytest.fixture(scope="module")
        def child(lasting_children):
            running = [start()]
            lasting_children.append(lambda: running[0].pid)
            yield running
            end(running[0])
            lasting_children.pop()

        def test_starts_it_anew(child):
            end(child[0])
            child[0] = start()

        def test_starts_one_more(child):
            end(child[0])
            child[0] = start()
            child.append(start())

        def test_ends_that(child):
            end(child.pop())
        """
    )
    inner.runpytest_subprocess().assert_outcomes(passed=3, errors=1)


def test_tests_of_the_night_are_left_out_whatever_is_selected(inner: pytest.Pytester) -> None:
    inner.makeini("[pytest]\nmarkers =\n  nightly: the whole\n  slow: takes long")
    inner.makepyfile(
        """
        import pytest

        @pytest.mark.nightly
        def test_whole():
            pass

        def test_share():
            pass
        """
    )
    inner.runpytest("-m", "not slow").assert_outcomes(passed=1, deselected=1)
    inner.runpytest("--nightly").assert_outcomes(passed=2)
    inner.runpytest("--nightly", "-m", "nightly").assert_outcomes(passed=1, deselected=1)
