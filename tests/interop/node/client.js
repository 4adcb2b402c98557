// A client with the library of UBRE: reads commands as lines of JSON from stdin, and writes events as lines of JSON
// to stdout. `node client.js ws://127.0.0.1:8080/ubre`
import { createInterface } from 'node:readline'
import Ubre from 'ubre'
import WebSocket from 'ws'

const report = event => console.log(JSON.stringify(event))
const ubre = Ubre.ws(new WebSocket(process.argv[2]))
const subscriptions = {}

ubre.onSubscribe = topic => report({ wanted: topic })
ubre.onUnsubscribe = topic => report({ unwanted: topic })
ubre.ws.addEventListener('error', ({ message }) => report({ error: message }))
ubre.ws.addEventListener('close', ({ code }) => {
  report({ closed: code })
  process.exit()
})

const commands = {
  subscribe({ subscribe: topic, body }) {
    subscriptions[topic] = ubre.subscribe(topic, body, received => report({ topic, body: received }))
  },
  unsubscribe({ unsubscribe: topic }) {
    subscriptions[topic].unsubscribe()
  },
  publish({ publish: topic, body }) {
    ubre.publish(topic, body)
  },
  request({ request: route, body, id }) {
    ubre.request(route, body, id).then(success => report({ route, success }), fail => report({ route, fail }))
  },
  handle({ handle: route }) {  // responds with the request's body, which may order a failure or no response
    ubre.handle(route, body => {
      report({ requested: route, body })
      return body?.never ? new Promise(() => {}) : body?.fail ? Promise.reject(body.fail) : body
    })
  },
}

createInterface({ input: process.stdin }).on('line', line => {
  const command = JSON.parse(line)
  commands[Object.keys(command)[0]](command)
})
