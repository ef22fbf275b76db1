// Real Seneca instances, driven by lines of JSON on standard input and answered on standard output, so that one
// process serves many tests: a start of Node with Seneca costs a second.
//
//   -> {"n": 1, "do": "listen", "name": "B", "dialect": "L", "port": 10101}     <- {"n": 1, "ok": null}
//   -> {"n": 2, "do": "client", "name": "A", "dialect": "W", "port": 10101}     <- {"n": 2, "ok": null}
//   -> {"n": 3, "do": "act", "name": "A", "message": {"role": "math", …}}       <- {"n": 3, "ok": {"result": …}}
//
// Dialects: L is what `require('seneca')()` speaks (HTTP, meta data in headers), W the newer web transport (HTTP, meta
// data in the body), T is L's TCP.

'use strict'

const Seneca = require('seneca')

const instances = new Map()
const kept = new Map()

function make({ name, dialect, timeout }) {
  const seneca = Seneca({
    id$: name,
    legacy: { transport: dialect !== 'W' },
    timeout: timeout || 22222,
    // An error is an answer here; by default some of them would end the process.
    debug: { undead: true },
    log: 'silent',
  })
  instances.set(name, seneca)
  kept.set(name, [])
  return seneca
}

const place = ({ dialect, port, path }) =>
  Object.assign({ type: dialect === 'T' ? 'tcp' : 'web', host: '127.0.0.1', port }, path && { path })

const failure = (code, message, details) => Object.assign(new Error(message), { code, details })

// What every listener here serves, under a role of its own.
const actions = {
  sum: (msg, reply) => reply(null, { sum: msg.a + msg.b }),
  div: (msg, reply) =>
    msg.b === 0 ? reply(failure('div_zero', 'division by zero', { a: msg.a })) : reply(null, { q: msg.a / msg.b }),
  range: (msg, reply) => reply(null, Array.from({ length: msg.count }, (_, i) => i)),
  nothing: (_msg, reply) => reply(),
  echo: (msg, reply) => reply(null, { data: msg.data }),
  slow: (msg, reply) => setTimeout(() => reply(null, { waited: msg.ms }), msg.ms),
  custom: (_msg, reply, meta) => {
    const got = { ...meta.custom }
    meta.custom.region = 'eu'
    reply(null, { got })
  },
}

function keep(name, message, meta) {
  const data = Object.fromEntries(Object.entries(message).filter(([key]) => !key.includes('$')))
  kept.get(name).push({ message: data, id: meta.id, sync: meta.sync, custom: { ...meta.custom } })
}

function host(seneca, { name, role, extra }) {
  for (const [cmd, action] of Object.entries(actions)) {
    seneca.add({ role: role || 'math', cmd }, (message, reply, meta) => {
      keep(name, message, meta)
      action(message, reply, meta)
    })
  }
  // Patterns of one test: each answers with a fixed result, or with what a further call through a client of this
  // instance gave.
  for (const [pattern, answer] of Object.entries(extra || {})) {
    seneca.add(pattern, function (message, reply, meta) {
      keep(name, message, meta)
      if (answer && answer.ask) {
        this.act(answer.ask, (error, result) => reply(error, error ? undefined : { ...answer.result, inner: result }))
      } else {
        reply(null, answer === null ? undefined : answer)
      }
    })
  }
}

// Errors of HTTP clients hold sockets, which are no JSON.
const plain = (value) => {
  try {
    return JSON.parse(JSON.stringify(value))
  } catch {
    return null
  }
}

// `payload` is where a client of dialect L puts the body of an answer whose status is not 200.
const plainError = (error) => ({
  message: error.message,
  code: error.code,
  details: plain(error.details || null),
  payload: plain((error.data && error.data.payload) || null),
})

function act(seneca, message) {
  return new Promise((resolve) => {
    seneca.act(message, (error, result, meta) => {
      if (error) return resolve({ error: plainError(error) })
      resolve({ result: result === undefined ? null : result, custom: meta && meta.custom })
    })
  })
}

const listening = (seneca) => new Promise((resolve) => seneca.ready(resolve))

const commands = {
  async listen(order) {
    const seneca = make(order)
    host(seneca, order)
    for (const client of order.clients || []) seneca.client({ ...place(client), pin: client.pin })
    seneca.listen(place(order))
    await listening(seneca)
    return null
  },

  async client(order) {
    const seneca = make(order)
    seneca.client({ ...place(order), ...(order.pin ? { pin: order.pin } : {}) })
    await listening(seneca)
    return null
  },

  act: (order) => act(instances.get(order.name), order.message),

  // Without a callback Seneca sends `sync: false`; done means that it was handed over, not that anybody has it.
  async post(order) {
    instances.get(order.name).act(order.message)
    return null
  },

  together: (order) => Promise.all(order.messages.map((message) => act(instances.get(order.name), message))),

  async kept(order) {
    return kept.get(order.name)
  },

  async forget(order) {
    kept.set(order.name, [])
    return null
  },

  // `count` calls, `in_flight` at a time; milliseconds of each and of all.
  async load({ name, count, in_flight: inFlight, message }) {
    const seneca = instances.get(name)
    const took = []
    let errors = 0
    let left = count
    const one = async () => {
      while (left-- > 0) {
        const began = performance.now()
        const outcome = await act(seneca, message)
        took.push(performance.now() - began)
        if (outcome.error) errors += 1
      }
    }
    const began = performance.now()
    await Promise.all(Array.from({ length: inFlight }, one))
    return { took, errors, elapsed: performance.now() - began }
  },

  close: ({ name }) => new Promise((resolve) => instances.get(name).close(() => resolve(null))),
}

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

async function obey(line) {
  const order = JSON.parse(line)
  try {
    say({ n: order.n, ok: await commands[order.do](order) })
  } catch (error) {
    say({ n: order.n, failed: String(error.stack || error) })
  }
}

let rest = ''
process.stdin.setEncoding('utf8')
process.stdin.on('data', (data) => {
  const lines = (rest + data).split('\n')
  rest = lines.pop()
  lines.forEach(obey)
})
process.stdin.on('end', () => process.exit(0))
say({ n: 0, ok: process.version })
