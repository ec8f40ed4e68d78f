"""`make bench`: run every benchmark, or those named in ARGS, print ratios, keep everything in bench/results/.

make bench ARGS="drain latency"     only these
make bench ARGS="drain --quick"     fewer jobs and rounds: a look, not a verdict
make bench ARGS="cliffs --long"     what once was slow, at full size, with snapshots held for ten minutes
make bench ARGS="monitors --long"   the punctuality of 10,000 services over ten minutes
make bench ARGS="before --against main"  everpoll as it is now beside that of another commit
"""

import argparse
import functools
import platform
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import (
    backlog,
    before,
    cadence,
    cliffs,
    drain,
    enqueue,
    health_history,
    idle,
    latency,
    limits,
    lists,
    loops,
    monitors,
    streams,
    tables,
    watches,
)
from bench.plot import ratios_svg
from bench.report import Ratio, Report, table

RESULTS = Path(__file__).parent / "results"


def _loops(_quick: bool) -> Report:
    found: dict[str, Any] = loops.run()
    rows: list[tuple[str, ...]] = [(str(label), str(figure)) for label, figure in found["rows"]]
    return Report("loops", found["title"], ("measured", ""), rows, samples=found["samples"])


BENCHES: dict[str, Callable[[bool], Report]] = {
    "loops": _loops,
    "drain": drain.run,
    "latency": latency.run,
    "backlog": backlog.run,
    "enqueue": enqueue.run,
    "idle": idle.run,
    "cadence": cadence.run,
    "watches": watches.run,
    "tables": tables.run,
    "lists": lists.run,
    "streams": streams.run,
    "limits": limits.run,
    "health-history": health_history.run,
    "monitors": monitors.run,
    "cliffs": cliffs.run,
    "before": before.run,
}
ALL = [name for name in BENCHES if name != "before"]
"""Without names: those that compare with others."""


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(BENCHES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer jobs and rounds")
    parser.add_argument(
        "--long",
        action="store_true",
        help="cliffs: full sizes, snapshots held for ten minutes; monitors: punctuality over ten minutes",
    )
    parser.add_argument("--only", default="", help="cliffs, monitors, before: these of their parts, with commas")
    parser.add_argument("--against", default="HEAD", help="before: the commit to compare with")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in BENCHES]:
        sys.exit(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
    parts = [*cliffs.SCENARIOS, *monitors.PARTS, *before.PARTS]
    if unknown := [name for name in asked.only.split(",") if name and name not in parts]:
        sys.exit(f"no such part: {', '.join(unknown)}; there are: {', '.join(parts)}")
    benches: dict[str, Callable[[bool], Report]] = {
        **BENCHES,
        "cliffs": functools.partial(cliffs.run, long=asked.long, only=asked.only),
        "monitors": functools.partial(monitors.run, long=asked.long, only=asked.only),
        "before": functools.partial(before.run, against=asked.against, only=asked.only),
    }
    RESULTS.mkdir(exist_ok=True)
    reports = []
    for name in asked.names or ALL:
        began = time.monotonic()
        report = benches[name](asked.quick)
        report.notes.append(_conditions(time.monotonic() - began, quick=asked.quick))
        _keep(name, report)
        print(f"\n{report.markdown()}", flush=True)
        reports.append(report)
    ratios = [ratio for report in reports for ratio in report.ratios]
    if ratios:
        (RESULTS / "ratios.svg").write_text(ratios_svg(ratios))
        _summarise(reports, ratios)


def _keep(name: str, report: Report) -> None:
    (RESULTS / f"{name}.json").write_text(report.as_json())
    (RESULTS / f"{name}.md").write_text(report.markdown())
    if any(ratio.margin is not None for ratio in report.ratios):
        (RESULTS / f"{name}.svg").write_text(ratios_svg(report.ratios))


def _summarise(reports: list[Report], ratios: list[Ratio]) -> None:
    judged = [one for one in ratios if one.at_least is not None or one.at_most is not None]
    met = sum(one.verdict == "met" for one in judged)
    rows = [(one.label, "-" if one.value is None else f"{one.value:.2f}", one.target, one.verdict) for one in judged]
    lines = [f"## {met} of {len(judged)} targets met", "", *table(("target", "measured", "wanted", ""), rows)]
    text = "\n".join(lines) + "\n"
    (RESULTS / "summary.md").write_text(text + "\n" + "\n".join(report.markdown() for report in reports))
    print(f"\n{text}\nsamples, tables and plots: {RESULTS}")


def _conditions(took_s: float, *, quick: bool) -> str:
    return f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, took {took_s:.0f} s" + (
        ", --quick: fewer jobs and rounds" if quick else ""
    )


if __name__ == "__main__":
    main()
