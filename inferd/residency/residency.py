"""Decide which models are loaded and unloaded, and whose requests may start."""

import math
from collections.abc import Collection, Iterable, Iterator

from inferd.residency.decision import Decision, TurnRules
from inferd.residency.model import OPERATOR, Model, ModelState

__all__ = ["Decision", "ModelState", "Residency", "TurnRules"]


class Residency:
    """Models that share a budget of memory, and the requests for them.

    Call ``decide`` after every change. Invariants (verified by property tests):

    - The bytes of models that are loading, ready or unloading never exceed the budget.
    - A model with a started request is not unloaded; a pinned one never is.
    - A model is loaded once, however many requests wait for it.
    - Models wait in line in the order in which they were wanted. A model that fits is
      loaded at once if the first in line can be loaded all the same.
    - For the first in line, models that no request needs are unloaded, the least recently
      used first, once they were ready for ``min_residency_s``. If that is not enough and
      it has waited for ``longest_wait_s``, those that have been ready longest are closed:
      their requests end, no further one starts, and they are unloaded. A retired one is
      not closed: it serves those that have arrived for it, and no further one arrives.
    - So the k-th model in line is loaded after at most ``longest_wait_s`` + k times
      (``min_residency_s`` + D + U + 2 L): D is the longest time for which a request still
      runs, U and L the longest that unloading and loading take.

    Args:
        budget: bytes of memory for all models.
        rules: when models take turns.
    """

    def __init__(self, budget: int, rules: TurnRules) -> None:
        self._budget = budget
        self.rules = rules
        """May change at any time."""
        self._models: dict[str, Model] = {}

    # --- what there is ------------------------------------------------------------------

    def add(
        self, name: str, n_bytes: int, *, keep_alive_s: float, is_pinned: bool = False
    ) -> None:
        """Add a model that is not loaded.

        Raises:
            ValueError: there is a model of that name.
        """
        if name in self._models:
            raise ValueError(f"there is a model {name!r} already")
        self._models[name] = Model(
            name=name,
            n_bytes=n_bytes,
            keep_alive_s=keep_alive_s,
            is_pinned=is_pinned,
        )

    def adopt(self, name: str, now: float) -> None:
        """Note that a model was loaded before it was added."""
        model = self._models[name]
        model.state = ModelState.READY
        model.ready_at = model.used_at = now

    def pin(self, name: str) -> None:
        """Keep a model loaded from now on."""
        self._models[name].is_pinned = True

    def retire(self, name: str) -> None:
        """Remove a model once no request needs it; no further one may arrive."""
        model = self._models[name]
        model.is_retired, model.is_pinned = True, False
        model.is_load_asked = False

    def __contains__(self, name: str) -> bool:
        """Return whether there is a model of this name."""
        return name in self._models

    def state(self, name: str) -> ModelState:
        """Return the state of a model."""
        return self._models[name].state

    def is_absent(self, name: str) -> bool:
        """Return whether a model takes no memory."""
        return self._models[name].is_absent

    def is_needed(self, name: str) -> bool:
        """Return whether anybody has asked for a model."""
        model = self._models[name]
        is_coming = model.state is ModelState.LOADING
        return bool(model.n_waiting or model.is_load_asked or is_coming)

    def is_leaving(self, name: str) -> bool:
        """Return whether a model is unloaded once its requests have ended."""
        model = self._models[name]
        is_going = model.state is ModelState.UNLOADING
        return model.is_unload_asked or model.is_retired or is_going

    def bytes_needed(self, name: str) -> int:
        """Return the predicted bytes of a model."""
        return self._models[name].n_bytes

    @property
    def reserved(self) -> int:
        """The bytes of all models that are loading, ready or unloading."""
        return sum(model.reserved for model in self._models.values())

    def fits(
        self,
        name: str,
        *,
        beside: Collection[str] = (),
        without: Collection[str] = (),
    ) -> bool:
        """Return whether a model can be loaded if all others that can be are unloaded.

        Args:
            name: of the model.
            beside: those that stay as they are, pinned or not.
            without: those that are gone then, pinned or not.
        """
        kept = (
            model.n_bytes if model.is_pinned else model.reserved
            for model in self._models.values()
            if model.name not in {name, *without}
            and (model.is_pinned or model.name in beside)
        )
        return self._models[name].n_bytes <= self._budget - sum(kept)

    def resize(self, name: str, n_bytes: int) -> bool:
        """Change the predicted bytes of a model; false if a loaded one has no room for more."""
        model = self._models[name]
        grown = n_bytes - model.n_bytes
        if not model.is_absent and grown > max(0, self._budget - self.reserved):
            return False
        model.n_bytes = n_bytes
        return True

    def most_bytes(self, name: str) -> int:
        """Return the bytes that a model gets if all others that can be are unloaded."""
        pinned = (
            model.n_bytes
            for model in self._models.values()
            if model.is_pinned and model.name != name
        )
        return self._budget - sum(pinned)

    # --- what happens -------------------------------------------------------------------

    def arrived(self, name: str, now: float) -> None:
        """Note a request for a model."""
        model = self._models[name]
        model.n_waiting += 1
        model.note_wanted(now)

    def started(self, name: str) -> None:
        """Note that a request starts; the model must be ready and not closed."""
        model = self._models[name]
        model.n_waiting -= 1
        model.n_running += 1

    def left(
        self,
        name: str,
        now: float,
        *,
        has_started: bool,
        user: int,
        keep_alive_s: float | None = None,
    ) -> None:
        """Note the end of a request.

        Args:
            name: of the model.
            now: seconds.
            has_started: whether ``started`` was called for it.
            user: whose it was.
            keep_alive_s: seconds that it asks the model to stay loaded, 0 for as long as
                allowed: no longer than configured. It replaces what this user's last one
                asked; the model stays as long as any user's asks.
        """
        model = self._models[name]
        if has_started:
            model.n_running -= 1
            model.used_at = now
            model.keep_for(user, keep_alive_s, now)
        else:
            model.n_waiting -= 1
        model.note_wanted(now)

    def ask_load(self, name: str, now: float) -> None:
        """Load a model although no request needs it."""
        model = self._models[name]
        is_coming = model.state in {ModelState.LOADING, ModelState.READY}
        model.is_load_asked = not is_coming
        model.is_unload_asked = False
        model.note_wanted(now)

    def ask_unload(self, name: str, now: float) -> None:
        """Unload a model once its requests have ended; those that wait load it again."""
        model = self._models[name]
        model.is_load_asked = False
        model.is_unload_asked = not model.is_absent and not model.is_pinned
        model.note_wanted(now)

    def loaded(self, name: str, now: float) -> None:
        """Note that a model is ready."""
        model = self._models[name]
        model.state = ModelState.READY
        model.ready_at = model.used_at = now
        model.kept_until.clear()
        if model.is_load_asked:
            model.keep_for(OPERATOR, None, now)
        model.is_load_asked = False
        model.note_wanted(now)

    def failed(self, name: str, now: float, *, retry_at: float) -> None:
        """Note that a load failed, or a load that was under way has been given up."""
        model = self._models[name]
        model.state = ModelState.FAILED
        model.retry_at = retry_at
        model.is_load_asked = model.is_unload_asked = False
        model.wanted_since = None
        model.note_wanted(now)

    def unloaded(self, name: str, now: float) -> None:
        """Note that a model takes no more memory."""
        model = self._models[name]
        model.state = ModelState.UNLOADED
        model.is_unload_asked = False
        model.note_wanted(now)

    # --- what is to be done -------------------------------------------------------------

    def decide(self, now: float) -> Decision:
        """Choose what is to be loaded and unloaded now, and mark it."""
        at = [math.inf]
        unloads = [*self._unneeded(now, at)]
        for model in unloads:
            model.state = ModelState.UNLOADING
        line = self._line(now, at)
        loads = self._fitting(line)
        for model in loads:
            model.state = ModelState.LOADING
            model.wanted_since = None
        closing = {
            model.name for model in self._models.values() if model.is_unload_asked
        }
        if head := next((model for model in line if model.is_absent), None):
            victims = self._unused_victims(head, now, at)
            if not victims:
                closed = self._closed_victims(head, now, at)
                closing |= {model.name for model in closed}
                victims = [model for model in closed if not model.n_running]
            for model in victims:
                model.state = ModelState.UNLOADING
            unloads += victims
        return Decision(
            loads=[model.name for model in loads],
            unloads=[model.name for model in unloads],
            removed=[*self._remove_retired()],
            closed=frozenset(
                model.name
                for model in self._models.values()
                if model.state is not ModelState.READY or model.name in closing
            ),
            at=min(at),
        )

    def _unneeded(self, now: float, at: list[float]) -> Iterator[Model]:
        """Yield ready models that are to be unloaded whether or not others wait."""
        for model in self._models.values():
            if model.is_unload_asked or model.is_retired:
                ends = model.is_unload_asked or not model.n_waiting
                if model.state is ModelState.READY and ends and not model.n_running:
                    yield model
            elif model.is_unused and not model.is_pinned:
                if model.idle_until <= now:
                    yield model
                else:
                    at.append(model.idle_until)

    def _line(self, now: float, at: list[float]) -> list[Model]:
        """List the models that wait for memory, the first to be loaded first."""
        line: list[Model] = []
        for model in self._models.values():
            if not model.is_wanted or model.n_bytes > self.most_bytes(model.name):
                continue
            if model.retry_at > now:
                at.append(model.retry_at)
            else:
                line.append(model)
        return sorted(line, key=lambda model: model.waits_since(now))

    def _fitting(self, line: Iterable[Model]) -> list[Model]:
        """List the models that can be loaded now without delaying the first that cannot."""
        loads: list[Model] = []
        free, kept_free = self._budget - self.reserved, math.inf
        for model in line:
            if model.n_bytes <= min(free, kept_free):
                loads.append(model)
                kept_free -= model.n_bytes
                free -= model.n_bytes
            elif kept_free == math.inf:  # the first that has to wait
                kept_free = self._left_beside(model, loads)
        return loads

    def _left_beside(self, head: Model, loads: Iterable[Model]) -> int:
        """Return the bytes that are left once those in the way of a model are unloaded."""
        gone = {model.name for model in self._in_the_way(head, loads)}
        kept = sum(
            model.reserved
            for model in self._models.values()
            if model.name not in gone and model.state is not ModelState.UNLOADING
        )
        return self._budget - head.n_bytes - kept - sum(each.n_bytes for each in loads)

    def _shortage(self, head: Model, loads: Iterable[Model] = ()) -> int:
        """Return the bytes that a model lacks once what is being unloaded is gone."""
        kept = sum(
            model.reserved
            for model in self._models.values()
            if model.state is not ModelState.UNLOADING
        )
        return kept + sum(each.n_bytes for each in loads) + head.n_bytes - self._budget

    def _in_the_way(self, head: Model, loads: Iterable[Model] = ()) -> list[Model]:
        """List the models that have to go for another: those that are ready longest."""
        resident = sorted(
            (
                model
                for model in self._models.values()
                if model.state in {ModelState.READY, ModelState.LOADING}
                and not model.is_pinned
            ),
            key=lambda model: (model.state is ModelState.LOADING, model.ready_at),
        )
        return _enough(resident, self._shortage(head, loads))

    def _unused_victims(self, head: Model, now: float, at: list[float]) -> list[Model]:
        """List the unused models to unload for another; none if they are too few."""
        unused: list[Model] = []
        for model in self._models.values():
            if model.is_unused and not model.is_pinned:
                may_go_at = model.ready_at + self.rules.min_residency_s
                if may_go_at <= now:
                    unused.append(model)
                else:
                    at.append(may_go_at)
        shortage = self._shortage(head)
        if sum(model.n_bytes for model in unused) < shortage:
            return []
        unused.sort(key=lambda model: model.used_at)
        return _enough(unused, shortage)

    def _closed_victims(self, head: Model, now: float, at: list[float]) -> list[Model]:
        """List the ready models that start no more requests, as another waited long."""
        close_at = head.waits_since(now) + self.rules.longest_wait_s
        closed: list[Model] = []
        for model in self._in_the_way(head):
            closes_at = max(close_at, model.ready_at + self.rules.min_residency_s)
            if model.is_retired:  # those that wait for it can be served by no other
                continue
            if model.state is ModelState.READY and closes_at <= now:
                closed.append(model)
            else:
                at.append(max(closes_at, now) if closes_at > now else math.inf)
        return closed

    def _remove_retired(self) -> Iterator[str]:
        for model in [*self._models.values()]:
            has_requests = model.n_waiting + model.n_running
            if model.is_retired and model.is_absent and not has_requests:
                del self._models[model.name]
                yield model.name


def _enough(models: Iterable[Model], n_bytes: int) -> list[Model]:
    """Take models from the first on until they have so many bytes together."""
    taken: list[Model] = []
    for model in models:
        if n_bytes <= 0:
            break
        taken.append(model)
        n_bytes -= model.n_bytes
    return taken
