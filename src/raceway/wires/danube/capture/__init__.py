"""Read captured Danube traffic: `reader` cuts messages at their lengths."""
