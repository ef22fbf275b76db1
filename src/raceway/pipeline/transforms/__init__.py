"""Transforms of the pipeline: one file per table, from rows of its inputs to rows of the table."""
