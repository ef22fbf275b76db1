"""The journal on a partition of Kafka: a bus that survives its machine.

Read in this order:
  records    claims and blocks as records, and the rule that says which blocks count
  lane       what the journal needs of Kafka; client: the same with Kafka's own client
  snapshots  what a new owner reads instead of the whole lane
  segments, cache   where each block lies, and the local copies of blocks
  opening    a claim, and the state at it
  writer     blocks to the lane, several at a time, acknowledged while nobody else has claimed it
  keeper     what waits for Kafka beside the blocks: snapshots, trimming, who owns the lane
  journal    all of it as a `Journal`
"""
