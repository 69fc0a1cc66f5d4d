"""The import names of other libraries, so that their programs run with one line changed."""
