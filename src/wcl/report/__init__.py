"""The page a person looks at: `wcl report` (in `build`) and `wcl watch` (in `watch`)."""
