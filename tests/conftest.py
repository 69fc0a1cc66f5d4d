"""Settings of all tests."""

import os

from hypothesis import settings

# Machines are shared, so no example has a deadline. Where a change is judged the examples are
# always the same ones; everywhere else every run tries new ones.
settings.register_profile("search", deadline=None)
settings.register_profile("judge", deadline=None, derandomize=True)
settings.load_profile("judge" if os.environ.get("CI") else "search")
