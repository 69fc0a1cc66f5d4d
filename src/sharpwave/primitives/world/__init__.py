"""Row-wise functions of a world model's step."""
