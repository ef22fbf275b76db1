// @ts-check
// An example of what a schema admits, to begin a message with. Pure.

// A schema may contain itself.
const DEEPEST = 6;

/**
 * @param {string} type  json_schema or avro
 * @param {string} definition
 * @returns {string}  JSON; empty where none can be made
 */
export function draft(type, definition) {
  try {
    const parsed = JSON.parse(definition);
    if (type === "json_schema") return JSON.stringify(ofJsonSchema(parsed, parsed, 0), null, 2);
    if (type === "avro") return JSON.stringify(ofAvro(parsed, {}, 0), null, 2);
  } catch {
    // Protobuf and what cannot be read: nothing is better than something wrong.
  }
  return "";
}

/** @param {any} schema @param {any} root @param {number} depth @returns {any} */
function ofJsonSchema(schema, root, depth) {
  if (schema === true || depth > DEEPEST || typeof schema !== "object" || schema === null) return null;
  for (const given of ["const", "default"]) if (given in schema) return schema[given];
  if (schema.examples?.length) return schema.examples[0];
  if (schema.enum?.length) return schema.enum[0];
  if (schema.$ref?.startsWith("#/")) return ofJsonSchema(resolved(root, schema.$ref), root, depth + 1);
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((/** @type {any} */ each) => ofJsonSchema(each, root, depth + 1)), ofProperties(schema, root, depth));
  const choice = schema.oneOf?.[0] ?? schema.anyOf?.[0];
  if (choice) return ofJsonSchema(choice, root, depth + 1);
  const kind = Array.isArray(schema.type) ? schema.type[0] : schema.type ?? (schema.properties ? "object" : schema.items ? "array" : "null");
  if (kind === "object") return ofProperties(schema, root, depth);
  if (kind === "array") return schema.items ? Array.from({ length: Math.max(1, schema.minItems ?? 1) }, () => ofJsonSchema(schema.items, root, depth + 1)) : [];
  if (kind === "integer" || kind === "number") return schema.minimum ?? (schema.exclusiveMinimum === undefined ? 0 : schema.exclusiveMinimum + 1);
  if (kind === "boolean") return false;
  return kind === "string" ? text(schema) : null;
}

/** @param {any} schema @param {any} root @param {number} depth */
function ofProperties(schema, root, depth) {
  return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, each]) => [name, ofJsonSchema(each, root, depth + 1)]));
}

/** @param {any} schema */
function text(schema) {
  const known = { "date-time": "2026-01-31T12:00:00Z", date: "2026-01-31", time: "12:00:00Z", uuid: "00000000-0000-4000-8000-000000000000", email: "a@b.example", uri: "urn:x" };
  return known[/** @type {keyof typeof known} */ (schema.format)] ?? "".padEnd(schema.minLength ?? 0, "x");
}

/** @param {any} root @param {string} reference */
function resolved(root, reference) {
  return reference.slice(2).split("/").reduce((found, part) => found?.[part.replaceAll("~1", "/").replaceAll("~0", "~")], root);
}

/** @param {any} schema @param {Record<string, any>} named @param {number} depth @returns {any} */
function ofAvro(schema, named, depth) {
  if (depth > DEEPEST) return null;
  if (Array.isArray(schema)) return ofAvro(schema[0], named, depth + 1);
  const kind = typeof schema === "string" ? schema : schema.type;
  if (schema.name) named[schema.name] = schema;
  if (kind === "record") return Object.fromEntries(schema.fields.map((/** @type {any} */ field) => [field.name, "default" in field ? field.default : ofAvro(field.type, named, depth + 1)]));
  if (kind === "enum") return schema.symbols[0];
  if (kind === "array") return [ofAvro(schema.items, named, depth + 1)];
  if (kind === "map") return { key: ofAvro(schema.values, named, depth + 1) };
  if (typeof kind === "object") return ofAvro(kind, named, depth + 1);
  if (named[kind] && named[kind] !== schema) return ofAvro(named[kind], named, depth + 1);
  return { boolean: false, int: 0, long: 0, float: 0, double: 0, string: "", bytes: "" }[/** @type {string} */ (kind)] ?? null;
}
