// UBRE over a WebSocket that comes back by itself.

const WAITS = [0.5, 1, 2, 4, 8]
/** Seconds before the next try, each time a bit longer. */
const ANSWER_SECONDS = 40
/** The broker gives up earlier; whoever is silent for longer is gone. */

/** What the broker answered instead of what was asked for. */
export class Refused extends Error {}

export class Ubre {
  #url
  #tell
  #socket = null
  #tries = 0
  #timer = 0
  #number = 0
  #asked = new Map()
  #heard = new Map()

  /** `tell(state, seconds)` hears 'connecting', 'open', and 'waiting' with the seconds until the next try. */
  constructor(url, tell) {
    this.#url = url
    this.#tell = tell
  }

  get open() {
    return this.#socket?.readyState === WebSocket.OPEN
  }

  connect() {
    clearTimeout(this.#timer)
    this.#socket?.close()
    this.#fail()
    this.#tell('connecting', 0)
    const socket = this.#socket = new WebSocket(this.#url())
    socket.addEventListener('open', () => this.#begin(socket))
    socket.addEventListener('message', event => this.#receive(event.data))
    socket.addEventListener('close', () => this.#lose(socket))
  }

  /** What is answered; a failure is thrown as Refused. */
  request(route, body) {
    if (!this.open) return Promise.reject(new Refused('Not connected to the broker.'))
    const id = this.#number += 1
    this.#send({ request: route, id, ...(body === undefined ? {} : { body }) })
    return new Promise((done, failed) => {
      const timer = setTimeout(() => this.#socket?.close(), ANSWER_SECONDS * 1000)
      this.#asked.set(id, { done, failed, timer })
    })
  }

  /** Returns how to end it. The subscription outlives the connection. */
  subscribe(topic, hear) {
    if (!this.#heard.has(topic)) {
      this.#heard.set(topic, new Set())
      if (this.open) this.#send({ subscribe: topic })
    }
    const ears = this.#heard.get(topic).add(hear)
    return () => {
      if (!ears.delete(hear) || ears.size) return
      this.#heard.delete(topic)
      if (this.open) this.#send({ unsubscribe: topic })
    }
  }

  #send(message) {
    this.#socket.send(JSON.stringify(message))
  }

  #begin(socket) {
    if (socket !== this.#socket) return
    this.#tries = 0
    for (const topic of this.#heard.keys()) this.#send({ subscribe: topic })
    this.#tell('open', 0)
  }

  #receive(data) {
    if (typeof data !== 'string') return
    const message = JSON.parse(data)
    if ('publish' in message) this.#heard.get(message.publish)?.forEach(hear => hear(message.body))
    else if ('success' in message) this.#take(message.success)?.done(message.body)
    else if ('fail' in message) this.#take(message.fail)?.failed(new Refused(toWords(message.body)))
  }

  #take(id) {
    const asked = this.#asked.get(id)
    if (asked) clearTimeout(asked.timer)
    this.#asked.delete(id)
    return asked
  }

  /** Whoever waits for an answer waits in vain. */
  #fail() {
    for (const id of [...this.#asked.keys()]) this.#take(id).failed(new Refused('The connection to the broker was lost.'))
  }

  #lose(socket) {
    if (socket !== this.#socket) return
    this.#socket = null
    this.#fail()
    const seconds = WAITS[Math.min(this.#tries, WAITS.length - 1)]
    this.#tries += 1
    this.#timer = setTimeout(() => this.connect(), seconds * 1000)
    this.#tell('waiting', seconds)
  }
}

function toWords(body) {
  return typeof body === 'string' ? body : JSON.stringify(body ?? 'failed')
}
