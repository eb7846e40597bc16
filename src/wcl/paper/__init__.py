"""`wcl reproduce NAME`: the runs behind a table of the paper, and our figures beside its own."""
