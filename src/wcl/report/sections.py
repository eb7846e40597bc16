"""The parts of the page that are plain markup, in the order in which one asks."""

import re
from collections.abc import Sequence

from wcl.report.page import escape
from wcl.report.provenance import (
    Recipe,
    machine_facts,
    provenance,
    recipe_of,
    training_facts,
    value_text,
)
from wcl.report.runs import Run
from wcl.report.scores import Row, Scores, verdict

_QUESTIONS = {
    "worked": "Did it work?",
    "healthy": "Is it healthy?",
    "grouped": "What did it group?",
    "map": "Where does everything lie?",
    "made": "How was it made?",
}
_SCALE = 180  # width of the little scale in a line of the table


def header(kind: str, runs: Sequence[Run], lead: str, below: str = "") -> str:
    """Which runs these are; `below` is markup for the line under it."""
    names = " <span>and</span> ".join(
        f'<b class="run c{number % 8}">{escape(run.name)}</b>' for number, run in enumerate(runs)
    )
    return (
        f'<header><p class="kind">{escape(kind)}</p><h1>{names}</h1>'
        f'<p class="lead">{escape(lead)}</p>{below}</header>'
    )


def contents() -> str:
    """Links to the sections."""
    links = "".join(
        f'<li><a href="#{name}">{escape(words)}</a></li>' for name, words in _QUESTIONS.items()
    )
    return f'<nav aria-label="Sections"><ol>{links}</ol></nav>'


def section(name: str, content: str) -> str:
    number = list(_QUESTIONS).index(name) + 1
    return (
        f'<section id="{name}" aria-labeledby="{name}-title">'
        f'<h2 id="{name}-title"><span>{number}</span> {escape(_QUESTIONS[name])}</h2>'
        f"{content}</section>"
    )


def notes(sentences: Sequence[str]) -> str:
    """A line each, with what stands between backquotes as code."""
    lines = (re.sub("`([^`]+)`", r"<code>\1</code>", escape(s)) for s in dict.fromkeys(sentences))
    return "".join(f'<p class="note">{line}</p>' for line in lines)


def run_heading(runs: Sequence[Run], number: int) -> str:
    """The name of a run above what is its own, where there are several."""
    if len(runs) == 1:
        return ""
    return f'<h3 class="run c{number % 8}">{escape(runs[number].name)}</h3>'


# -- 1 --------------------------------------------------------------------------------------------


def worked(found: Scores, names: Sequence[str], missing: Sequence[str]) -> str:
    """The answer in words, the table, and what there is to know."""
    said = verdict(found, names) or ["It cannot be said in figures yet."]
    answers = "".join(f'<p class="answer">{_answer(words)}</p>' for words in said)
    return answers + score_table(found, names) + notes([*found.notes, *missing])


def _answer(words: str) -> str:
    """A sentence whose first word, where it is the answer, stands out."""
    answer, colon, rest = words.partition(": ")
    return f"<b>{escape(answer)}</b>: {escape(rest)}" if colon else escape(words)


def score_table(found: Scores, names: Sequence[str]) -> str:
    """Every measurement: raw pixels, the untrained network, the runs, and all of it on a scale."""
    if not found.rows:
        return ""
    alike = all(_alike(row.untrained) for row in found.rows)
    pixels = any(row.pixels is not None for row in found.rows)
    heads = ['<th scope="col">measured by</th>', '<th scope="col" class="scale">0 – 1</th>']
    heads += ['<th scope="col">raw pixels</th>'] if pixels else []
    untrained = ["untrained"] if alike else [f"untrained, as {name}" for name in names]
    heads += [f'<th scope="col">{escape(name)}</th>' for name in untrained]
    heads += [
        f'<th scope="col" class="run c{number % 8}">{escape(name)}</th>'
        for number, name in enumerate(names)
    ]
    heads += ['<th scope="col" class="count">train / test images</th>']
    lines = [_score_line(row, alike, pixels) for row in found.rows]
    return (
        f'<div class="wide"><table class="scores"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{_score_legend(found, names)}"
    )


def _score_legend(found: Scores, names: Sequence[str]) -> str:
    """What the marks of the little scales mean, of those that there are."""
    marks = []
    if any(row.pixels is not None for row in found.rows):
        marks.append((_pixels_mark(6, 6), "raw pixels"))
    untrained = [row for row in found.rows if any(value is not None for value in row.untrained)]
    if untrained:
        scratch = any(row.protocol == "finetune" for row in untrained)
        about = " (for fine-tuning: trained from scratch)" if scratch else ""
        marks.append((_untrained_mark(6, 6), f"the same network untrained{about}"))
    marks += [
        (_run_mark(number, 6, 6), name if len(names) > 1 else "trained")
        for number, name in enumerate(names)
        if any(row.runs[number] is not None for row in found.rows)
    ]
    items = "".join(
        f'<li><svg width="12" height="12" aria-hidden="true">{mark}</svg> {escape(meaning)}</li>'
        for mark, meaning in marks
    )
    return f'<ul class="legend marks">{items}</ul>'


