"""Links as authors write them (relative paths in the repository), as links of the site.

A file that is a page becomes a link to that page; any other file of the repository becomes a link
to a page that shows its text, so that nothing leads out of an offline copy. A link that begins with a
slash starts at the top of the repository: pages made of code use these.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from autograder.site.notebooks import wrong

_LINK = re.compile(r"(?<!\!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_OUTSIDE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|#)", re.IGNORECASE)


WITHHELD = "solutions"
"""The folder that the student edition lacks."""


class Links:
    """Rewrites links. `pages` maps files of the repository to pages of the site."""

    def __init__(self, root: Path, pages: Mapping[str, str]) -> None:
        self._root = root
        self._pages = pages
        self.sources: dict[str, str] = {}  # file of the repository -> page that shows it

    def rewrite(self, markdown: str, *, source: str, page: str) -> str:
        """The Markdown of `source` (a file of the repository) for the page at `page`.

        Raises `UsageError`, naming the link, for one that leads to nothing.
        """
        parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
        return "".join(self._rewritten(parts, source, page))

    def _rewritten(self, parts: list[str], source: str, page: str) -> Iterator[str]:
        for part in parts:
            if part.lstrip().startswith("```"):
                yield part
            else:
                yield _LINK.sub(lambda found: self._link(found, source, page), part)

    def _link(self, found: re.Match[str], source: str, page: str) -> str:
        target = self._target(found[2], source, page)
        return f"[{found[1]}]({target})" if target else found[1]

    def _target(self, link: str, source: str, page: str) -> str:
        """Where the link leads on the site; empty if it leads to what this edition withholds."""
        if _OUTSIDE.match(link):
            return link
        path, hash_, anchor = link.partition("#")
        base = "" if path.startswith("/") else posixpath.dirname(source)
        file = posixpath.normpath(posixpath.join(base, path.lstrip("/")))
        target = self._pages.get(file) or self._pages.get(f"{file}/README.md")
        if target is None and file.startswith(WITHHELD) and not (self._root / WITHHELD).is_dir():
            return ""
        if target is None:
            target = self._shown(file, f"{source}: the link to {link}")
        return posixpath.relpath(target, posixpath.dirname(page) or ".") + hash_ + anchor

    def _shown(self, file: str, where: str) -> str:
        path = self._root / file
        if file.startswith("..") or not path.exists():
            raise wrong(where, "leads to nothing in this repository.")
        if path.is_dir():
            path /= "__init__.py"
            if not path.is_file():
                raise wrong(where, "leads to a folder: name a file in it.")
            file += "/__init__.py"
        self.sources[file] = f"source/{file}.md"
        return self.sources[file]


def shown(file: str, text: str) -> str:
    """The page that shows a file of the repository."""
    language = {".py": "python", ".toml": "toml", ".json": "json", ".css": "css"}
    kind = language.get(Path(file).suffix, "text")
    fence = "````"
    return (
        f"---\ntitle: {file}\nsearch:\n  exclude: true\n---\n\n"
        f"# {Path(file).name}\n\n`{file}`\n\n{fence}{kind}\n{text.rstrip()}\n{fence}\n"
    )
