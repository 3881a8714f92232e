#!/usr/bin/env bash
# Run a job file on a cluster whose workers have a Python of this version and nothing else of appulse.
#   deploy/submit.sh JOB.toml spark://MASTER:7077 appulse.tar.gz [options of appulse run]
set -euo pipefail
job=$1 master=$2 archive=$(realpath "$3")
shift 3
python=$(python3 -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')
exec appulse run "$job" --master "$master" \
    --conf spark.archives="$archive#appulse" \
    --conf spark.executorEnv.PYTHONPATH=./appulse \
    --conf spark.pyspark.python="$python" "$@"
