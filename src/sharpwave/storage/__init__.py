"""Files and folders that outlive a crash: stores of rows, saves, checkpoints, run folders."""
