"""What the site shows of files that lie elsewhere in the repository: they become pages, and links follow them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PAGES = {  # page of the site -> file of the repository
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "benchmarks.md": "benchmarks/README.md",
}
PICTURES = {"images/scale.svg": "benchmarks/scale.svg"}
HOMES = {Path(source): Path(page) for page, source in (PAGES | PICTURES).items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=moved(text, source, Path())))
    for picture, source in PICTURES.items():
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links from docs/ to files outside of it."""
    place = Path(page.file.src_uri)
    return markdown if str(place) in PAGES else moved(markdown, f"docs/{place}", place.parent)


def moved(text: str, source: str, here: Path) -> str:
    """The text of a file with its links as they are on the site.

    Args:
        text: Of the file.
        source: Where it lies in the repository.
        here: The folder of the site that its page is in.
    """

    def link(found: re.Match[str]) -> str:
        picture, words, path, anchor = found.groups(default="")
        if "://" in path:
            return found[0]
        target = _plain(Path(source).parent / path)
        if target not in HOMES and target.parts[0] != "docs":
            return f"{words} (`{target.as_posix()}`)"  # a file that readers of the repository have
        place = HOMES.get(target) or target.relative_to("docs")
        return f"{picture}[{words}]({'../' * len(here.parts)}{place.as_posix()}{anchor})"

    return LINK.sub(link, text)


def _plain(path: Path) -> Path:
    """Without the steps upwards; the file need not be there."""
    found: list[str] = []
    for one in path.parts:
        found = found[:-1] if one == ".." else [*found, one]
    return Path(*found)
