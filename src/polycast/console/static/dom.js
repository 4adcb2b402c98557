// Builds elements. All text is inserted as text: no code of the console parses HTML.

const SVG = 'http://www.w3.org/2000/svg'

/** `h('a', { href: '#/', class: 'soft' }, 'home')`. Functions become event listeners; false attributes are left out. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children)
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children)
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key, value)
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? '' : value)
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ''))
  return element
}

/** Writes only changed text: an equal text would reset selections and interrupt screen readers. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text
}

/** A status line, hidden while its text is empty. `attempt` shows the error of an action. */
export function notice() {
  const element = h('p', { class: 'notice', role: 'status', hidden: true })
  const show = (text, bad = false) => {
    element.hidden = !text
    element.classList.toggle('bad', bad)
    put(element, text)
  }
  return { element, show, attempt: act => act().catch(error => show(error.message, true)) }
}

/** A form that calls `submit` instead of loading a page. */
export function form(submit, ...children) {
  return h('form', { class: 'card form', submit: event => {
    event.preventDefault()
    submit()
  } }, children)
}

export function field(id, label, input) {
  return h('div', { class: 'field' }, h('label', { for: id }, label), input)
}

/** Named values. `put(name, value, note)` changes one. */
export function tileSet(names, size = '') {
  const tiles = Object.fromEntries(names.map(name => [name, { value: h('dd', {}, '–'), note: h('dd', { class: 'soft' }) }]))
  const element = h('dl', { class: `tiles ${size}` }, names.map(name =>
    h('div', { class: 'tile' }, h('dt', {}, name), tiles[name].value, tiles[name].note)))
  return {
    element,
    put(name, value, note = '') {
      put(tiles[name].value, value)
      put(tiles[name].note, note)
    },
  }
}

/** Returns a function that shows items below `parent`, matched by key. `make(item)` returns { element, update(item) }. */
export function keyed(parent, key, make) {
  const shown = new Map()
  return items => {
    const keys = new Set(items.map(key))
    for (const [name, row] of shown) {
      if (keys.has(name)) continue
      row.element.remove()
      shown.delete(name)
    }
    let next = parent.firstElementChild
    for (const item of items) {
      let row = shown.get(key(item))
      if (!row) shown.set(key(item), row = make(item))
      row.update(item)
      if (row.element === next) next = next.nextElementSibling
      else parent.insertBefore(row.element, next)
    }
  }
}

/** Radio buttons, styled as a row of buttons. */
export function choice(label, options, chosen, choose) {
  const name = `choice-${choices += 1}`
  return h('fieldset', { class: 'choice' }, h('legend', { class: 'unseen' }, label), options.map(([value, text]) =>
    h('label', {}, h('input', {
      type: 'radio', name, value, checked: value === chosen, change: () => choose(value),
    }), h('span', {}, text))))
}

let choices = 0

/** The text in place of an empty table or list. */
export function empty(text) {
  return h('p', { class: 'empty' }, text)
}
