"""Danube messages.

pb/      generated protobuf modules (`make protos`)
rows, deliver, fields   sends to rows; rows to `StreamMessage`; protobuf fields by hand
policies, status        failure policies; errors of the bus as gRPC statuses
"""
