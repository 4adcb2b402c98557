// The messages of one topic. They are read from the log if there is one: a fast topic cannot flood the page.

const BATCH = 50
const LIVE_A_SECOND = 100

/** Reads newer and earlier messages from the log. A message is a row of polycast/history. */
export class Tail {
  #ubre
  #topic
  #next = null
  #offset = 0
  #oldest = null

  constructor(ubre, topic) {
    this.#ubre = ubre
    this.#topic = topic
  }

  /** Whether the log may have earlier messages. */
  get hasEarlier() {
    return this.#oldest !== null && this.#oldest > 0
  }

  /** At most BATCH new messages before the sequence `end`; `skipped` counts the messages between them and the last ones. */
  async newer(end) {
    if (this.#next === end) return { rows: [], skipped: 0 }
    const rows = await (this.#next === null ? this.#read(Math.max(0, end - BATCH)) : this.#request({ since: this.#offset }))
    if (!rows.length) return { rows, skipped: 0 }
    const skipped = this.#next === null ? 0 : rows[0].sequence - this.#next
    this.#next = rows.at(-1).sequence + 1
    this.#offset = rows.at(-1).offset + 1
    this.#oldest ??= rows[0].sequence
    return { rows, skipped }
  }

  /** Messages before the oldest one. Sequences may have gaps: the step grows until it reaches messages. */
  async earlier() {
    for (let step = BATCH; this.hasEarlier; step *= 4) {
      const from = Math.max(0, this.#oldest - step)
      const rows = (await this.#read(from)).filter(({ sequence }) => sequence < this.#oldest)
      if (rows.length || !from) {
        const known = this.#oldest
        this.#oldest = rows.length ? rows[0].sequence : 0
        if (rows.length && rows[0].sequence < known) return rows
      }
    }
    return []
  }

  /** Messages before this sequence are not shown any more: `earlier` reads them again. */
  forget(sequence) {
    this.#oldest = sequence
  }

  #read(sequence) {
    return this.#request({ from: { topics: { [this.#topic]: sequence } } })
  }

  async #request(where) {
    const rows = await this.#ubre.request('polycast/history', { pattern: `=${this.#topic}`, ...where, limit: BATCH })
    return rows.filter(({ missing }) => !missing)
  }
}

/** Without a log: live messages, at most LIVE_A_SECOND in a second. Returns a function that ends the subscription. */
export function follow(ubre, topic, deliver) {
  let received = 0
  let unsubscribe = null
  const pause = () => {
    unsubscribe?.()
    unsubscribe = null
  }
  const resume = () => {
    received = 0
    unsubscribe ??= ubre.subscribe(topic, body => {
      deliver(body)
      received += 1
      if (received >= LIVE_A_SECOND) pause()
    })
  }
  const timer = setInterval(resume, 1000)
  resume()
  return () => {
    clearInterval(timer)
    pause()
  }
}
