"""Encounters on Spark: how they are routed, and the buckets of their stages."""
