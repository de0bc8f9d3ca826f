"""What the site shows of files that lie elsewhere in the repository: they become pages, and links follow them."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.exceptions import PluginError
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
        files.append(File.generated(config, page, content=moved(text, source, Path(), config.exclude_docs.match_file)))
    for picture, source in PICTURES.items():
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links from docs/ to files outside of it."""
    place = Path(page.file.src_uri)
    left_out = config.exclude_docs.match_file
    return markdown if str(place) in PAGES else moved(markdown, f"docs/{place}", place.parent, left_out)


def on_post_build(config: Any, **_: Any) -> None:
    """Looks at the pages themselves: links to folders and to files that are left out pass the checks of mkdocs."""
    if dead := dead_links(Path(config.site_dir)):
        raise PluginError("links that lead to no file of the site: " + "; ".join(dead))


def dead_links(site: Path) -> list[str]:
    """Every `href` and `src` of a page that is none of the site's files, as `page -> link`."""
    found = []
    for page in sorted(site.rglob("*.html")):
        reader = Links()
        reader.feed(page.read_text(encoding="utf-8"))
        for link in sorted(reader.links):
            address = urlsplit(link)
            if address.scheme or address.netloc or not address.path:
                continue
            start = site if address.path.startswith("/") else page.parent
            if not (start / unquote(address.path).lstrip("/")).is_file():
                found.append(f"{page.relative_to(site)} -> {link}")
    return found


class Links(HTMLParser):
    """What a page links to and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links |= {value for name, value in attrs if name in {"href", "src"} and value}


def moved(text: str, source: str, here: Path, left_out: Callable[[str], bool]) -> str:
    """The text of a file with its links as they are on the site.

    Args:
        text: Of the file.
        source: Where it lies in the repository.
        here: The folder of the site that its page is in.
        left_out: Whether a path in docs/ is no part of the site.
    """

    def link(found: re.Match[str]) -> str:
        picture, words, path, anchor = found.groups(default="")
        if "://" in path:
            return found[0]
        target = _plain(Path(source).parent / path)
        if target not in HOMES and (target.parts[0] != "docs" or left_out(f"{target.relative_to('docs')}/")):
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
