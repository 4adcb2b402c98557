// A line chart over time. The legend shows the newest values as text.

import { h, put, svg } from './dom.js'

const HEIGHT = 168
const LEFT = 52
const RIGHT = 8
const TOP = 10
const BOTTOM = 22
const NARROWEST = 240

/** `draw(series, { from, to, text, label, ticks, base? })`; `base` is 1000 or 1024. A series is { name, color, points: [[x, y], ...] }. */
export function chart(title) {
  const picture = svg('svg', { class: 'chart', role: 'img', height: HEIGHT })
  const legend = h('ul', { class: 'legend' })
  const element = h('figure', { class: 'card' }, h('figcaption', {}, title), picture, legend)
  let last = null
  const watch = new ResizeObserver(() => last && paint(picture, ...last))
  watch.observe(element)

  function draw(series, axis) {
    last = [series, axis]
    paint(picture, series, axis)
    picture.setAttribute('aria-label', `${axis.label}: ${series.map(({ name, now }) => `${name} ${now}`).join(', ') || 'no data yet'}`)
    write(legend, series)
  }

  return { element, draw, end: () => watch.disconnect() }
}

function paint(picture, series, { from, to, text, ticks, base = 1000 }) {
  const width = Math.max(NARROWEST, picture.parentElement.clientWidth - 32)
  const top = ceiling(Math.max(0, ...series.flatMap(({ points }) => points.map(point => point[1]))), base)
  const x = value => LEFT + (value - from) / (to - from || 1) * (width - LEFT - RIGHT)
  const y = value => HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
  picture.setAttribute('width', width)
  picture.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
  picture.replaceChildren(
    ...[0, 0.5, 1].flatMap(part => [
      svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(part * top), y2: y(part * top) }),
      svg('text', { class: 'tick', x: LEFT - 8, y: y(part * top) + 4, 'text-anchor': 'end' }, text(part * top)),
    ]),
    ...ticks.map(([at, words], index) => svg('text', {
      class: 'tick', x: x(at), y: HEIGHT - 4, 'text-anchor': index ? 'end' : 'start',
    }, words)),
    ...series.map(({ color, points }) => svg('polyline', {
      class: `line s${color}`, points: points.map(point => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(' '),
    })),
  )
}

function write(legend, series) {
  while (legend.children.length > series.length) legend.lastElementChild.remove()
  series.forEach(({ name, color, now }, index) => {
    let entry = legend.children[index]
    if (!entry) legend.append(entry = h('li', {}, h('i'), h('span', { class: 'name' }), h('b')))
    const [dot, label, value] = entry.children
    dot.className = `s${color}`
    put(label, name)
    put(value, now)
  })
}

/** The upper end of the axis: the next of 1, 2, 5, 10, ... units. */
function ceiling(value, base) {
  if (value <= 0) return 1
  const unit = base ** Math.max(0, Math.floor(Math.log(value) / Math.log(base)))
  const power = 10 ** Math.floor(Math.log10(value / unit))
  return [1, 2, 5, 10].map(step => step * power * unit).find(step => step >= value * 0.999)
}
