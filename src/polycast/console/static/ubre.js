// A UBRE client over a WebSocket that reconnects.

const WAITS = [0.5, 1, 2, 4, 8]
/** Seconds before the first and later reconnects. */
const RESPONSE_SECONDS = 40
/** The broker itself times out earlier: a later response means that the connection is dead. */

/** A failed request: the error response of the broker, or no connection. */
export class Refused extends Error {}

export class Ubre {
  #url
  #onState
  #socket = null
  #tries = 0
  #timer = 0
  #number = 0
  #requests = new Map()
  #subscribers = new Map()

  /** `onState(state, seconds)`: 'connecting', 'open', or 'waiting' with the seconds until the next try. */
  constructor(url, onState) {
    this.#url = url
    this.#onState = onState
  }

  get open() {
    return this.#socket?.readyState === WebSocket.OPEN
  }

  connect() {
    clearTimeout(this.#timer)
    this.#socket?.close()
    this.#fail()
    this.#onState('connecting', 0)
    const socket = this.#socket = new WebSocket(this.#url())
    socket.addEventListener('open', () => this.#begin(socket))
    socket.addEventListener('message', event => this.#receive(event.data))
    socket.addEventListener('close', () => this.#lose(socket))
  }

  /** The body of the response. Throws Refused. */
  request(route, body) {
    if (!this.open) return Promise.reject(new Refused('Not connected to the broker.'))
    const id = this.#number += 1
    this.#send({ request: route, id, ...(body === undefined ? {} : { body }) })
    return new Promise((done, failed) => {
      const timer = setTimeout(() => this.#socket?.close(), RESPONSE_SECONDS * 1000)
      this.#requests.set(id, { done, failed, timer })
    })
  }

  /** Returns a function that unsubscribes. The subscription survives reconnects. */
  subscribe(topic, deliver) {
    if (!this.#subscribers.has(topic)) {
      this.#subscribers.set(topic, new Set())
      if (this.open) this.#send({ subscribe: topic })
    }
    const subscribers = this.#subscribers.get(topic).add(deliver)
    return () => {
      if (!subscribers.delete(deliver) || subscribers.size) return
      this.#subscribers.delete(topic)
      if (this.open) this.#send({ unsubscribe: topic })
    }
  }

  #send(message) {
    this.#socket.send(JSON.stringify(message))
  }

  #begin(socket) {
    if (socket !== this.#socket) return
    this.#tries = 0
    for (const topic of this.#subscribers.keys()) this.#send({ subscribe: topic })
    this.#onState('open', 0)
  }

  #receive(data) {
    if (typeof data !== 'string') return
    const message = JSON.parse(data)
    if ('publish' in message) this.#subscribers.get(message.publish)?.forEach(deliver => deliver(message.body))
    else if ('success' in message) this.#take(message.success)?.done(message.body)
    else if ('fail' in message) this.#take(message.fail)?.failed(new Refused(toWords(message.body)))
  }

  #take(id) {
    const request = this.#requests.get(id)
    if (request) clearTimeout(request.timer)
    this.#requests.delete(id)
    return request
  }

  /** Fails all open requests. */
  #fail() {
    for (const id of [...this.#requests.keys()]) this.#take(id).failed(new Refused('The connection to the broker was lost.'))
  }

  #lose(socket) {
    if (socket !== this.#socket) return
    this.#socket = null
    this.#fail()
    const seconds = WAITS[Math.min(this.#tries, WAITS.length - 1)]
    this.#tries += 1
    this.#timer = setTimeout(() => this.connect(), seconds * 1000)
    this.#onState('waiting', seconds)
  }
}

function toWords(body) {
  return typeof body === 'string' ? body : JSON.stringify(body ?? 'failed')
}
