"""Read the journal's files from another process, also while the bus writes them.

python examples/read_journal.py [DATA_FOLDER]
"""

import sys

from raceway.journal.read.reader import Reader


def main(folder: str) -> None:
    reader = Reader(folder)
    print("committed up to position", reader.committed())

    # By position: everything, as Arrow record batches of the columns you name.
    rows = 0
    for batch in reader.read(reader.first_position(), columns=["kind", "payload"]):
        rows += batch.num_rows
    print(rows, "rows")

    # By topic and offset: offsets of a topic count from 0 without gaps.
    for batch in reader.read_topic("baggage.events", offset=0, max_rows=3, columns=["offset", "time_us", "payload"]):
        for row in batch.to_pylist():
            print(row["offset"], row["payload"].decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "raceway-data")
