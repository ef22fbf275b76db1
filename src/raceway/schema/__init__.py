"""Schemas: parse definitions, validate payloads, compare versions. Pure: no sockets, no clocks.

Read in this order:
  definition   what every type of schema can do, and the names of types, modes and policies
  reading      definitions by type, and compatibility by mode
  plain        `bytes`, `string` and `number`: the shortest types
  json_schema, json_refs, json_bundle, json_text   JSON Schema: validation, references, documents
  json_cost, json_compatibility                    what a validation may cost; one version against another
  avro, avro_nodes, avro_reader                    Avro: a definition as a graph, and its parser
  avro_datum, avro_json, avro_compatibility        payloads, defaults and JSON; one version against another
  protobuf, proto_text, proto_print, protobuf_compatibility   Protobuf: descriptors, from text, as text, compared
  effort, framing   the step budget of comparisons; the prefix of Confluent's serializers
"""
