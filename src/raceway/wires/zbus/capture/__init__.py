"""Read captured zbus traffic: `reader` cuts messages, `heads` and `columns` read many at once."""
