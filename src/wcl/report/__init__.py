"""HTML pages about runs: the report (`build`) and the live page (`watch`)."""
