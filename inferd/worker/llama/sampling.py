"""Choose the next token with llama.cpp's native sampler chain."""

from inferd.job import Sampling
from inferd.worker.backend import RefusedError
from inferd.worker.llama.library import llama
from inferd.worker.llama.model import Context, Model

_MIN_KEEP = 1


class Sampler:
    """One job's way of choosing: grammar, top-k, top-p, temperature, in this order.

    Temperature 0 takes the likeliest token the grammar allows; without a grammar that is
    a maximum over the logits, several times quicker than a chain.

    Raises:
        RefusedError: the grammar does not parse.

    Ownership:
        The native chain is freed with the object.
    """

    def __init__(self, model: Model, sampling: Sampling) -> None:
        self._n_vocab = model.n_vocab
        self._takes_likeliest = sampling.temperature == 0 and not sampling.grammar
        self._chain = llama.llama_sampler_chain_init(
            llama.llama_sampler_chain_default_params()
        )
        if sampling.grammar:
            self._add_grammar(model, sampling.grammar)
        if sampling.temperature == 0:
            self._add(llama.llama_sampler_init_greedy())
        else:
            self._add(llama.llama_sampler_init_top_k(sampling.top_k))
            self._add(llama.llama_sampler_init_top_p(sampling.top_p, _MIN_KEEP))
            self._add(llama.llama_sampler_init_temp(sampling.temperature))
            self._add(llama.llama_sampler_init_dist(sampling.seed))

    def choose(self, context: Context, row: int) -> int:
        """Choose a token by the logits of a row of the last batch."""
        if self._takes_likeliest:
            return int(context.logits(row, self._n_vocab).argmax())
        return int(llama.llama_sampler_sample(self._chain, context.handle, row))

    def __del__(self) -> None:
        llama.llama_sampler_free(self._chain)

    def _add(self, sampler: object) -> None:
        llama.llama_sampler_chain_add(self._chain, sampler)

    def _add_grammar(self, model: Model, grammar: str) -> None:
        sampler = llama.llama_sampler_init_grammar(
            model.vocab, grammar.encode(), b"root"
        )
        if not sampler:
            raise RefusedError("grammar is not valid GBNF with a rule named root")
        self._add(sampler)
