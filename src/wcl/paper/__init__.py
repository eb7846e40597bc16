"""The tables of the paper: `wcl reproduce` makes their runs and compares figures."""
