"""Numbers of hypothesis examples: a quarter by default, all with `--hypothesis-profile=all`."""

from hypothesis import settings

# Machines are shared, so no example has a deadline. No database, and no numbers that Hypothesis
# fixes by itself where it sees a variable of CI: examples depend on the seed alone.
ALL = settings(
    settings.get_profile("default"),
    deadline=None,
    database=None,
    derandomize=False,
    max_examples=100,
)
QUARTER = settings(ALL, max_examples=ALL.max_examples // 4)


def register_profiles() -> None:
    """Register both numbers of examples and use the smaller one."""
    settings.register_profile("all", ALL)
    settings.register_profile("quarter", QUARTER)
    settings.load_profile("quarter")


def examples(count: int) -> int:
    """As many of `count` examples as the profile asks for, at least one."""
    return max(1, count * settings().max_examples // ALL.max_examples)
