"""Read captured Danube traffic."""
