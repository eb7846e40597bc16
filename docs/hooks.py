"""Hooks of the documentation site: notebooks become pages, doctests become examples."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook; mkdocs calls this function by its name."""
    for path in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        page = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, page, content=markdown(path)))
    return files


def markdown(notebook: Path) -> str:
    """Return the cells of a notebook as a page, with a link to the file below the title."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    title, *others = ["".join(cell["source"]) for cell in cells]
    blocks = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell, text in zip(cells[1:], others, strict=True)
    ]
    link = f"[Download this page as a notebook]({notebook.name})"
    heading, _, introduction = title.partition("\n\n")
    return "\n\n".join([heading, link, introduction, *blocks])


class Examples(griffe.Extension):
    """Give doctests the heading without which the reference shows them as quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^>>> (?:.+\n?)+",
                lambda lines: "Examples:\n" + textwrap.indent(lines[0], "    "),
                obj.docstring.value,
                flags=re.M,
            )
