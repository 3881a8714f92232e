"""Results in, pages out: HTML with pictures in SVG. Nothing here knows Spark, pandas or a library that draws."""
