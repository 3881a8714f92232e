"""Where operators run: in this process, or on Spark. An engine never decides semantics."""
