"""The site's settings for Sphinx; `make docs` builds it."""

import sharpwave

project = "sharpwave"
author = "the authors of sharpwave"
copyright = f"2026, {author}"
version = release = sharpwave.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "tools.site.docstrings",
]
exclude_patterns = ["conf.py", "notebooks"]
language = "en"

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
default_role = "code"
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = f"sharpwave {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
