"""What can be done with an ``inline_mgpu`` function that makes an array at warp level, and where only a hoist can."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from golden_cases import CASES, Case

from mgpu_fix.catalogue import NoFix, load
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Facts
from mgpu_fix.source import SourceFile


def case(name: str) -> Case:
    return next(c for c in CASES if c.code == "MGF201" and c.folder.name == name)


def candidates(
    case: Case, change: Callable[[str], str] = str, facts: Callable[[Facts], Facts] = lambda f: f
) -> list[Candidate]:
    """Candidates for the case's failure, in its source and with its facts as they are changed."""
    [failure, *_] = next(found for found in case.recorded().values() if found)
    rule = load().match(failure)
    assert rule is not None
    text = change(case.before.decode())
    failure = replace(failure, facts=facts(failure.facts))
    return list(rule.candidates(failure, SourceFile(case.path, text.encode())))


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("array_and_number", ["hoist"]),
        ("defined_outside", ["hoist"]),
        ("factory", ["hoist"]),
        ("indexed_by_the_caller", ["scalar"]),
        ("load", ["hoist", "write-to-ref"]),
        ("reduced_by_the_caller", ["hoist", "scalar"]),
        ("splat", ["hoist", "write-to-ref"]),
        ("stored_twice", ["hoist"]),
        ("summed_by_the_caller", ["scalar"]),
        ("unused_result", ["hoist"]),
        ("written_to_ref_between_copies", ["write-to-ref"]),
    ],
)
def test_what_is_offered(name: str, names: list[str]) -> None:
    found = candidates(case(name))
    assert [c.name for c in found] == names
    assert all(c.applicability is Applicability.UNSAFE for c in found if c.name != "hoist")


LOAD = "mgpu.FragmentedArray.load_strided(ref, vec_size=1)"
ONLY_HOISTED: dict[str, Callable[[str], str]] = {
    "a Ref whose elements lie elsewhere": lambda t: t.replace("(plgpu.RefType(),)", "(plgpu.RefType((TILING,)),)"),
    "another layout": lambda t: t.replace(LOAD, f"{LOAD}.to_layout(LAYOUT)"),
    "what is loaded is no parameter": lambda t: t.replace("load_strided(ref,", "load_strided(OTHER,"),
    "one element of another place": lambda t: t.replace(LOAD, f"{LOAD}[::2]"),
    "registers": lambda t: t.replace(LOAD, f"mgpu.FragmentedArray.splat({LOAD}.registers[0], (128,))"),
    "a value that only some lanes have": lambda t: t.replace(f"return {LOAD}", f"if ctx: return {LOAD}"),
    "one line": lambda t: t.replace(f"(ctx, ref):\n            return {LOAD}", f"(ctx, ref): return {LOAD}\n"),
    "a default": lambda t: t.replace("(ctx, ref)", "(ctx, ref, n=1)"),
    "a dtype that has no addresses": lambda t: t,
    "it reads what it stores": lambda t: t,
}


@pytest.mark.parametrize("name", ONLY_HOISTED)
def test_where_no_warp_can_do_it_alone(name: str) -> None:
    def facts(facts: Facts) -> Facts:
        [region] = facts.regions
        dtype = "int4" if name == "a dtype that has no addresses" else "float32"
        [read] = [o.ref for o in region.operations if o.name == "inline_mgpu"]
        place = {"swap": read} if name == "it reads what it stores" else {}
        operations = tuple(replace(o, dtype=dtype, ref=place.get(o.name, o.ref)) for o in region.operations)
        return replace(facts, regions=(replace(region, operations=operations),))

    assert [c.name for c in candidates(case("load"), ONLY_HOISTED[name], facts)] == ["hoist"]


@pytest.mark.parametrize("index", ["[i]", "[:]", "[9, 9]", "[-1]"])
def test_no_number_that_is_not_known(index: str) -> None:
    with pytest.raises(NoFix):
        candidates(case("indexed_by_the_caller"), lambda t: t.replace("load(smem)[5]", f"load(smem){index}"))


def test_a_sum_that_would_change_its_dtype() -> None:
    def small(facts: Facts) -> Facts:
        [region] = facts.regions
        operations = tuple(replace(o, dtype="int8") for o in region.operations)
        return replace(facts, regions=(replace(region, operations=operations),))

    assert [c.name for c in candidates(case("reduced_by_the_caller"), facts=small)] == ["hoist"]


def test_names_that_are_taken() -> None:
    def change(text: str) -> str:
        return text.replace("(ctx, ref)", "(i, carry)").replace("strided(ref", "strided(carry")

    [_, candidate] = candidates(case("load"), change)
    text = SourceFile("", change(case("load").before.decode()).encode()).edited(candidate.edits).text
    assert "def load(i, carry, out_ref):" in text
    assert "def _(i2, carry2):" in text
    assert "memref.load(carry, [i2])" in text


def test_every_candidate_can_be_preferred() -> None:
    rule = load().find("MGF201")
    assert rule is not None
    assert rule.choices == ("hoist", "write-to-ref", "scalar")
    assert all(f"`{name}`" in rule.page for name in rule.choices)


@pytest.mark.parametrize(
    ("returned", "level"),
    [
        (LOAD, Applicability.SAFE),
        (f"twice({LOAD})", Applicability.SAFE),
        (f"(memref.store(ONE, ref, [0]), {LOAD})[1]", Applicability.UNSAFE),
        (f"counted({LOAD}, ref)", Applicability.UNSAFE),
    ],
)
def test_what_one_warp_does_in_memory_four_may_not(returned: str, level: Applicability) -> None:
    def change(text: str) -> str:
        helpers = "def twice(a):\n    return a + a\ndef counted(a, ref):\n    mgpu.atomic_add(ref, 1)\n    return a\n"
        return text.replace(LOAD, returned) + helpers

    assert candidates(case("load"), change)[0].applicability is level
