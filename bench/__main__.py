"""`make bench`: run every benchmark, or those named in ARGS, print ratios, keep the samples in bench/results/."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import loops

BENCHES: dict[str, Callable[[], dict[str, Any]]] = {"loops": loops.run}
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    wanted = sys.argv[1:] or list(BENCHES)
    if unknown := [name for name in wanted if name not in BENCHES]:
        sys.exit(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
    RESULTS.mkdir(exist_ok=True)
    for name in wanted:
        result = BENCHES[name]()
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
        print(f"\n### {result['title']}\n\n| measured | |\n| --- | ---: |")
        for label, figure in result["rows"]:
            print(f"| {label} | {figure} |")


if __name__ == "__main__":
    main()
