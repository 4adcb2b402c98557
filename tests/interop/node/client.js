// A UBRE client on the library's own terms, told by lines of JSON on stdin what to do; says in lines of JSON on
// stdout what happened. `node client.js ws://127.0.0.1:8080/ubre`
import { createInterface } from 'node:readline'
import Ubre from 'ubre'
import WebSocket from 'ws'

const say = words => console.log(JSON.stringify(words))
const ubre = Ubre.ws(new WebSocket(process.argv[2]))
const subscriptions = {}

ubre.onSubscribe = topic => say({ wanted: topic })
ubre.onUnsubscribe = topic => say({ unwanted: topic })
ubre.ws.addEventListener('error', ({ message }) => say({ error: message }))
ubre.ws.addEventListener('close', ({ code }) => {
  say({ closed: code })
  process.exit()
})

const commands = {
  subscribe({ subscribe: topic, body }) {
    subscriptions[topic] = ubre.subscribe(topic, body, heard => say({ topic, body: heard }))
  },
  unsubscribe({ unsubscribe: topic }) {
    subscriptions[topic].unsubscribe()
  },
  publish({ publish: topic, body }) {
    ubre.publish(topic, body)
  },
  request({ request: route, body, id }) {
    ubre.request(route, body, id).then(success => say({ route, success }), fail => say({ route, fail }))
  },
  handle({ handle: route }) {  // answers with what it is asked; the body may ask it to fail, or never to answer
    ubre.handle(route, body => {
      say({ asked: route, body })
      return body?.never ? new Promise(() => {}) : body?.fail ? Promise.reject(body.fail) : body
    })
  },
}

createInterface({ input: process.stdin }).on('line', line => {
  const command = JSON.parse(line)
  commands[Object.keys(command)[0]](command)
})
