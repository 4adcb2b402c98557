// What is said on one topic: from the log where there is one, so that a fast topic cannot flood the page.

const BATCH = 50
const LIVE_A_SECOND = 100

/** Reads the log from the newest messages on, and back from the oldest. A message is a row of polycast/history. */
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

  /** Whether there may be earlier ones than those that were given. */
  get hasEarlier() {
    return this.#oldest !== null && this.#oldest > 0
  }

  /** The messages before the sequence `end` that were not given yet, at most BATCH; `skipped` is how many lie between. */
  async newer(end) {
    if (this.#next === end) return { rows: [], skipped: 0 }
    const rows = await (this.#next === null ? this.#read(Math.max(0, end - BATCH)) : this.#ask({ since: this.#offset }))
    if (!rows.length) return { rows, skipped: 0 }
    const skipped = this.#next === null ? 0 : rows[0].sequence - this.#next
    this.#next = rows.at(-1).sequence + 1
    this.#offset = rows.at(-1).offset + 1
    this.#oldest ??= rows[0].sequence
    return { rows, skipped }
  }

  /** The messages before the oldest one. Sequences may have gaps: it looks further back until it finds some. */
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

  /** Forgets what is older than this one; it can be asked for again. */
  forget(sequence) {
    this.#oldest = sequence
  }

  #read(sequence) {
    return this.#ask({ from: { topics: { [this.#topic]: sequence } } })
  }

  #ask(where) {
    return this.#ubre.request('polycast/history', { pattern: `=${this.#topic}`, ...where, limit: BATCH })
  }
}

/** Without a log: what comes while somebody looks, and no more of it in a second than a page can show. */
export function listen(ubre, topic, hear) {
  let heard = 0
  let end = null
  const take = body => {
    hear(body)
    heard += 1
    if (heard >= LIVE_A_SECOND) rest()
  }
  const rest = () => {
    end?.()
    end = null
  }
  const begin = () => {
    heard = 0
    end ??= ubre.subscribe(topic, take)
  }
  const timer = setInterval(begin, 1000)
  begin()
  return () => {
    clearInterval(timer)
    rest()
  }
}
