"""Run the benchmarks, all or those named: python benchmarks/run.py [name ...]"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SHARED = {"run", "report", "suite", "door", "trained", "sequences_sort", "sequences_memorize"}
NAMES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in SHARED)


def main() -> int:
    wanted = sys.argv[1:] or NAMES
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"no benchmark named {unknown[0]}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    failed = []
    for name in wanted:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"{name}.py")]).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
