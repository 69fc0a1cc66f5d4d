"""Exit with 0 if the cmake on the path is new enough to build with (3.25)."""

import re
import shutil
import subprocess
import sys

cmake = shutil.which("cmake")
if cmake is None:
    sys.exit(1)
version = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=True).stdout
match = re.search(r"(\d+)\.(\d+)", version)
sys.exit(match is None or tuple(map(int, match.groups())) < (3, 25))
