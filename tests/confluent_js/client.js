// What `@kafkajs/confluent-schema-registry` does with references and levels; what it saw comes out as JSON.
const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

async function main(host) {
  const registry = new SchemaRegistry({ host, retry: { retries: 0 } });
  const seen = { data: {} };
  const round = async (topic, schema, value, options = {}) => {
    const { id } = await registry.register(schema, { subject: `${topic}-value`, ...options });
    const data = await registry.encode(id, value);
    const back = await new SchemaRegistry({ host }).decode(data);
    seen.data[topic] = { id, framed: data.toString("base64"), back: JSON.parse(JSON.stringify(back)) };
  };
  const reference = (name, subject) => [{ name, subject, version: 1 }];

  const avro = (name, fields) => JSON.stringify({ type: "record", name, namespace: "js", fields });
  await registry.register({ type: SchemaType.AVRO, schema: avro("Address", [{ name: "city", type: "string" }]) }, { subject: "js-address" });
  await round("js-avro", { type: SchemaType.AVRO, schema: avro("Person", [{ name: "home", type: "js.Address" }]), references: reference("js.Address", "js-address") },
    { home: { city: "Ulm" } }, { compatibility: "BACKWARD_TRANSITIVE" });

  await registry.register({ type: SchemaType.JSON, schema: JSON.stringify({ $id: "https://js/address.json", type: "object", properties: { city: { type: "string" } }, required: ["city"] }) }, { subject: "js-address-json" });
  await round("js-json", { type: SchemaType.JSON, schema: JSON.stringify({ $id: "https://js/person.json", type: "object", properties: { home: { $ref: "https://js/address.json" } }, required: ["home"] }), references: reference("https://js/address.json", "js-address-json") },
    { home: { city: "Ulm" } }, { compatibility: "FULL_TRANSITIVE" });

  await registry.register({ type: SchemaType.PROTOBUF, schema: 'syntax = "proto3"; package js; message Address { string city = 1; }' }, { subject: "js-address-proto" });
  await round("js-proto", { type: SchemaType.PROTOBUF, schema: 'syntax = "proto3"; package js; import "address.proto"; message Person { Address home = 1; }', references: reference("address.proto", "js-address-proto") },
    { home: { city: "Ulm" } });

  try {
    await registry.register({ type: SchemaType.AVRO, schema: avro("Person", [{ name: "age", type: "int" }]) }, { subject: "js-avro-value", compatibility: "BACKWARD_TRANSITIVE" });
  } catch (error) {
    seen.conflict = { status: error.status, message: error.message };
  }
  try {
    await registry.getSchema(987654);
  } catch (error) {
    seen.unknown = { status: error.status, message: error.message };
  }
  seen.latest = await registry.getLatestSchemaId("js-avro-value");
  console.log(JSON.stringify(seen));
}

main(process.argv[2]).catch((error) => { console.error(error); process.exit(1); });
