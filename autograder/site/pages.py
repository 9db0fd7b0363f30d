"""Which pages there are: found in folders, in the order of their numbers. No list has to be kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import yaml

from autograder import __version__, catalog
from autograder.model import Exercise
from autograder.site import execution, notebooks, reference, render
from autograder.site.links import WITHHELD, Links, shown
from autograder.site.notebooks import Notebook, front_matter, wrong

DOCS = "docs"
SECTIONS = (("learn", "Learn"), ("teach", "Teach"), ("write", "Write"))

_WITHHELD = (
    "This page is made with the solutions, and your edition has none: that is what makes it the "
    "student edition. A full copy of the course has the page."
)


@dataclass
class Page:
    """One page. `source` is the file of the repository it comes from."""

    uri: str
    source: str
    title: str
    body: str
    front: dict[str, Any] = field(default_factory=dict)
    stamp: Mapping[str, str] | None = None

    @property
    def content(self) -> str:
        """What MkDocs reads: front matter, text, and what it was executed with."""
        front = yaml.safe_dump({**self.front, "title": self.title}, sort_keys=False)
        foot = render.footer(self.stamp, self.source, __version__)
        return f"---\n{front}---\n\n{self.body.strip()}\n\n{foot}\n"


@dataclass
class Site:
    """All pages, other files by their place, and the navigation."""

    pages: list[Page]
    files: dict[str, str]
    navigation: list[Any]


def collect(root: Path, say: Callable[[str], None]) -> Site:
    """Every page of the site; executes what has to be. Raises `UsageError` for a wrong source."""
    files: dict[str, str] = {}
    lessons = [
        _lesson(folder, root, files, say) for folder in _leaves(root / "lessons", "lesson.md")
    ]
    exercises, errors = catalog.load_all(root)
    if errors:
        raise errors[0]
    statements = [_statement(exercise, root) for exercise in exercises]
    docs = [_document(file, root, files, say) for file in sorted((root / DOCS).rglob("*.md"))]
    generated = [
        Page(each.uri, each.source, each.title, each.body)
        for each in reference.references(exercises, root)
    ]
    pages = [*docs, *lessons, *statements, *generated]
    facts = {"lessons": _course(lessons, statements)}
    for page in docs:
        page.body = (
            render.filled(page.body, facts, page.source) if page.stamp is None else page.body
        )
    _link(pages, root)
    return Site(pages, files, _navigation(pages))


def slug(part: str) -> str:
    """`03_concurrency` as it stands in an address: without its number, so that order may change."""
    return part.partition("_")[2]


def _uri(tree: str, path: str) -> str:
    unit, lesson = path.split("/")
    return f"{tree}/{slug(unit)}/{slug(lesson)}.md"


def _leaves(tree: Path, name: str) -> list[Path]:
    return sorted(file.parent for file in tree.glob(f"[0-9][0-9]_*/[0-9][0-9]_*/{name}"))


def _executed(
    notebook: Notebook, root: Path, say: Callable[[str], None]
) -> tuple[Any, Mapping[str, str]]:
    cells = execution.executed(notebook, root, say)
    if not execution.is_complete(cells):
        raise wrong(notebook.name, "some of its cells have not been executed.")
    return cells, cells.metadata["ackademy"]["executed"]


def _lesson(folder: Path, root: Path, files: dict[str, str], say: Callable[[str], None]) -> Page:
    notebook = notebooks.read(folder / "lesson.md", root)
    notebooks.check_lesson(notebook)
    for left in folder.glob("*.ipynb"):
        raise wrong(left.relative_to(root).as_posix(), "outputs are not kept: remove this file.")
    path = folder.relative_to(root / "lessons").as_posix()
    cells, stamp = _executed(notebook, root, say)
    front = notebook.front
    exercise = root / "exercises" / path / "README.md"
    facts = {"outcomes": "\n".join(f"- {each}" for each in front["outcomes"])}
    body = render.to_markdown(notebook, cells, facts)
    uri = _uri("lessons", path)
    name = f"{slug(path.split('/')[1])}.ipynb"
    files[f"{uri.rpartition('/')[0]}/{name}"] = nbformat.writes(
        render.download(cells, notebook, facts)
    )
    about = [slug(path.split("/")[0]).replace("_", " "), f"{front['minutes']} minutes"]
    about += [f"runs on {', '.join(front['brokers'])}"]
    if exercise.is_file():
        about.append(f"[the exercise](../../../exercises/{path}/README.md)")
    about.append(f'<a href="{name}" download>this page as a notebook</a>')
    head = f"# {front['title']}\n\n{' · '.join(about)}\n{{ .ack-about }}\n\n"
    return Page(
        uri, notebook.name, front["title"], head + body,
        {"description": front["description"], "order": path}, stamp,
    )  # fmt: skip


def _statement(exercise: Exercise, root: Path) -> Page:
    source = (exercise.folder / "README.md").relative_to(root).as_posix()
    body = (root / source).read_text(encoding="utf-8")
    lesson = root / "lessons" / exercise.path / "lesson.md"
    if lesson.is_file():
        title, _, rest = body.partition("\n")
        link = f"../../../lessons/{exercise.path}/lesson.md"
        brokers = [each for each in exercise.engines if each != "sim"]
        told = (
            f"Exercise to [the lesson]({link}) · graded on {', '.join(brokers)} · "
            f"{sum(exercise.points.values())} points\n{{ .ack-about }}"
        )
        body = f"{title}: the exercise\n\n{told}\n{rest}"
    return Page(
        _uri("exercises", exercise.path), source, f"{exercise.title}: the exercise", body,
        {"order": exercise.path},
    )  # fmt: skip


def _document(file: Path, root: Path, files: dict[str, str], say: Callable[[str], None]) -> Page:
    source = file.relative_to(root).as_posix()
    front, body = front_matter(file.read_text(encoding="utf-8"), source)
    stamp: Mapping[str, str] | None = None
    if front.get("withheld") and not (root / WITHHELD).is_dir():
        body = f"# {front['title']}\n\n{_WITHHELD}"
    elif front.get("execute"):
        notebook = notebooks.read(file, root)
        cells, stamp = _executed(notebook, root, say)
        body = render.to_markdown(notebook, cells, {})
        for name, text in _attached(cells).items():
            files[f"{source.removeprefix(f'{DOCS}/').rpartition('/')[0]}/{name}"] = text
    heading = next((line[2:] for line in body.splitlines() if line.startswith("# ")), file.stem)
    title = str(front.get("title", heading))
    return Page(source.removeprefix(f"{DOCS}/"), source, title, body, front, stamp)


def _attached(cells: Any) -> Mapping[str, str]:
    """Files that cells gave to the page, as `lessonkit.attach` writes them."""
    given = json.loads(cells.metadata["ackademy"]["facts"].get("attachments", "{}"))
    return {str(name): str(text) for name, text in given.items()}


def _link(pages: list[Page], root: Path) -> None:
    """Turn links between files into links between pages, and add pages for files that are shown."""
    told = {page.source: page.uri for page in pages if page.source.endswith(".md")}
    told |= {f"{DOCS}/{page.uri}": page.uri for page in pages if page.uri.startswith("reference/")}
    links = Links(root, told)
    for page in pages:
        page.body = links.rewrite(page.body, source=page.source, page=page.uri)
    for file, uri in sorted(links.sources.items()):
        text = shown(file, (root / file).read_text(encoding="utf-8"))
        front, body = front_matter(text, file)
        pages.append(Page(uri, file, file, body, front))


def _course(lessons: list[Page], statements: list[Page]) -> str:
    """The lessons and exercises there are, as a table for pages that list them."""
    exercise = {page.front["order"]: page for page in statements}
    rows = ["| unit | lesson | exercise |", "|---|---|---|"]
    for page in sorted(lessons, key=lambda each: str(each.front["order"])):
        order = str(page.front["order"])
        unit = slug(order.split("/", maxsplit=1)[0]).replace("_", " ")
        own = exercise.get(order)
        practice = f"[{own.title.partition(':')[0]}](/{own.source})" if own else "to come"
        rows.append(f"| {unit} | [{page.title}](/{page.source}) | {practice} |")
    return "\n".join(rows)


def _navigation(pages: list[Page]) -> list[Any]:
    by_tree = {tree: list(_within(pages, tree)) for tree in ("lessons", "exercises")}
    units: dict[str, list[Any]] = {}
    for page in sorted(
        [*by_tree["lessons"], *by_tree["exercises"]],
        key=lambda each: (str(each.front["order"]), each.uri.startswith("exercises")),
    ):
        unit = slug(str(page.front["order"]).split("/")[0]).replace("_", " ").capitalize()
        units.setdefault(unit, []).append({page.title: page.uri})
    found: list[Any] = [{"Home": "index.md"}]
    for tree, title in SECTIONS:
        own: list[Any] = [{page.title: page.uri} for page in _ordered(pages, tree)]
        if tree == "learn":
            own[1:1] = [{unit: entries} for unit, entries in units.items()]
        found.append({title: own})
    found.append({"Reference": [{each.title: each.uri} for each in _within(pages, "reference")]})
    decisions = sorted(
        _within(pages, "adr"), key=lambda each: (each.uri != "adr/README.md", each.uri)
    )
    found.append({"Decisions": [{each.title: each.uri} for each in decisions]})
    return found


def _within(pages: list[Page], tree: str) -> Iterator[Page]:
    return (page for page in pages if page.uri.startswith(f"{tree}/"))


def _ordered(pages: list[Page], tree: str) -> list[Page]:
    return sorted(_within(pages, tree), key=lambda each: (each.front.get("order", 99), each.uri))