def _score_line(row: Row, alike: bool, pixels: bool) -> str:
    known = next((value for value in row.untrained if value is not None), None)
    measure = {"map": "mean average precision"}.get(row.measure, "")
    elsewhere = f"on {row.elsewhere}" if row.elsewhere else ""
    about = ", ".join(filter(None, (row.setting, measure, elsewhere)))
    cells = [f'<th scope="row">{escape(row.name)} <small>{escape(about)}</small></th>']
    cells.append(f'<td class="scale">{_scale(row)}</td>')
    cells += [_cell(row.pixels)] if pixels else []
    cells += [_cell(known)] if alike else [_cell(value) for value in row.untrained]
    every = (row.pixels, *row.untrained, *row.runs)
    best = max((value for value in every if value is not None), default=None)
    several = sum(value is not None for value in row.runs) > 1
    cells += [_cell(value, several and value == best) for value in row.runs]
    cells.append(f'<td class="count">{row.n_train:,} / {row.n_test:,}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: float | None, best: bool = False) -> str:
    if value is None:
        return '<td><span class="none" title="not measured">–</span></td>'
    return f"<td><strong>{value:.3f}</strong></td>" if best else f"<td>{value:.3f}</td>"


def _scale(row: Row) -> str:
    """The line's figures as marks; the figures themselves stand beside it."""
    marks = [f'<line x1="6" x2="{_SCALE + 6}" y1="10" y2="10"/>']
    if row.pixels is not None:
        marks.append(_pixels_mark(6 + _SCALE * row.pixels, 10))
    marks += [
        _untrained_mark(6 + _SCALE * value, 10)
        for value in dict.fromkeys(row.untrained)
        if value is not None
    ]
    marks += [
        _run_mark(number, 6 + _SCALE * value, 10)
        for number, value in enumerate(row.runs)
        if value is not None
    ]
    return f'<svg width="{_SCALE + 12}" height="20" aria-hidden="true">{"".join(marks)}</svg>'


def _pixels_mark(x: float, y: float) -> str:
    return f'<rect class="pixels" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'


def _untrained_mark(x: float, y: float) -> str:
    return f'<circle class="untrained" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _run_mark(run: int, x: float, y: float) -> str:
    return f'<circle class="dot c{run % 8}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def _alike(values: Sequence[float | None]) -> bool:
    return len({round(value, 6) for value in values if value is not None}) <= 1


# -- 2 and 4 --------------------------------------------------------------------------------------


def healthy(curves: bool, about: Sequence[str] = ()) -> str:
    """Where the script draws the curves, below what one must know of them."""
    if not curves:
        return notes(["There are no curves: no step of training is logged yet."])
    return notes(about) + (
        '<ul class="runs" id="runs"></ul><div class="charts" id="charts"></div>'
        "<noscript><p>The curves are drawn by a script, which this browser does not run.</p>"
        "</noscript>"
    )


def mapped(there: bool, missing: Sequence[str]) -> str:
    """Where the script draws the maps."""
    place = (
        '<div id="maps"></div>'
        "<noscript><p>The map is drawn by a script, which this browser does not run.</p></noscript>"
    )
    return (place if there else "") + notes(missing)


# -- 5 --------------------------------------------------------------------------------------------


def made(runs: Sequence[Run], commands: Sequence[tuple[str, str]]) -> str:
    parts = [run_heading(runs, number) + settings_of(run) for number, run in enumerate(runs)]
    return "".join([*parts, repeat(commands), page_with_provenance()])


def settings_of(run: Run) -> str:
    """How far a run has come, its settings that are not its recipe's, and what it was made with."""
    parts = [_facts(training_facts(run))]
    recipe = recipe_of(run)
    if recipe is None:
        parts.append(notes(["Its settings cannot be read."]))
    else:
        parts.append(_of_recipe(recipe, next((s.config for s in run.sessions if s.config), "")))
    for step, facts in provenance(run):
        when = f"From step {step:,} on it was" if step else "It was"
        parts.append(f"<p>{when} trained with:</p>{_facts([*facts.items()])}")
    return "".join(parts)


def _of_recipe(recipe: Recipe, file: str) -> str:
    """The recipe of a run, the file of settings if there was one, and what differs."""
    said = f"the recipe <b>{escape(recipe.name)}</b>"
    if recipe.known:
        said = f"It was made from {said}" + (f" and {escape(file)}" if file else "")
    else:
        said = (f"It was made from {escape(file)}. " if file else "") + f"It is nearest to {said}"
    if not recipe.differences:
        return f"<p>{said}, with all of its settings.</p>"
    lines = "".join(
        f'<tr><th scope="row"><code>{escape(d.name)}</code></th>'
        f"<td>{escape(value_text(d.recipe))}</td><td>{escape(value_text(d.run))}</td></tr>"
        for d in recipe.differences
    )
    return (
        f"<p>{said}; these settings differ:</p>"
        '<div class="wide"><table><thead><tr><th scope="col">setting</th><th scope="col">'
        f'{escape(recipe.name)}</th><th scope="col">this run</th></tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def repeat(lines: Sequence[tuple[str, str]]) -> str:
    text = "\n\n".join(f"# {escape(about)}\n{_in_parts(command)}" for about, command in lines)
    return f"<h3>To repeat it</h3><pre><code>{text}</code></pre>"


def _in_parts(command: str) -> str:
    """A command as markup whose lines end before an option, not at a hyphen within one."""
    return " ".join(f"<span>{escape(part)}</span>" for part in re.split(" (?=--)", command))


def page_with_provenance() -> str:
    return f"<h3>This page was made with</h3>{_facts(machine_facts())}"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts
    )
    return f'<dl class="facts">{items}</dl>' if items else ""
