"""What is missing, filled by what else is known: dependencies, repositories of complete rows, imputers."""
