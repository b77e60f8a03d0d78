"""Finds how an endpoint is asked best: texts in a request, requests in flight, texts a second.

All of it is learnt from the endpoint's answers, because no two endpoints have the same limits and
few tell them. A request grows while it is answered soon, up to what the endpoint refuses. More
requests are in flight while that brings more texts a second: where it does not, they only wait
longer for one another. Where the endpoint limits how often it is asked, requests come as far apart
as it has let them through.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from kbproc.base.budget import number_that_fits
from kbproc.base.workers import Backoff

MOST_TEXTS = 256
# Some 200,000 tokens; OpenAI reads 300,000 in a request, others less, which they say by refusing.
MOST_BYTES = 600_000
MOST_AT_ONCE = 16
# A session may be short, and a request that is cut off brings no vector at all.
_FIRST_TEXTS = 4
_FIRST_AT_ONCE = 2
_SOON_S = 1.0  # a request that takes less may be twice as large
_LATE_S = 5.0  # one that takes longer should be half as large
_GAIN = 1.1  # more requests in flight must bring so much more
_LOSS = 0.7
_HELD_ROUNDS = 8  # before another request in flight is tried again
# A request takes what may be sent in so long where texts a second are limited.
_LIMITED_S = 10.0
_EASING = 1.02  # growth of the texts a second with each answer, because limits may be lifted
_FIRST_REST_S = 1.0
_LONGEST_REST_S = 60.0
_MOST_LIMITED = 8  # refusals in a row for asking too often, after which it is an error


class PaceClosed(Exception):
    """The pace was closed while a request waited for its turn."""


class Pace:
    """The pace of one endpoint, for any number of threads.

    Between `begin` and `end` a request is in flight. `clock` and `sleep` are the time's.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """`sleep`: by default a wait that `close` ends."""
        self._clock = clock
        self._ending = threading.Event()
        self._sleep = sleep or self._ending.wait
        self._changed = threading.Condition()
        self._in_flight = self._holds = 0
        # The size of requests. What was once taken is no reason for a later refusal.
        self._texts, self._most_texts, self._most_bytes = _FIRST_TEXTS, MOST_TEXTS, MOST_BYTES
        self._taken_texts = self._taken_bytes = 0
        # Requests in flight, by rounds of twice as many answers.
        self._at_once, self._earlier = _FIRST_AT_ONCE, 0
        self._texts_per_s = 0.0
        self._held_rounds = 0
        self._begin_round()
        # Limits of the endpoint.
        self._rest_until = self._next_at = 0.0
        self._limit_per_s: float | None = None
        self._limited_at: float | None = None
        self._texts_since_limited = 0
        self._backoff = Backoff(_FIRST_REST_S, _LONGEST_REST_S)

    @property
    def at_once(self) -> int:
        """How many requests are worth being in flight."""
        return self._at_once

    @property
    def texts(self) -> int:
        """How many texts a request takes at most."""
        texts = min(self._texts, self._most_texts)
        if self._limit_per_s is not None:
            texts = min(texts, max(1, int(self._limit_per_s * _LIMITED_S)))
        return texts

    def number(self, sizes: Sequence[int]) -> int:
        """Returns how many of the first texts, of these bytes, the next request takes."""
        return max(1, number_that_fits(sizes[: self.texts], self._most_bytes))

    # ------------------------------------------------------------------------ a request

    def begin(self, texts: int) -> float:
        """Waits for the turn of a request; returns the time that `answered` takes.

        Raises PaceClosed.
        """
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._ending.is_set()
                        or (self._in_flight < self._at_once and not self._holds)
                    )
                )
                if self._ending.is_set():
                    raise PaceClosed
                now = self._clock()
                wait_s = max(self._rest_until, self._next_at) - now
                if wait_s <= 0:
                    self._in_flight += 1
                    self._is_full |= self._in_flight == self._at_once
                    if self._limit_per_s is not None:
                        self._next_at = now + texts / self._limit_per_s
                    return now
            self._sleep(wait_s)

    def end(self) -> None:
        """Notes that a request is no longer in flight, answered or not."""
        with self._changed:
            self._in_flight -= 1
            self._changed.notify_all()

    def answered(self, texts: int, size: int, began: float) -> None:
        """Learns from an answer. `size`: the bytes of the texts."""
        with self._changed:
            now = self._clock()
            self._backoff.reset()
            self._taken_texts = max(self._taken_texts, texts)
            self._taken_bytes = max(self._taken_bytes, size)
            self._texts_since_limited += texts
            if self._limit_per_s is not None:
                self._limit_per_s *= _EASING
            is_large = texts >= self.texts or 2 * size > self._most_bytes
            if now - began < _SOON_S and is_large:
                self._texts = min(2 * self._texts, self._most_texts)
            elif now - began > _LATE_S:
                self._texts = max(1, min(self._texts, texts) // 2)
            self._round_texts += texts
            self._round_answers += 1
            if self._round_answers >= 2 * self._at_once:
                self._climb(now)

    def _begin_round(self) -> None:
        self._round_began = self._clock()
        self._round_texts = self._round_answers = 0
        self._is_full = False  # True once the round has had all allowed requests in flight

    def _climb(self, now: float) -> None:
        """Has more requests in flight, or fewer, by the texts a second of the round."""
        elapsed, was_full = now - self._round_began, self._is_full
        per_s = self._round_texts / elapsed if elapsed > 0 else float("inf")
        self._begin_round()
        if not was_full or self._limit_per_s is not None:
            return
        if per_s > _GAIN * self._texts_per_s or (self._held_rounds == 0 and not self._earlier):
            self._earlier = self._at_once
            self._at_once = min(MOST_AT_ONCE, self._at_once + max(1, self._at_once // 2))
            self._texts_per_s = per_s
        elif self._earlier:  # more of them brought nothing
            self._at_once, self._earlier = self._earlier, 0
            self._held_rounds = _HELD_ROUNDS
        elif per_s < _LOSS * self._texts_per_s:
            self._fall()
            self._texts_per_s = per_s
        else:
            self._held_rounds -= 1
        self._changed.notify_all()

    def _fall(self) -> None:
        self._at_once, self._earlier = max(1, self._at_once // 2), 0
        self._held_rounds = _HELD_ROUNDS

    # ------------------------------------------------------------------------ refusals

    def refused(self, texts: int, size: int) -> None:
        """Learns that a request of several texts was too large.

        That is by their number, unless as many were taken before; else by their bytes.
        """
        with self._changed:
            if texts > self._taken_texts:
                self._most_texts = max(1, self._taken_texts, texts // 2)
            elif size > self._taken_bytes:
                self._most_bytes = max(1, self._taken_bytes, size // 2)
            self._texts = min(self._texts, self._most_texts)

    def blame_text(self) -> None:
        """Forgets what refusals have taught, because a single text was refused by itself."""
        with self._changed:
            self._most_texts, self._most_bytes = MOST_TEXTS, MOST_BYTES

    def limited(self, wait_s: float) -> bool:
        """Rests, because the endpoint is asked too often; False if resting does not help.

        `wait_s`: what the endpoint says, or 0.
        """
        with self._changed:
            now = self._clock()
            if now < self._rest_until:  # another request in flight was refused before
                self._rest_until = max(self._rest_until, now + wait_s)
                return True
            own_s = self._backoff.failed()
            self._rest_until = now + (wait_s or own_s)
            self._fall()
            if self._texts_since_limited:
                if self._limited_at is not None and now > self._limited_at:
                    self._limit_per_s = self._texts_since_limited / (now - self._limited_at)
                self._limited_at, self._texts_since_limited = now, 0
            else:  # the rest was in vain: more texts may be asked for than are ever allowed
                self._texts = max(1, min(self._texts, self.texts) // 2)
            return self._backoff.failures <= _MOST_LIMITED

    def failed(self, wait_s: float) -> float:
        """Rests, because the endpoint fails or does not answer; returns for how long at least."""
        with self._changed:
            rest_s = max(wait_s, self._backoff.failed())
            self._rest_until = max(self._rest_until, self._clock() + rest_s)
            self._fall()
            self._texts = max(1, self._texts // 2)
            return rest_s

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds all requests back, because a search waits for the endpoint."""
        with self._changed:
            self._holds += 1
        try:
            yield
        finally:
            with self._changed:
                self._holds -= 1
                self._changed.notify_all()

    def close(self) -> None:
        self._ending.set()
        with self._changed:
            self._changed.notify_all()
