"""Threads that carry out parts: in order, each once, with the error of the first part that has one."""

from __future__ import annotations

import threading
import time

import pytest

from appulse.model.workers import Workers


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("parts", [0, 1, 2, 40])
def test_parts_are_carried_out_once_and_in_order(threads: int, parts: int) -> None:
    done: list[int] = []

    def twice(part: int) -> int:
        time.sleep(0.0005 * (part % 3))
        done.append(part)
        return 2 * part

    assert Workers(threads).map(twice, range(parts)) == [2 * part for part in range(parts)]
    assert sorted(done) == list(range(parts))


def test_the_caller_is_one_of_the_threads() -> None:
    met = threading.Barrier(3)

    def own(_: int) -> int:
        met.wait(60.0)  # nobody goes on before three have come
        return threading.get_ident()

    idents = Workers(3).map(own, range(3))
    assert len(set(idents)) == 3
    assert threading.get_ident() in idents


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_error_stops_the_rest_and_is_raised_in_the_callers_thread(threads: int) -> None:
    done: list[int] = []

    def fails(part: int) -> None:
        if part == 2:
            raise ZeroDivisionError(part)
        time.sleep(0.002)
        done.append(part)

    with pytest.raises(ZeroDivisionError, match="2"):
        Workers(threads).map(fails, range(100))
    assert len(done) < 20


def test_of_several_errors_the_first_part_has_its_way() -> None:
    met = threading.Barrier(2)

    def fails(part: int) -> None:
        met.wait(60.0)
        raise KeyError(part)

    with pytest.raises(KeyError, match="0"):
        Workers(2).map(fails, range(2))
