// @ts-check
// Requests and answers of a while, joined to conversations: how long each took, over which wires, and how it ended. Pure.

/**
 * @typedef {{sequence: number, time_us: number, topic: string, wire: string, producer?: string, correlation_id?: string, answers?: number, error?: string}} Message
 * @typedef {object} Conversation
 * @property {string} id
 * @property {Message} first  the request that began it
 * @property {number} requests
 * @property {string[]} wires
 * @property {number | null} took_us  from the first request to the last answer; null without one
 * @property {string} error  of the first answer that failed
 * @property {number} open  requests without an answer
 */

/**
 * @param {Message[]} requests
 * @param {Message[]} answers
 * @returns {Conversation[]}  the newest first
 */
export function joined(requests, answers) {
  const answered = new Map(answers.filter((each) => each.answers !== undefined).map((each) => [each.answers, each]));
  /** @type {Map<string, Message[]>} */
  const groups = new Map();
  for (const each of requests) {
    const id = each.correlation_id ?? String(each.sequence);
    groups.set(id, [...(groups.get(id) ?? []), each]);
  }
  return [...groups].map(([id, of]) => conversation(id, [...of].sort((a, b) => a.sequence - b.sequence), answered)).sort((a, b) => b.first.sequence - a.first.sequence);
}

/** @param {string} id @param {Message[]} requests @param {Map<number | undefined, Message>} answered @returns {Conversation} */
function conversation(id, requests, answered) {
  const found = requests.map((each) => answered.get(each.sequence));
  const ends = found.flatMap((each) => (each ? [each.time_us] : []));
  return {
    id, first: requests[0], requests: requests.length,
    wires: [...new Set([...requests, ...found].flatMap((each) => (each ? [each.wire] : [])))],
    took_us: ends.length ? Math.max(...ends) - requests[0].time_us : null,
    error: found.find((each) => each?.error)?.error ?? "", open: found.filter((each) => !each).length,
  };
}

/**
 * @param {Conversation[]} all
 * @param {{outcome: string, slowerMs: number}} wanted  outcome: empty, failed, open or ok
 */
export function chosen(all, { outcome, slowerMs }) {
  return all.filter((each) => (!outcome || outcome === (each.error ? "failed" : each.open ? "open" : "ok")) && (!slowerMs || (each.took_us ?? Infinity) >= slowerMs * 1000));
}
