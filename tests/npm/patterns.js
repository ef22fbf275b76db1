// What the real pattern language and the real router say, for comparison. One JSON document in, one out:
//
//   {"texts": ["a:1", …], "routers": [{"patterns": [{…}, …], "messages": [{…}, …]}, …], "pins": [[text, …], …]}
//
// A text gives {"value": …} or {"failed": true}; numbers that JSON cannot say come as {"$number": "Infinity"}. A message
// gives the place of the pattern that won, or null. Pins give their canonical text.

'use strict'

const Seneca = require('seneca')

const Common = require('seneca/lib/common')

const sayable = (_key, value) =>
  'number' === typeof value && !Number.isFinite(value) ? { $number: String(value) } : value

function read(text) {
  try {
    const value = Seneca.util.Jsonic(text)
    return { value: undefined === value ? {} : value }
  } catch (_error) {
    return { failed: true }
  }
}

function route({ patterns, messages }) {
  const router = Seneca.util.Patrun({ gex: true })
  patterns.forEach((pattern, place) => router.add(pattern, { place }))
  return messages.map((message) => {
    const found = router.find(message)
    return found ? found.place : null
  })
}

let input = ''
process.stdin.on('data', (data) => (input += data))
process.stdin.on('end', () => {
  const asked = JSON.parse(input)
  const said = {
    texts: (asked.texts || []).map(read),
    routers: (asked.routers || []).map(route),
    pins: (asked.pins || []).map((pins) => Common.pincanon(pins)),
  }
  process.stdout.write(JSON.stringify(said, sayable))
})
