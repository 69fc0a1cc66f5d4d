"""The import names of other libraries, so that their programs run with one line changed.

Belongs here: names, defaults and signatures of other libraries over our own classes; no logic.
"""
