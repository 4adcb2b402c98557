// Tables: a click on a column head sorts them. Rows are matched by key. On a narrow screen each row is a card.

import { h, keyed, put } from './dom.js'

/**
 * A column is { title, text(row), value?(row), number?, make?(row) }: `make` builds a constant element, `text`
 * returns the changing text, `value` the sort key.
 */
export function table(caption, columns, key) {
  const order = { title: columns[0].title, falling: false }
  const body = h('tbody')
  let rows = []
  const heads = columns.map(column => head(column, order, () => show(rows)))
  const draw = keyed(body, key, row => toRow(columns, row))

  function show(given) {
    rows = given
    const column = columns.find(each => each.title === order.title)
    const value = column.value ?? column.text ?? key
    const sign = order.falling ? -1 : 1
    draw([...rows].sort((a, b) => sign * compare(value(a), value(b)) || compare(key(a), key(b))))
    for (const each of heads) each.mark()
  }

  const element = h('table', {}, h('caption', { class: 'unseen' }, caption),
    h('thead', {}, h('tr', {}, heads.map(each => each.element))), body)
  return { element, show }
}

function head(column, order, sorted) {
  const button = column.title && h('button', {
    type: 'button',
    click: () => {
      order.falling = order.title === column.title ? !order.falling : Boolean(column.number)
      order.title = column.title
      sorted()
    },
  }, column.title)
  const element = h('th', { scope: 'col', class: column.number ? 'number' : '' }, button || '')
  const mark = () => {
    if (order.title === column.title) element.setAttribute('aria-sort', order.falling ? 'descending' : 'ascending')
    else element.removeAttribute('aria-sort')
  }
  return { element, mark }
}

function toRow(columns, row) {
  const cells = columns.map(column => h('td', {
    class: column.number ? 'number' : column.class ?? '', 'data-label': column.title,
  }, column.make ? column.make(row) : ''))
  const update = now => columns.forEach((column, index) => {
    if (!column.make) put(cells[index], column.text(now))
  })
  return { element: h('tr', {}, cells), update }
}

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  return String(a ?? '').localeCompare(String(b ?? ''), 'en', { numeric: true })
}
