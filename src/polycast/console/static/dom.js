// Builds elements. Text stays text: nothing in the console parses HTML.

const SVG = 'http://www.w3.org/2000/svg'

/** `h('a', { href: '#/', class: 'soft' }, 'home')`. Attributes that are functions listen; false ones are left out. */
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

/** Writes only what differs, so that a selection or a screen reader is not disturbed for nothing. */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text
}

/** A line that tells what is wrong, or what there is to know; empty: nothing is shown. */
export function notice(kind = '') {
  const element = h('p', { class: `notice ${kind}`, role: 'status', hidden: true })
  return {
    element,
    say(text, bad = false) {
      element.hidden = !text
      element.classList.toggle('bad', bad)
      put(element, text)
    },
  }
}

/** A function that shows items below `parent`, each by its key. `make(item)` gives { element, update(item) }. */
export function keyed(parent, key, make) {
  const shown = new Map()
  return items => {
    const keys = new Set(items.map(key))
    for (const [name, row] of shown) {
      if (keys.has(name)) continue
      row.element.remove()
      shown.delete(name)
    }
    let place = parent.firstElementChild
    for (const item of items) {
      let row = shown.get(key(item))
      if (!row) shown.set(key(item), row = make(item))
      row.update(item)
      if (row.element === place) place = place.nextElementSibling
      else parent.insertBefore(row.element, place)
    }
  }
}

/** Buttons of which one is on: radio buttons, which is what they are. */
export function choice(label, options, chosen, choose) {
  const name = `choice-${choices += 1}`
  return h('fieldset', { class: 'choice' }, h('legend', { class: 'unseen' }, label), options.map(([value, text]) =>
    h('label', {}, h('input', {
      type: 'radio', name, value, checked: value === chosen, change: () => choose(value),
    }), h('span', {}, text))))
}

let choices = 0

/** What is shown where there is nothing. */
export function empty(text) {
  return h('p', { class: 'empty' }, text)
}
