#!/usr/bin/env bash
# Start a master or a worker of Spark standalone in the foreground, from the PySpark of the Python on the path.
#   deploy/standalone.sh master HOST
#   deploy/standalone.sh worker HOST spark://MASTER:7077
set -euo pipefail
role=$1 host=$2
SPARK_HOME=$(python3 -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
export SPARK_HOME SPARK_SCALA_VERSION=2.13
case $role in
    master) main=org.apache.spark.deploy.master.Master rest=() ;;
    worker) main=org.apache.spark.deploy.worker.Worker rest=("$3") ;;
    *) echo "standalone.sh: master or worker, not $role" >&2; exit 2 ;;
esac
exec java -cp "$SPARK_HOME/jars/*" "$main" --host "$host" "${rest[@]}"
