"""The one hook that `mkdocs.yml` names: pages from folders, a zip of the whole at the end."""

from __future__ import annotations

import logging
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel

from autograder.model import AckademyError
from autograder.report import svg
from autograder.site import pages
from autograder.site.notebooks import BUILD

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ARCHIVE = "ackademy-offline.zip"
SEARCH = 'data-md-component="search" role="dialog"'
TIMELINES = "assets/timelines.css"
_log = logging.getLogger("mkdocs.ackademy")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put every page of ours in place of what lies in `docs`, and the navigation with it."""
    root = Path(config.config_file_path).parent
    try:
        site = pages.collect(root, _log.info)
    except AckademyError as error:
        raise PluginError(f"{error.sentence}\n  Next: {error.next_command or BUILD}") from None
    for page in site.pages:
        old = files.get_file_from_path(page.uri)
        if old is not None:
            files.remove(old)
        new = File.generated(config, page.uri, content=page.content)
        if page.uri.startswith("source/"):
            new.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(new)
    for uri, text in site.files.items():
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, TIMELINES, content=timelines()))
    config.nav = site.navigation
    return files


def timelines() -> str:
    """The report's own style sheet for pictures, its two palettes following the page's switch."""
    grounded = [
        replace(each, ground="var(--md-default-bg-color)") for each in (svg.LIGHT, svg.DARK)
    ]
    return "\n".join(
        [
            svg.style(),
            *(
                f"[data-md-color-scheme={scheme}] .tl{{{svg.properties(palette)}}}"
                for scheme, palette in zip(("default", "slate"), grounded, strict=True)
            ),
        ]
    )


def on_post_page(output: str, **_: object) -> str:
    """Give the theme's search dialog the name that screen readers would miss."""
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"', 1)


@event_priority(-200)  # behind the offline plugin, which still writes the search index
def on_post_build(config: MkDocsConfig) -> None:
    """Make the archive to take along: the same bytes for the same site."""
    site = Path(config.site_dir)
    archive = site / ARCHIVE
    archive.unlink(missing_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in sorted(site.rglob("*")):
            if file.is_file() and file != archive:
                name = f"ackademy/{file.relative_to(site).as_posix()}"
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                zipped.writestr(entry, file.read_bytes())
