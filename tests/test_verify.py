"""Comparing numbers and calls."""

from pathlib import Path

import numpy as np
import pytest

from mgpu_fix import arrays, verify
from mgpu_fix.model import OUTSIDE, WAITS, KernelCall, Numbers, Observation, from_json, to_json

ml_dtypes = pytest.importorskip("ml_dtypes")


def differ(a: list[float], b: list[float], dtype: object = "float32") -> str | None:
    return verify.compare_arrays(np.array(a, dtype), np.array(b, dtype))  # type: ignore[call-overload]


def test_equal_numbers_agree_nan_included() -> None:
    assert differ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf]) is None
    assert differ([0.0], [-0.0]) is None
    assert differ([], []) is None


@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [
        ([1.0, 2.0], [1.0, 2.001], "float32"),
        ([1.0, np.nan], [1.0, 2.0], "float32"),
        ([1.0, 2.0], [1.0, np.nan], "float32"),
        ([1.0, np.inf], [1.0, -np.inf], "float32"),
        ([1, 2], [1, 3], "int32"),
        ([2**60], [2**60 + 1], "int64"),
        ([1.0], [1.125], ml_dtypes.bfloat16),
        ([1.0], [1.125], ml_dtypes.float8_e4m3fn),
        ([True], [False], "bool"),
    ],
)
def test_other_numbers_do_not(a: list[float], b: list[float], dtype: object) -> None:
    assert differ(a, b, dtype)


def test_rounding_within_the_dtype_is_allowed() -> None:
    assert differ([1.0], [1.0 + 1e-6]) is None
    assert differ([1.0], [1.0 + 2**-7], ml_dtypes.bfloat16) is None


def test_dtype_and_shape_are_strict() -> None:
    assert verify.compare_arrays(np.zeros(2, "f4"), np.zeros(2, "f8")) == "dtype float64, expected float32"
    assert verify.compare_arrays(np.zeros(2), np.zeros(3)) == "shape (3,), expected (2,)"


def test_a_difference_tells_where_and_how_much() -> None:
    text = differ([1.0, 2.0, 4.0], [1.0, 2.5, 4.0])
    assert text == "1 of 3 elements differ; most at [1]: 2.5, expected 2.0 (abs 0.5, rel 0.25, 2097152 ulp)"


@pytest.mark.parametrize(
    "dtype",
    ["float32", "bool", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int4", "uint4"],
)
def test_arrays_are_read_back_with_their_dtype(dtype: str, tmp_path: Path) -> None:
    array = np.array([[1, 2]]).astype(getattr(ml_dtypes, dtype, dtype))
    file = tmp_path / f"00001.{dtype}.npy"
    np.save(file, arrays.stored(array), allow_pickle=False)
    back = arrays.load(file)
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()


def test_what_was_never_written_is_told() -> None:
    assert verify.is_hollow(np.full(4, np.nan, "f4"))
    assert verify.is_hollow(np.full(4, np.nan, ml_dtypes.bfloat16))
    assert verify.is_hollow(np.full(4, 2**31 - 1, "i4"))
    assert not verify.is_hollow(np.array([np.nan, 1.0]))
    assert not verify.is_hollow(np.ones(4, bool))
    assert not verify.is_hollow(np.zeros(0))


def call(name: str, numbers: tuple[Numbers, ...], stage: str = "run", shape: str = "f32[8]") -> KernelCall:
    return KernelCall(name, "pl.kernel", None, (shape,), (shape,), stage, numbers)


def judged(before: list[KernelCall], after: list[KernelCall]) -> list[verify.CallVerdict]:
    def same(mine: object, theirs: object) -> str | None:
        return None if str(mine) == str(theirs) else "other numbers"

    return verify.judge(Observation("ok", tuple(before)), Observation("ok", tuple(after)), same)


KNOWN = (Numbers("known", "in", ("a",)),)


def test_calls_are_matched_by_shape_and_place_not_by_name() -> None:
    before = [call("k", KNOWN), call("m", KNOWN, shape="f32[4]")]
    [first, second] = judged(before, [call("n", KNOWN, shape="f32[4]"), call("<lambda>", KNOWN)])
    assert (first.after.name, second.after.name) == ("<lambda>", "n")  # type: ignore[union-attr]
    assert first.agrees
    assert second.agrees


def test_what_got_worse_is_told() -> None:
    assert judged([call("k", KNOWN)], [])[0].lost == "k is no longer called"
    assert judged([call("k", KNOWN)], [call("k", KNOWN, "lower")])[0].lost == "k now stops at lower"
    other = (Numbers("known", "in", ("b",)),)
    assert judged([call("k", KNOWN)], [call("k", other)])[0].lost == "k computes something else: other numbers"


def test_kernels_that_differ_in_what_they_close_over_may_become_one() -> None:
    first, second = (call("k", (Numbers("known", x, (x,)),)) for x in "ab")
    [one] = [call("k", first.numbers + second.numbers)]
    assert [(v.after, v.agrees, v.lost) for v in judged([first, second], [one])] == [(one, True, "")] * 2
    # One that computes the same for both is the kernel of neither.
    same = call("k", (*first.numbers, Numbers("known", "b", ("a",))))
    assert [bool(v.lost) for v in judged([first, second], [same])] == [False, True]
    less = "k is called less often, or with other values"
    assert [v.lost for v in judged([first, second], [first])] == ["", less]
    assert [v.lost for v in judged([first, call("m", second.numbers)], [first])] == ["", "m is no longer called"]


def test_the_random_draw_is_compared_too() -> None:
    before, after = (Numbers("known", "in", ("a",), ("d",)),), (Numbers("known", "in", ("a",), ("e",)),)
    assert judged([call("k", before)], [call("k", after)])[0].agrees is False


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((Numbers("unknown", "in", why="no"),), KNOWN),
        ((Numbers("known", "in", ("a",), stable=False),), KNOWN),
        ((Numbers("known", "other", ("a",)),), KNOWN),
        (KNOWN, (Numbers("tainted", "in"),)),
        ((), KNOWN),
    ],
)
def test_numbers_that_prove_nothing_are_no_proof(before: tuple[Numbers, ...], after: tuple[Numbers, ...]) -> None:
    [verdict] = judged([call("k", before)], [call("k", after)])
    assert verdict.agrees is None
    assert not verdict.lost


def test_observations_survive_json() -> None:
    observation = Observation("ok", (call("k", KNOWN),), reason="é", folder="f")
    assert from_json(Observation, to_json(observation)) == observation


@pytest.mark.parametrize("fault", [WAITS, OUTSIDE])
def test_a_kernel_that_comes_to_no_end_in_the_interpreter_got_worse(fault: str) -> None:
    def observation(*numbers: Numbers) -> Observation:
        return Observation("ok", (KernelCall("k", "plgpu.kernel", None, ("f32[2]",), ("f32[2]",), "run", numbers),))

    waits, large = (Numbers("tainted", "in", why=why) for why in (fault, "too large to interpret"))
    known = Numbers("known", "in", ("0.npy",))
    for before in (known, large, Numbers("unknown", "in", why="it races")):
        [verdict] = verify.judge(observation(before), observation(waits), lambda a, b: None)
        assert verdict.lost == f"k does not come to its end: {fault}"
    for before, after in ((waits, waits), (waits, known), (known, large)):
        [verdict] = verify.judge(observation(before), observation(after), lambda a, b: None)
        assert not verdict.lost
