"""Pages of one file: markup, style, charts and how numbers are written, for every report.

Belongs here: markup, style and charts, and the pages made of them: `report` of runs, `viewer` of
stored experience, `watch` of many runs.
"""
