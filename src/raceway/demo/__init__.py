"""The airport: a morning of traffic over all four wires (`raceway demo`).

story    who speaks which wire, and when
mb, danube, zbus, seneca, mishaps   the parts
tally, report, summary   what clients know, what tables say, what a person sees
stored   the same without tables
"""
