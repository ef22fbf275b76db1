"""The console port: health, metrics, and what scripts may ask over HTTP."""
