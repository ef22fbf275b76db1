"""Read captured Seneca traffic: `reader` takes a JSON document from each line."""
