"""The command line: one file per group of verbs. Heavy imports stand inside the commands, so that help is quick."""
