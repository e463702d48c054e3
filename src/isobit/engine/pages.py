"""Pages of the key/value cache, and the sequences that own them.

A page may be shared by several sequences as long as it is full; a page that is still being written has one owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from isobit.errors import InputError
from isobit.ops import PAGE_SIZE, KVCache


def pages_for(tokens: int) -> int:
    """Pages that hold `tokens` positions."""
    return -(-tokens // PAGE_SIZE)


class PagePool:
    """Hands out the pages of a cache and counts who uses them."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self._free = list(range(cache.num_pages - 1, -1, -1))  # the lowest page is taken first
        self._users = [0] * cache.num_pages

    @property
    def free(self) -> int:
        """Pages that nobody uses."""
        return len(self._free)

    def take(self) -> int:
        """A page for one owner. Raises InputError when none is left."""
        if not self._free:
            raise InputError(
                f"the cache's {self.cache.num_pages} pages of {PAGE_SIZE} tokens are all in use; "
                "load the model with a larger context or run fewer sequences at once"
            )
        page = self._free.pop()
        self._users[page] = 1
        return page

    def share(self, page: int) -> int:
        """One more owner of a page."""
        self._users[page] += 1
        return page

    def release(self, page: int) -> None:
        """One owner less; the last one frees it."""
        self._users[page] -= 1
        assert self._users[page] >= 0, "page released twice"
        if self._users[page] == 0:
            self._free.append(page)

    def copy(self, page: int) -> int:
        """A page of its own with the same keys and values."""
        target = self.take()
        self.cache.keys[:, target] = self.cache.keys[:, page]
        self.cache.values[:, target] = self.cache.values[:, page]
        return target

    def check(self) -> None:
        """Integrity: every page is free or has users, never both."""
        free = set(self._free)
        assert len(free) == len(self._free), "a page is free twice"
        for page, users in enumerate(self._users):
            assert (users == 0) == (page in free), f"page {page} has {users} users and is free: {page in free}"


@dataclass
class Sequence:
    """Token ids whose keys and values are in the cache, and the pages that hold them."""

    pool: PagePool
    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def reserve(self, count: int) -> None:
        """Makes room for `count` more tokens."""
        while len(self.pages) < pages_for(len(self.tokens) + count):
            self.pages.append(self.pool.take())

    def fork(self) -> Sequence:
        """A sequence with the same past: full pages are shared, the last one is copied."""
        full = len(self.tokens) // PAGE_SIZE
        pages = [self.pool.share(page) for page in self.pages[:full]]
        if len(self.tokens) % PAGE_SIZE:
            pages.append(self.pool.copy(self.pages[full]))
        return Sequence(self.pool, list(self.tokens), pages)

    def truncate(self, length: int) -> None:
        """Forgets all tokens from `length` on."""
        keep = pages_for(length)
        for page in self.pages[keep:]:
            self.pool.release(page)
        del self.pages[keep:], self.tokens[length:]

    def release(self) -> None:
        """Gives all pages back."""
        self.truncate(0)
