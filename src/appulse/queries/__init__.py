"""What users ask in words: conditions on columns."""
