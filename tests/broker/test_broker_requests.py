"""Request routing: responders, shares, and exactly one response for each request."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from polycast.broker.requests import (
    BUSY,
    EXPIRE_LIMIT,
    GONE,
    NOT_FOUND,
    SHARE,
    TIMEOUT,
    Effect,
    Requests,
    SendRequest,
    SendResponse,
    json_body,
    text_body,
)
from polycast.model import Body, Format
from polycast.routing import Subscriber

BODY = Body(b"[2,3]", Format.JSON)
SECONDS = 30.0


def someone() -> Subscriber:
    return Subscriber(object())


def failed(requester: Subscriber, handle: object, reason: str) -> list[Effect]:
    return [SendResponse(requester, handle, False, text_body(reason))]


def test_bodies() -> None:
    assert text_body("NotFound") == Body(b"NotFound", Format.TEXT)
    assert json_body({"é": [1, None]}) == Body('{"é":[1,null]}'.encode(), Format.JSON)


def test_a_request_goes_to_a_responder_under_a_new_number() -> None:
    requests, requester, responder = Requests(), someone(), someone()
    requests.offer(responder, "add")
    assert requests.request(requester, "add", "seven", BODY, 0.0) == [SendRequest(responder, 1, "add", BODY)]
    assert requests.request(requester, "add", "seven", BODY, 0.0) == [SendRequest(responder, 2, "add", BODY)]
    assert len(requests) == 2
    assert requests.respond(responder, 2, True, Body()) == [SendResponse(requester, "seven", True, Body())]
    assert requests.respond(responder, 1, False, BODY) == [SendResponse(requester, "seven", False, BODY)]
    assert len(requests) == 0


def test_no_responder() -> None:
    requests, requester, responder = Requests(), someone(), someone()
    assert requests.request(requester, "add", 1, BODY, 0.0) == failed(requester, 1, NOT_FOUND)
    requests.offer(responder, "add")
    assert requests.request(requester, "ad", 1, BODY, 0.0) == failed(requester, 1, NOT_FOUND)
    requests.withdraw(responder, "add")
    assert requests.request(requester, "add", 1, BODY, 0.0) == failed(requester, 1, NOT_FOUND)


def test_responders_take_turns() -> None:
    requests, requester = Requests(), someone()
    responders = [someone() for _ in range(3)]
    for responder in responders:
        requests.offer(responder, "add")
    requests.offer(responders[0], "add")
    requested = [effect for _ in range(6) for effect in requests.request(requester, "add", 1, BODY, 0.0)]
    assert [effect.responder for effect in requested if isinstance(effect, SendRequest)] == responders * 2
    requests.withdraw(responders[1], "add")
    requests.withdraw(responders[1], "add")
    requests.withdraw(someone(), "add")
    assert requests.routes() == {"add": 2}


def test_only_the_chosen_responder_can_respond_once() -> None:
    requests, requester, responder, other = Requests(), someone(), someone(), someone()
    requests.offer(responder, "add")
    requests.offer(other, "add")
    requests.request(requester, "add", 1, BODY, 0.0)
    assert requests.respond(other, 1, True, BODY) is None
    assert requests.respond(requester, 1, True, BODY) is None
    assert requests.respond(responder, 2, True, BODY) is None
    assert requests.respond(responder, 1, True, BODY) == [SendResponse(requester, 1, True, BODY)]
    assert requests.respond(responder, 1, True, BODY) is None


def test_a_withdrawn_responder_may_still_respond() -> None:
    requests, requester, responder = Requests(), someone(), someone()
    requests.offer(responder, "add")
    requests.request(requester, "add", 1, BODY, 0.0)
    requests.withdraw(responder, "add")
    assert requests.respond(responder, 1, True, BODY) == [SendResponse(requester, 1, True, BODY)]


def test_a_request_times_out() -> None:
    requests, requester, responder = Requests(SECONDS), someone(), someone()
    requests.offer(responder, "add")
    requests.request(requester, "add", "early", BODY, 0.0)
    requests.request(requester, "add", "late", BODY, 1.0)
    assert requests.expire(SECONDS - 0.1) == []
    assert requests.expire(SECONDS) == failed(requester, "early", TIMEOUT)
    assert requests.respond(responder, 1, True, BODY) is None
    assert requests.respond(responder, 2, True, BODY) == [SendResponse(requester, "late", True, BODY)]
    assert requests.expire(2 * SECONDS) == []


def test_the_responder_is_gone() -> None:
    requests, requester, other, responder = Requests(), someone(), someone(), someone()
    requests.offer(responder, "add")
    requests.offer(responder, "sub")
    requests.request(requester, "add", 1, BODY, 0.0)
    requests.request(other, "sub", 2, BODY, 0.0)
    assert requests.leave(responder) == [*failed(requester, 1, GONE), *failed(other, 2, GONE)]
    assert requests.routes() == {}
    assert requests.request(requester, "add", 1, BODY, 0.0) == failed(requester, 1, NOT_FOUND)
    assert requests.leave(responder) == []


def test_the_requester_is_gone() -> None:
    requests, requester, responder = Requests(), someone(), someone()
    requests.offer(responder, "add")
    requests.request(requester, "add", 1, BODY, 0.0)
    assert requests.leave(requester) == []
    assert requests.respond(responder, 1, True, BODY) is None
    assert requests.expire(SECONDS) == []
    assert len(requests) == 0


def test_a_requester_that_serves_itself_and_leaves() -> None:
    requests, both = Requests(), someone()
    requests.offer(both, "add")
    assert requests.request(both, "add", 1, BODY, 0.0) == [SendRequest(both, 1, "add", BODY)]
    assert requests.respond(both, 1, True, BODY) == [SendResponse(both, 1, True, BODY)]
    requests.request(both, "add", 2, BODY, 0.0)
    assert requests.leave(both) == []


def test_one_requester_cannot_block_the_others() -> None:
    limit = 2 * SHARE
    requests, greedy, responder = Requests(SECONDS, limit), someone(), someone()
    requests.offer(responder, "add")
    for _ in range(2):
        assert isinstance(requests.request(greedy, "add", 1, BODY, 0.0)[0], SendRequest)
    assert requests.request(greedy, "add", 3, BODY, 0.0) == failed(greedy, 3, BUSY)
    for _ in range(limit - 2):
        assert isinstance(requests.request(someone(), "add", 1, BODY, 0.0)[0], SendRequest)
    late = someone()
    assert requests.request(late, "add", 4, BODY, 0.0) == failed(late, 4, BUSY)
    requests.respond(responder, 1, True, BODY)
    assert isinstance(requests.request(late, "add", 4, BODY, 0.0)[0], SendRequest)


def test_an_identity_has_one_share_whatever_the_number_of_its_connections() -> None:
    limit = 2 * SHARE
    requests, responder = Requests(SECONDS, limit), someone()
    requests.offer(responder, "add")
    greedy = [someone() for _ in range(limit)]
    effects = [effect for each in greedy for effect in requests.request(each, "add", 1, BODY, 0.0, "greedy")]
    assert [type(effect) for effect in effects] == [SendRequest] * 2 + [SendResponse] * (limit - 2)
    assert isinstance(requests.request(someone(), "add", 1, BODY, 0.0, "another")[0], SendRequest)
    requests.respond(responder, 1, True, BODY)
    requests.leave(greedy[1])
    again = [effect for each in greedy for effect in requests.request(each, "add", 1, BODY, 0.0, "greedy")]
    assert [type(effect) for effect in again] == [SendRequest] * 2 + [SendResponse] * (limit - 2)


def test_requests_that_expire_together_fail_in_parts_oldest_first() -> None:
    requests, requester, responder = Requests(SECONDS), someone(), someone()
    requests.offer(responder, "add")
    requested = 10 * EXPIRE_LIMIT + 1
    for handle in range(requested):
        requests.request(requester, "add", handle, BODY, 0.0)
    sweeps = [requests.expire(SECONDS) for _ in range(12)]
    assert [len(sweep) for sweep in sweeps] == [EXPIRE_LIMIT] * 10 + [1, 0]
    responses = [effect for sweep in sweeps for effect in sweep]
    assert responses == [failed(requester, handle, TIMEOUT)[0] for handle in range(requested)]


def test_each_of_very_many_responders_has_its_turn() -> None:
    requests, requester = Requests(SECONDS), someone()
    responders = [someone() for _ in range(20_000)]
    for responder in responders:
        requests.offer(responder, "add")
    requested = [requests.request(requester, "add", handle, BODY, 0.0) for handle in range(2 * len(responders))]
    assert [effect.responder for [effect] in requested if isinstance(effect, SendRequest)] == responders * 2


def test_a_limit_of_one_is_one() -> None:
    requests, requester, responder = Requests(SECONDS, 1), someone(), someone()
    requests.offer(responder, "add")
    assert isinstance(requests.request(requester, "add", 1, BODY, 0.0)[0], SendRequest)
    assert requests.request(requester, "add", 2, BODY, 0.0) == failed(requester, 2, BUSY)


class RequestsMachine(RuleBasedStateMachine):
    """A request of a connected requester gets at most one response, and finally exactly one."""

    routes = st.sampled_from(["a", "b"])
    people = st.integers(0, 3)

    def __init__(self) -> None:
        super().__init__()
        self.requests = Requests(SECONDS, limit=8)
        self.here = [someone() for _ in range(4)]
        self.requested = 0
        self.owed: dict[int, Subscriber] = {}
        """Requesters by handle."""
        self.forwarded: list[SendRequest] = []
        self.responses: Counter[int] = Counter()
        self.now = 0.0

    def take(self, effects: list[Effect] | None) -> None:
        for effect in effects or []:
            if isinstance(effect, SendRequest):
                assert effect.responder in self.here
                self.forwarded.append(effect)
            else:
                assert self.owed.pop(effect.handle) is effect.requester
                self.responses[effect.handle] += 1

    @rule(who=people, route=routes)
    def offer(self, who: int, route: str) -> None:
        self.requests.offer(self.here[who], route)

    @rule(who=people, route=routes)
    def withdraw(self, who: int, route: str) -> None:
        self.requests.withdraw(self.here[who], route)

    @rule(who=people, route=routes)
    def make_request(self, who: int, route: str) -> None:
        self.requested += 1
        self.owed[self.requested] = self.here[who]
        self.take(self.requests.request(self.here[who], route, self.requested, BODY, self.now))

    @rule(which=st.integers(0, 9), success=st.booleans())
    def response(self, which: int, success: bool) -> None:
        if self.forwarded:
            forward = self.forwarded[which % len(self.forwarded)]
            self.take(self.requests.respond(forward.responder, forward.number, success, BODY))

    @rule(who=people)
    def leave(self, who: int) -> None:
        gone, self.here[who] = self.here[who], someone()
        self.owed = {handle: waiting for handle, waiting in self.owed.items() if waiting is not gone}
        self.take(self.requests.leave(gone))

    @rule(seconds=st.sampled_from([1.0, SECONDS / 2, SECONDS]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.requests.expire(self.now))

    @invariant()
    def every_request_is_accounted_for(self) -> None:
        assert len(self.requests) == len(self.owed)
        assert all(count == 1 for count in self.responses.values())

    def teardown(self) -> None:
        self.take(self.requests.expire(self.now + SECONDS))
        assert not self.owed and not self.requests._requested and not self.requests._assigned


TestExchange = RequestsMachine.TestCase
