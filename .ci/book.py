#!/usr/bin/env python3
"""The preprocessor of the book, and the check of its links.

On GitHub, README.md and ARCHITECTURE.md link to `docs/api.md`, and the pages of docs/ to `../template.yaml`. In the book, all pages
are in one folder. So `mdbook build` runs this program, which makes such links lead to pages of the book, and shows links to other
files of the repository as text, unless `git-repository-url` of book.toml is set. `book.py FOLDER` checks the built pages.
"""

import html.parser
import json
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
# The pages outside of docs/, and their names in the book.
OUTSIDE = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md"}
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^][]*(?:\[[^][]*\][^][]*)*)\]\((?P<target>[^()\s]+)\)")


def translated(page: str, text: str, repository: str | None) -> str:
    """The text of a page, whose path is that in the repository."""

    def link(found: re.Match) -> str:
        target, _, fragment = found["target"].partition("#")
        if not target or ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        fragment = fragment and f"#{fragment}"
        if path in OUTSIDE or path.startswith("docs/"):
            return f"{found['image']}[{found['text']}]({OUTSIDE.get(path) or path.removeprefix('docs/')}{fragment})"
        return f"[{found['text']}]({repository}/blob/main/{path}{fragment})" if repository else found["text"]

    # Not in code blocks.
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if index % 2 else LINK.sub(link, part) for index, part in enumerate(parts))


def preprocess() -> None:
    context, book = json.load(sys.stdin)
    repository = context["config"].get("output", {}).get("html", {}).get("git-repository-url")
    for item in book["items"]:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            page = posixpath.normpath(posixpath.join("docs", chapter["path"]))
            chapter["content"] = translated(page, chapter["content"], repository)
            chapter["path"] = OUTSIDE.get(page, chapter["path"])
    json.dump(book, sys.stdout)


class Page(html.parser.HTMLParser):
    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        self.links.update(filter(None, (attributes.get("href"), attributes.get("src"))))


def check(folder: pathlib.Path) -> None:
    pages = {path.name: Page(path) for path in folder.glob("*.html") if path.name not in ("print.html", "toc.html", "404.html")}
    dead, count = [], 0
    for name, page in pages.items():
        for link in page.links:
            target, _, fragment = link.partition("#")
            if ":" in target or target.startswith("//"):
                continue
            count += 1
            there = (folder / target).exists() if target else True
            known = pages.get(target or name)
            if not there or (fragment and known and fragment not in known.anchors):
                dead.append(f"{name}: {link}")
    missing = {path.stem for path in (ROOT / "docs").glob("*.md")} - {name.removesuffix(".html") for name in pages} - {"SUMMARY"}
    listed = {link["target"] for link in LINK.finditer((folder / "llms.txt").read_text())}
    dead += [f"llms.txt: {link}" for link in listed if not (folder / link).exists()]
    missing |= pages.keys() - listed
    if dead or missing or count < 500:
        sys.exit(f"{count} links; these lead nowhere: {dead}; not in docs/SUMMARY.md and docs/llms.txt: {missing}")
    print(f"{count} links of {len(pages)} pages lead somewhere")


if sys.argv[1:2] == ["supports"]:
    sys.exit(0)
if len(sys.argv) > 1:
    check(pathlib.Path(sys.argv[1]))
else:
    preprocess()
