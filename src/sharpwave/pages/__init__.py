"""Pages of one file: markup, style, charts and how numbers are written, for every report."""
