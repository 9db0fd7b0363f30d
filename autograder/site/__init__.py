"""The site: lessons, exercises, docs and generated reference as pages for MkDocs.

    notebooks -> execution (cached) -> Markdown -> pages -> MkDocs

`hook` is what `mkdocs.yml` names. Nothing imports this package: it sees all others, and needs the
dependency group `docs`. A page comes from a folder; no list has to be kept.
"""
