"""One file per table: rows of the inputs in, rows of the table out."""
