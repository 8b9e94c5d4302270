"""Every failure finds exactly one rule, and every rule explains itself."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mgpu_fix import catalogue
from mgpu_fix.catalogue import NoFix, Rule
from mgpu_fix.model import Facts, Failure
from mgpu_fix.source import SourceFile

RULES = catalogue.load().rules
#: What JAX raised, with the versions it was seen on.
SEEN: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "messages.json").read_text(encoding="utf-8"))
HEADINGS = ["What it means", "Why it happens", "Example", "Use instead", "Fix safety"]


def failure(seen: dict[str, Any]) -> Failure:
    return Failure(seen["type"], seen["message"], "trace", facts=Facts(callee=seen["callee"]))


@pytest.mark.parametrize("seen", SEEN, ids=lambda s: f"{s['code']}-{s['type']}-{s['message'][:60]}")
def test_a_failure_hits_one_rule(seen: dict[str, Any]) -> None:
    assert [rule.code for rule in catalogue.load().ties(failure(seen))] == [seen["code"]]
    rule = catalogue.load().match(failure(seen))
    assert rule is not None
    assert rule.code == seen["code"]


def test_every_rule_is_hit() -> None:
    assert {seen["code"] for seen in SEEN} == {rule.code for rule in RULES if rule.signatures}


def test_a_failure_of_something_else_hits_none() -> None:
    for kind, message in [
        ("TypeError", "Mesh.shape() got an unexpected keyword argument 'out_shape'"),
        ("TypeError", "my_kernel() got an unexpected keyword argument 'out_shape'"),
        ("ValueError", "kernel() got an unexpected keyword argument 'out_shape'"),
        ("TypeError", "body() takes 2 positional arguments but 3 were given"),
        ("AssertionError", ""),
        ("AttributeError", "module 'jax' has no attribute 'kernel'"),
        ("NotImplementedError", ""),
    ]:
        assert catalogue.load().match(Failure(kind, message, "trace")) is None


def test_a_cause_further_down_the_chain_counts() -> None:
    chain = (
        ("LoweringError", "Exception while lowering eqn"),
        ("ValueError", "Can only load scalars in warp-level code."),
    )
    rule = catalogue.load().match(Failure(*chain[0], "lower", chain=chain))
    assert rule is not None
    assert rule.code == "MGF101"


# A message without text cannot be told from everybody's AssertionError.
@pytest.mark.parametrize("seen", [s for s in SEEN if s["message"]], ids=lambda s: f"{s['code']}-{s['message'][:60]}")
def test_a_pasted_traceback_is_recognised(seen: dict[str, Any]) -> None:
    text = f'Traceback (most recent call last):\n  File "k.py", line 3\n{seen["type"]}: {seen["message"]}\n'
    assert seen["code"] in [rule.code for rule in catalogue.load().recognise(text)]


#: How errors of JAX are listed elsewhere, cut short or with the names of their holes, and the rule that explains each.
LISTED = {
    "Can only store scalars in warp-level lowering.": "MGF101",
    "Cannot pass the same ref into a mpmd map multiple times": "MGF406",
    "Cannot specify both out_shape and out_type. Use out_type.": "MGF901",
    "Cannot specify both scratch_shapes and scratch_types. Use sc": "MGF901",
    "Explicit sharding is not currently supported in the pallas-t": "MGF801",
    "Group sizes {group_sizes.shape=} must match first dimension": "MGF801",
    "MPMD map with more than one mesh requires scratch_type to ha": "MGF407",
    "Only thread-collective allocations are supported in multithr": "MGF301",
    "This gmm kernel only supports either (m, k) x (g, k, n) -> (": "MGF801",
    "Unsupported dtype: {ref.dtype}": "MGF803",
    "WGMMA accumulators can only be allocated non-collectively. H": "MGF301",
    "`thread_id` must be zero when allocating a buffer for all th": "MGF802",
    "collective_axes is not supported in pallas_call. Use plgpu.k": "MGF509",
    "inline_mgpu in a single-warp context only supports scalar ar": "MGF201",
    "num_threads and thread_name must be either both set or both": "MGF501",
    "packed cannot be specified if layout is specified.": "MGF504",
    "packed, collective and layout arguments are only supported f": "MGF504",
}


@pytest.mark.parametrize("words", LISTED)
def test_the_first_words_of_a_message_are_enough(words: str) -> None:
    assert [rule.code for rule in catalogue.load().recognise(words)][:1] == [LISTED[words]]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_a_rule_explains_itself(rule: Rule) -> None:
    assert re.fullmatch(r"MGF[1-9]\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert rule.jax
    assert rule.summary.endswith(".")
    assert re.findall(r"^## (.*)$", rule.page, re.M) == HEADINGS
    assert rule.page.count("```") % 2 == 0


@pytest.mark.parametrize("rule", [r for r in RULES if r.signatures and not r.repairs], ids=lambda r: r.code)
def test_a_rule_without_a_fix_says_what_to_do_by_hand(rule: Rule) -> None:
    seen = next(s for s in SEEN if s["code"] == rule.code)
    with pytest.raises(NoFix, match="by hand: "):
        list(rule.candidates(failure(seen), SourceFile("k.py", b"")))


def test_codes_and_names_are_unique() -> None:
    assert max(Counter(r.code for r in RULES).values()) == 1
    assert max(Counter(r.name for r in RULES).values()) == 1


def test_a_rule_is_found_by_code_and_by_name() -> None:
    for rule in RULES:
        assert catalogue.load().find(rule.code.lower()) is rule
        assert catalogue.load().find(rule.name) is rule
    assert catalogue.load().find("MGF999") is None
