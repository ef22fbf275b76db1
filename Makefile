# `make` alone lists the tasks.
