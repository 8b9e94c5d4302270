"""The written documentation says what the catalogue says. Nothing here imports JAX."""

import rule_pages

from mgpu_fix import catalogue


def test_the_pages_of_rules_are_as_the_catalogue_says() -> None:
    wanted = rule_pages.pages(catalogue.load().rules)
    found = {path: path.read_text(encoding="utf-8") for path in rule_pages.FOLDER.glob("*.md")}
    stale = [path.name for path in {**wanted, **found} if wanted.get(path) != found.get(path)]
    assert not stale, "run: python tools/rule_pages.py"


def test_every_rule_is_in_the_index() -> None:
    rules = catalogue.load().rules
    index = rule_pages.index(rules)
    assert all(f"({rule.code}-{rule.name}.md)" in index for rule in rules)
