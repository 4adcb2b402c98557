// Results of the traffic pipeline: messages and bytes per second of the busiest topics, in time windows.

import { chart } from './chart.js'
import { empty, h } from './dom.js'
import { bytes, clock, rate } from './words.js'

const BELOW = 'polycast/traffic/'
const TOPICS = 40
const LINES = 6
const WINDOWS = 120
const HISTORY = 2000
const LOOK_SECONDS = 10

export function traffic({ ubre, every, cleanup }) {
  const found = new Map()
  /** topic -> window -> dialect -> the newest result. */
  const subscriptions = new Map()
  const colors = new Map()
  const charts = [
    { drawn: chart('Messages per second, by topic'), value: row => row.messages_per_second, text: rate, base: 1000 },
    { drawn: chart('Bytes per second, by topic'), value: row => row.bytes / row.seconds, text: bytes, base: 1024 },
  ]
  const pair = h('div', { class: 'pair', hidden: true }, charts.map(({ drawn }) => drawn.element))
  const none = empty('No results yet. The traffic pipeline publishes them below polycast/traffic/; “polycast up” runs it.')

  function take(row) {
    if (!row || typeof row.topic !== 'string' || !row.window) return
    const windows = found.get(row.topic) ?? found.set(row.topic, new Map()).get(row.topic)
    const time = Date.parse(row.window)
    const dialects = windows.get(time) ?? windows.set(time, new Map()).get(time)
    dialects.set(row.dialect, row)
    if (windows.size > WINDOWS) windows.delete(Math.min(...windows.keys()))
  }

  /** The busiest topics, with colors that do not change while a topic is shown. */
  function choose() {
    const totals = [...found].map(([topic, windows]) =>
      [topic, [...windows.values()].reduce((sum, dialects) => sum + add(dialects, row => row.messages), 0)])
    const busiest = totals.sort((a, b) => b[1] - a[1]).slice(0, LINES).map(([topic]) => topic)
    for (const topic of colors.keys()) if (!busiest.includes(topic)) colors.delete(topic)
    const free = [...Array(LINES).keys()].filter(color => ![...colors.values()].includes(color))
    for (const topic of busiest) if (!colors.has(topic)) colors.set(topic, free.shift())
  }

  function draw() {
    pair.hidden = !found.size
    none.hidden = Boolean(found.size)
    if (!found.size) return
    choose()
    for (const each of charts) drawLines(each, found, colors)
  }

  every(LOOK_SECONDS, async () => {
    const { topics } = await ubre.request('polycast/topics', { search: BELOW, limit: TOPICS })
    const fresh = topics.map(({ topic }) => topic).filter(topic => topic.startsWith(BELOW) && !subscriptions.has(topic))
    for (const topic of fresh) subscriptions.set(topic, ubre.subscribe(topic, row => { take(row); draw() }))
    if (fresh.length) {
      const rows = await ubre.request('polycast/history', { pattern: `${BELOW}>`, limit: HISTORY }).catch(() => [])
      rows.filter(({ missing }) => !missing).forEach(({ body }) => take(body))
    }
    draw()
  })
  cleanup(() => {
    subscriptions.forEach(unsubscribe => unsubscribe())
    charts.forEach(({ drawn }) => drawn.end())
  })
  return h('div', {}, pair, none)
}

function add(dialects, value) {
  return [...dialects.values()].reduce((sum, row) => sum + value(row), 0)
}

function drawLines({ drawn, value, text, base }, found, colors) {
  const series = [...colors].map(([topic, color]) => {
    const points = [...found.get(topic)].map(([time, dialects]) => [time, add(dialects, value)]).sort((a, b) => a[0] - b[0])
    return { name: topic, color, points, now: text(points.at(-1)[1]) }
  })
  const times = series.flatMap(({ points }) => points.map(point => point[0]))
  const [from, to] = [Math.min(...times), Math.max(...times)]
  const hour = time => clock(time).slice(0, -4)
  const ticks = from === to ? [[from, hour(from)]] : [[from, hour(from)], [to, hour(to)]]
  drawn.draw(series, { from, to, label: 'the busiest topics', text, ticks, base })
}
