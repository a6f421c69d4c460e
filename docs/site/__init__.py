"""Builds the docs site: `python -m docs.site`, or `make docs`.

The pages are the Markdown files of `docs/`. Lines like `<!-- generate: cli -->` in them are replaced by
reference text that `reference` makes from the code. The rest of the pages is copied as it is.
"""
