#!/usr/bin/env bash
# Run a job file on a cluster whose workers have a Python of this version and nothing else of appulse.
#   deploy/submit.sh JOB.toml spark://MASTER:7077 appulse.tar.gz [options of appulse run]
set -euo pipefail
job=$1 master=$2 archive=$(realpath "$3")
shift 3
mapfile -t settings < <(python3 -c '
import sys, pathlib
from appulse.engines.packing import settings_of
for name, value in settings_of(pathlib.Path(sys.argv[1])).items():
    print("--conf", f"{name}={value}", sep="\n")
' "$archive")
exec appulse run "$job" --master "$master" "${settings[@]}" "$@"
