"""A token bucket."""

import time


class TokenBucket:
    """Allows `rate` requests a second, and bursts of up to `size`."""

    def __init__(self, rate: float, size: int) -> None:
        self.rate, self.size = rate, size
        self.tokens, self.last = float(size), time.monotonic()

    def allow(self) -> bool:
        """Takes a token if there is one; refills by the time that has passed."""
        now = time.monotonic()
        self.tokens = min(self.size, self.tokens + (now - self.last) * self.rate)
        self.last = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
