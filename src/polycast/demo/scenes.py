"""What is said in the demo: people chat, sensors measure, a shop sells, a ticker ticks, somebody surfs.

A scene is asked for its messages turn by turn, and keeps what the next turn builds upon. Chance comes in, so that
the same chance makes the same messages.
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
"""Where each begins, how far it moves at a time, and its unit."""

SYMBOLS = ("ACME", "APEX", "BOLT", "CORE", "DUNE", "ECHO", "FLUX", "GRID", "HALO", "IRIS", "JADE", "KITE")

WARES = {"tea": 4.5, "coffee": 7.2, "mug": 9.9, "kettle": 39.0, "biscuits": 2.8, "honey": 6.4, "sugar": 1.1}
TOWNS = ("Aachen", "Basel", "Cork", "Delft", "Espoo", "Faro", "Gdansk", "Huelva")

PAGES = ("/", "/tea", "/coffee", "/basket", "/about", "/offers", "/login")


class Chat:
    """Now and then everybody talks at once."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def turn(self, number: int) -> Iterator[Message]:
        chance = self._chance
        lively = number % 50 > 44
        for _ in range(chance.randint(6, 12) if lively else chance.randint(0, 2)):
            room = "lobby" if lively else chance.choice(ROOMS)
            said = chance.choice(REPLIES) if lively or chance.random() < 0.5 else self._opening()
            yield Message(f"chat.{room}", f"{chance.choice(PEOPLE)}: {said}".encode())

    def _opening(self) -> str:
        mark = self._chance.choice(("?", "!", "..."))
        return f"{self._chance.choice(OPENINGS)} {self._chance.choice(THINGS)}{mark}"


class Sensors:
    """Half of them tell at a time how it is. Values go up and down a little."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._values = {(place, kind): start for place in PLACES for kind, (start, _, _) in KINDS.items()}

    def turn(self, number: int) -> Iterator[Message]:
        for index, (place, kind) in enumerate(self._values):
            if index % 2 == number % 2:
                start, step, unit = KINDS[kind]
                value = self._values[place, kind]
                value += self._chance.gauss(0, step) + (start - value) * 0.02
                self._values[place, kind] = value
                yield _json(f"sensors.{place}.{kind}", {"value": round(value, 2), "unit": unit})


class Ticker:
    """Prices of what nobody can buy."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._prices = {symbol: chance.uniform(20, 400) for symbol in SYMBOLS}

    def price(self, symbol: str) -> float | None:
        return round(self._prices[symbol], 2) if symbol in self._prices else None

    def turn(self, number: int) -> Iterator[Message]:
        busy = number % 75 > 65
        for _ in range(self._chance.randint(40, 80) if busy else self._chance.randint(8, 24)):
            symbol = self._chance.choice(SYMBOLS)
            move = self._chance.gauss(0, 0.001 * (3 if busy else 1))
            self._prices[symbol] = price = max(1.0, self._prices[symbol] * (1 + move))
            size = self._chance.choice((1, 5, 10, 10, 50, 100))
            yield Message(f"ticker.{symbol}", f"{price:.2f} {move * 100:+.3f}% {size}".encode())


class Orders:
    """Each is placed, then paid or cancelled, then shipped. From time to time there is a sale."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._last = 1000
        self._open: list[tuple[int, str]] = []
        """Orders, and what happened to them last."""

    def turn(self, number: int) -> Iterator[Message]:
        sale = number % 150 > 142
        for _ in range(self._chance.randint(10, 25) if sale else self._chance.randint(0, 3)):
            yield self._place()
        for _ in range(min(len(self._open), self._chance.randint(0, 4))):
            yield self._move(*self._open.pop(self._chance.randrange(len(self._open))))

    def _place(self) -> Message:
        self._last += 1
        self._open.append((self._last, "new"))
        counts = {
            ware: self._chance.randint(1, 5)
            for ware in self._chance.sample(list(WARES), self._chance.randint(1, 4))
        }
        items = [{"ware": ware, "count": count, "price": WARES[ware]} for ware, count in counts.items()]
        total = round(sum(count * WARES[ware] for ware, count in counts.items()), 2)
        customer = {"name": self._chance.choice(PEOPLE), "town": self._chance.choice(TOWNS)}
        return _json("orders.new", {"order": self._last, "customer": customer, "items": items, "total": total})

    def _move(self, order: int, last: str) -> Message:
        if last == "paid":
            carrier = self._chance.choice(("post", "bicycle", "drone"))
            return _json("orders.shipped", {"order": order, "carrier": carrier})
        if self._chance.random() < 0.1:
            return _json("orders.cancelled", {"order": order, "reason": self._chance.choice(REPLIES)})
        self._open.append((order, "paid"))
        return _json("orders.paid", {"order": order, "method": self._chance.choice(("card", "invoice", "cash"))})


class Visits:
    """What a page in a browser tells about those who look at it."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def turn(self, number: int) -> Iterator[Message]:
        visitor = self._chance.randint(1, 40)
        yield _json("web.visits", {"visitor": visitor, "page": self._chance.choice(PAGES)})
        for _ in range(self._chance.randint(0, 3)):
            place = {"x": self._chance.randint(0, 1280), "y": self._chance.randint(0, 2400)}
            yield _json("web.clicks", {"visitor": visitor, **place})
        if number % 20 == 0:
            yield Message("web.notes", "a visitor says: schön hier ☕".encode(), Format.TEXT)


def _json(topic: str, value: object) -> Message:
    return Message(topic, json.dumps(value, separators=(",", ":")).encode(), Format.JSON)
