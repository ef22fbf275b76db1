// @ts-check
// Server-sent events, read from a stream of text. Not `EventSource`: that cannot send a token. Pure.

/** Takes pieces of text as they come and gives whole events. */
export class EventParser {
  constructor() {
    this.rest = "";
  }

  /** @param {string} piece @returns {{event: string, data: string, id: string}[]} */
  feed(piece) {
    const blocks = (this.rest + piece).replace(/\r\n?/g, "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((found) => found.data !== "");
  }
}

/** @param {string} block */
function parseBlock(block) {
  let event = "message";
  let id = "";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("id:")) id = line.slice(3).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return { event, data: data.join("\n"), id };
}
