"""The messages of the demo: chat, sensors, orders of a shop, prices, page visits.

A generator is called tick by tick, and keeps the state that the next tick builds on. The same random source makes
the same messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from polycast.model import Format, Message

PEOPLE = ("ada", "bertha", "carl", "dora", "emil", "frida", "grace", "hugo", "ida", "jonas")
ROOMS = ("lobby", "kitchen", "music", "support")
OPENINGS = ("has anybody seen", "who wants", "I have just found", "does somebody need", "look at", "we are out of")
THINGS = ("the blue folder", "coffee", "a spare cable", "the new release", "my umbrella", "these figures", "cake")
REPLIES = ("yes!", "not me", "on my way", "+1", "again?", "ask grace", "ha", "let me look", "thank you", "why not")

PLACES = ("hall", "kitchen", "cellar", "roof", "server-room", "garden")
KINDS = {
    "temperature": (21.0, 0.2, "C"),
    "humidity": (45.0, 0.8, "%"),
    "co2": (600.0, 15.0, "ppm"),
    "power": (250.0, 20.0, "W"),
}
"""Start value, step and unit."""

SYMBOLS = ("ACME", "APEX", "BOLT", "CORE", "DUNE", "ECHO", "FLUX", "GRID", "HALO", "IRIS", "JADE", "KITE")

WARES = {"tea": 4.5, "coffee": 7.2, "mug": 9.9, "kettle": 39.0, "biscuits": 2.8, "honey": 6.4, "sugar": 1.1}
TOWNS = ("Aachen", "Basel", "Cork", "Delft", "Espoo", "Faro", "Gdansk", "Huelva")

PAGES = ("/", "/tea", "/coffee", "/basket", "/about", "/offers", "/login")


class Chat:
    """With bursts in the lobby."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def tick(self, number: int) -> Iterator[Message]:
        random = self._random
        lively = number % 50 > 44
        for _ in range(random.randint(6, 12) if lively else random.randint(0, 2)):
            room = "lobby" if lively else random.choice(ROOMS)
            text = random.choice(REPLIES) if lively or random.random() < 0.5 else self._opening()
            yield Message(f"chat.{room}", f"{random.choice(PEOPLE)}: {text}".encode())

    def _opening(self) -> str:
        mark = self._random.choice(("?", "!", "..."))
        return f"{self._random.choice(OPENINGS)} {self._random.choice(THINGS)}{mark}"


class Sensors:
    """Half of the sensors report per tick. Values drift around their start."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._values = {(place, kind): start for place in PLACES for kind, (start, _, _) in KINDS.items()}

    def tick(self, number: int) -> Iterator[Message]:
        for index, (place, kind) in enumerate(self._values):
            if index % 2 == number % 2:
                start, step, unit = KINDS[kind]
                value = self._values[place, kind]
                value += self._random.gauss(0, step) + (start - value) * 0.02
                self._values[place, kind] = value
                yield _json(f"sensors.{place}.{kind}", {"value": round(value, 2), "unit": unit})


class Ticker:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._prices = {symbol: random.uniform(20, 400) for symbol in SYMBOLS}

    def price(self, symbol: str) -> float | None:
        return round(self._prices[symbol], 2) if symbol in self._prices else None

    def tick(self, number: int) -> Iterator[Message]:
        busy = number % 75 > 65
        for _ in range(self._random.randint(40, 80) if busy else self._random.randint(8, 24)):
            symbol = self._random.choice(SYMBOLS)
            move = self._random.gauss(0, 0.001 * (3 if busy else 1))
            self._prices[symbol] = price = max(1.0, self._prices[symbol] * (1 + move))
            size = self._random.choice((1, 5, 10, 10, 50, 100))
            yield Message(f"ticker.{symbol}", f"{price:.2f} {move * 100:+.3f}% {size}".encode())


class Orders:
    """Each order is placed, then paid or cancelled, then shipped. Sales make bursts."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._last = 1000
        self._open: list[tuple[int, str]] = []
        """Orders, each with its last state."""

    def tick(self, number: int) -> Iterator[Message]:
        sale = number % 150 > 142
        for _ in range(self._random.randint(10, 25) if sale else self._random.randint(0, 3)):
            yield self._place()
        for _ in range(min(len(self._open), self._random.randint(0, 4))):
            yield self._move(*self._open.pop(self._random.randrange(len(self._open))))

    def _place(self) -> Message:
        self._last += 1
        self._open.append((self._last, "new"))
        counts = {
            ware: self._random.randint(1, 5)
            for ware in self._random.sample(list(WARES), self._random.randint(1, 4))
        }
        items = [{"ware": ware, "count": count, "price": WARES[ware]} for ware, count in counts.items()]
        total = round(sum(count * WARES[ware] for ware, count in counts.items()), 2)
        customer = {"name": self._random.choice(PEOPLE), "town": self._random.choice(TOWNS)}
        return _json("orders.new", {"order": self._last, "customer": customer, "items": items, "total": total})

    def _move(self, order: int, last: str) -> Message:
        if last == "paid":
            carrier = self._random.choice(("post", "bicycle", "drone"))
            return _json("orders.shipped", {"order": order, "carrier": carrier})
        if self._random.random() < 0.1:
            return _json("orders.cancelled", {"order": order, "reason": self._random.choice(REPLIES)})
        self._open.append((order, "paid"))
        return _json("orders.paid", {"order": order, "method": self._random.choice(("card", "invoice", "cash"))})


class Visits:
    def __init__(self, random: Random) -> None:
        self._random = random

    def tick(self, number: int) -> Iterator[Message]:
        visitor = self._random.randint(1, 40)
        yield _json("web.visits", {"visitor": visitor, "page": self._random.choice(PAGES)})
        for _ in range(self._random.randint(0, 3)):
            place = {"x": self._random.randint(0, 1280), "y": self._random.randint(0, 2400)}
            yield _json("web.clicks", {"visitor": visitor, **place})
        if number % 20 == 0:
            yield Message("web.notes", "a visitor says: schön hier ☕".encode(), Format.TEXT)


def _json(topic: str, value: object) -> Message:
    return Message(topic, json.dumps(value, separators=(",", ":")).encode(), Format.JSON)
