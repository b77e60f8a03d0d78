// Writes the schemas of other protocols' events, as their npm packages publish them, beside this
// file. In an empty folder:
//   npm install ai@7.0.173 @ag-ui/core@1.0.0 zod && NODE_PATH=node_modules node .../make.cjs
// The AI SDK keeps its schema to itself, so that it is caught on its way to JSON.
const { writeFileSync } = require("node:fs");
const path = require("node:path");
const z = require("zod/v4");

let caught;
const catching = { ...z, toJSONSchema: (schema) => ((caught = schema), {}) };
require.cache[require.resolve("zod/v4")].exports = catching;
void require("ai").uiMessageChunkSchema().jsonSchema;
const { EventSchemas } = require("@ag-ui/core/schemas");

/** What JSON Schema has no word for is allowed, but for `data-…`, the one custom type of the two. */
function inJson(schema) {
  const override = ({ zodSchema, jsonSchema }) => {
    const type = zodSchema._zod.def.type === "object" ? jsonSchema.properties?.type : undefined;
    if (type && Object.keys(type).length === 0) Object.assign(type, { pattern: "^data-", type: "string" });
  };
  return z.toJSONSchema(schema, { unrepresentable: "any", io: "input", override });
}

function write(name, schema) {
  const folder = path.dirname(require.resolve(name)).replace(/\/dist$/, "");
  const { version } = JSON.parse(require("node:fs").readFileSync(`${folder}/package.json`));
  const told = { $comment: `${name} ${version}`, ...inJson(schema) };
  const file = path.join(__dirname, `${name.replace("@", "").replace("/", "-")}.json`);
  writeFileSync(file, JSON.stringify(told, null, 1) + "\n");
}

write("ai", caught);
write("@ag-ui/core", EventSchemas);
