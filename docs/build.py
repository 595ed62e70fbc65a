"""Build the site: `python -m docs.build site`. Tutorials are run, and what they print is compared.

Pages are gathered in a folder of their own: those of docs/, tutorials with the pictures they draw, the
reference from docstrings, the papers' experiments with their verdicts, and a gallery of all pictures.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import reference, running

DOCS = Path(__file__).parent
ROOT = DOCS.parent
RESULTS = ROOT / "experiments" / "results"
TUTORIALS = "table classes map stream surrogate larger_than_memory".split()
AT_THE_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PAPERS = {
    "W": "Sparse Gaussians of any width (Walder, Kim, Schölkopf 2008)",
    "S": "Pseudo-inputs (Snelson, Ghahramani 2006)",
    "E": "Eigenfunctions and local methods (Williams 2006)",
    "Q": "The unifying view (Quiñonero-Candela, Rasmussen 2005)",
    "C": "Online learning and expectation propagation (Csató 2002)",
    "F": "Beyond the papers",
}
# pictures of experiments in the gallery: the files' names say little to who has not read the paper
CAPTIONS = {
    "W1-predictions.png": "Four functions of one width, four of any width, and the exact GP",
    "W1-correlation.png": "The correlations that four functions leave of a kernel",
    "S1-predictions.png": "All inducing inputs start on the left: FITC's find their way, DTC's stay",
    "S1-pull.png": "Why they stay: the gradient of each evidence, and the mismatch over 20 data sets",
    "Q1-panels.png": "Six approximations with the same ten inducing inputs",
    "Q1-failures.png": "Beside the table: negative variances, committees, transduction, local subsets",
    "Q1-posterior_maximum.png": "A lengthscale by the maximum of the posterior, and by the evidence",
}
ALONE = ("index.md", "choose.md", "gallery/index.md")  # pages without neighbours to list beside them
SHIM = "https://unpkg.com/iframe-worker/shim"
# pages from the file system may not make workers: search runs in a frame there
WORKER = """if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.IFrameWorker = true;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((done) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = () => done(inside);
        inside.document.body.append(script);
      });
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
"""


def main() -> None:
    out, begun = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        gather(pages)
        make_site(pages, out)
    print(f"{out / 'index.html'}: {time.perf_counter() - begun:.0f} s")


def gather(pages: Path, tutorials: bool = True) -> None:
    """Write all pages of the site into a folder; without running the tutorials, if told so."""
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__", "tutorials"))
    for name, copy in AT_THE_ROOT.items():
        (pages / copy).write_text((ROOT / name).read_text(encoding="utf-8").replace("](docs/", "]("))
    for page in pages.rglob("*.md"):
        page.write_text(localised(page.read_text(encoding="utf-8"), len(page.relative_to(pages).parts) - 1))
    reference.write_pages(pages / "reference")
    write_experiments(pages / "experiments")
    for name in TUTORIALS:
        write_tutorial(name, pages / "tutorials", tutorials)
    write_gallery(pages)
    for alone in ALONE:
        page = pages / alone
        page.write_text(f"---\nhide: [navigation]\n---\n\n{page.read_text(encoding='utf-8')}")


def localised(text: str, depth: int) -> str:
    """A page whose links into the repository lead to pages of the site; setups of its code are left out."""
    up = "../" * depth
    text = re.sub(r"<!-- (setup|example).*?-->\n?", "", text, flags=re.S)
    text = re.sub(r"\]\((?:\.\./)+experiments/results/(\w+)/README\.md\)", rf"]({up}experiments/\1.md)", text)
    text = re.sub(r"\]\((?:\.\./)*CONTRIBUTING\.md\)", f"]({up}contributing.md)", text)
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)*(?:benchmarks|experiments|fuzz|src|tests)/[^)]*\)", r"\1", text)


def write_tutorial(name: str, folder: Path, execute: bool = True) -> None:
    """Run a tutorial in an empty folder, and write its page and the pictures it left there."""
    folder.mkdir(exist_ok=True)
    script = (DOCS / "tutorials" / f"{name}.py").read_text(encoding="utf-8")
    chunks = running.script_chunks(script)
    (folder / f"{name}.md").write_text(running.markdown(chunks), encoding="utf-8")
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        if execute:
            running.run(chunks, f"docs/tutorials/{name}.py")
        for picture in Path(empty).glob("*.png"):
            shutil.copy(picture, folder)


def write_experiments(folder: Path) -> None:
    """A page for each experiment, and one with what held of each paper."""
    folder.mkdir()
    index = ["# The papers' experiments\n", "Claims beside findings, by `python -m experiments`.\n"]
    for letter, title in PAPERS.items():
        index += [f"\n## {title}\n", "| experiment | claims that hold |", "|---|---|"]
        results = [path for path in RESULTS.iterdir() if re.fullmatch(rf"{letter}\d+\w?", path.name)]
        for result in sorted(results, key=lambda path: (int(re.findall(r"\d+", path.name)[0]), path.name)):
            text = (result / "README.md").read_text(encoding="utf-8")
            for file in result.iterdir():
                if file.suffix in (".png", ".gif") and f"({file.name})" in text:
                    shutil.copy(file, folder / f"{result.name}-{file.name}")
                    text = text.replace(f"({file.name})", f"({result.name}-{file.name})")
            text = re.sub(r"\]\(\.\./(\w+)/README\.md\)", r"](\1.md)", text)
            (folder / f"{result.name}.md").write_text(text, encoding="utf-8")
            held, claims = verdicts(text)
            heading = text.splitlines()[0].removeprefix("# ")
            index.append(
                f"| [{heading}]({result.name}.md) | {f'{held} of {claims}' if claims else 'a picture'} |"
            )
    (folder / "index.md").write_text("\n".join(index) + "\n", encoding="utf-8")


def verdicts(text: str) -> tuple[int, int]:
    """How many claims of an experiment hold, and how many there are."""
    found = re.search(r"^\| claim .*?(?:\n\n|\Z)", text, re.S | re.M)
    rows = found[0].strip().splitlines()[2:] if found else []
    return sum(row.rstrip(" |").endswith("yes") for row in rows), len(rows)


def write_gallery(pages: Path) -> None:
    """A page of small pictures, each a link to the page that draws it."""
    from PIL import Image

    folder, cards = pages / "gallery", []
    folder.mkdir()
    drawn = [(page, picture, text) for page in gallery_pages(pages) for text, picture in pictures_of(page)]
    for number, (page, picture, text) in enumerate(drawn):
        with Image.open(page.parent / picture) as image:
            small = image.convert("RGB")
            small.thumbnail((480, 360))
            small.save(folder / f"{number}.png")
        link = page.relative_to(pages).as_posix()
        cards.append(f"-   [![{text}]({number}.png)](../{link})\n\n    [{text}](../{link})\n")
    text = "# Gallery\n\nEach picture leads to the page whose code draws it.\n\n"
    (folder / "index.md").write_text(
        f'{text}<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n", encoding="utf-8"
    )


def gallery_pages(pages: Path) -> list[Path]:
    names = [*(f"tutorials/{name}.md" for name in TUTORIALS), "likelihoods.md"]
    return [pages / name for name in (*names, "experiments/W1.md", "experiments/S1.md", "experiments/Q1.md")]


def pictures_of(page: Path) -> list[tuple[str, str]]:
    """The pictures of a page that are there, with their texts."""
    found = re.findall(r"^!\[([^\]]*)\]\(([^)]*\.png)\)", page.read_text(encoding="utf-8"), re.M)
    return [(CAPTIONS.get(name, text), name) for text, name in found if (page.parent / name).exists()]


def make_site(pages: Path, out: Path) -> None:
    """Let MkDocs make HTML of the pages; raise at its first warning."""
    import logging

    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    logging.basicConfig(level=logging.WARNING)
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(out), strict=True))
    (out / "worker.js").write_text(WORKER, encoding="utf-8")
    for page in out.rglob("*.html"):  # the theme would fetch what search needs from elsewhere
        own = os.path.relpath(out / "worker.js", page.parent).replace(os.sep, "/")
        page.write_text(page.read_text(encoding="utf-8").replace(SHIM, own), encoding="utf-8")


if __name__ == "__main__":
    main()
