"""Files and folders that outlive a crash: stores of rows, saves, checkpoints, run folders.

Belongs here: whatever reads and writes files that must be whole after a crash, and knows nothing of
what the bytes mean.
"""
