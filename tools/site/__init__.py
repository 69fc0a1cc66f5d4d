"""The site: the documents, a reference of every public name, and what holds them together."""
