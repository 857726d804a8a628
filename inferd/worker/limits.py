"""Every bound that a worker keeps: value, unit, reason, and the threat it answers."""

from typing import Final

from inferd.limits import MAX_DRAFT_TOKENS, PREPARE_TIMEOUT_S

FORCED_TOKENS: Final = 64
"""Tokens of one answer that go into a batch at once where its grammar leaves no choice:
more would hold up other streams as much as a chunk of a prompt does."""

TEMPLATE_MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Bytes that the worker may grow by while a chat template is at work. The largest request
takes 64 MiB a copy, four times that where its characters are wide. F-18."""

TOKENIZE_AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of a text that is tokenised without a look at whether it may fit: less than 1 s as
a rule, 4 s of newlines with SentencePiece, by the square of them. F-23."""

TOKENIZE_PART_CHARS: Final = 16 * 1024
"""Characters of a longer text that are tokenised at once to see if it may fit. F-23."""

TOKENIZE_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the longest text that is tokenised as a whole: a million tokens of prose. It
takes 3 to 8 s. F-23."""

TOKENIZE_S: Final = PREPARE_TIMEOUT_S / 2
"""Seconds after which no further text of a request is tokenised: the worker is not to be
killed for it. 64 MiB of short texts take 7 s on a machine that is not busy. F-23."""

PREFILL_CHUNK_TOKENS: Final = 512
"""Prompt tokens in one decode step while nobody else is decoding (llama.cpp's ubatch)."""

PREFILL_ALONE_S: Final = 2.0
"""Seconds that such a step may take: who comes or goes meanwhile waits for its end, and a
slow model gives no sign of life."""

PREFILL_STALL_S: Final = 0.15
"""Seconds for which prompts may hold up running answers, each time."""

DRAFT_READ_S: Final = 0.05
"""Seconds for which a draft model that reads may hold up running answers, each time, on
top of that: it reads what is in the cache already, too."""

PREFILL_CHUNK_MIN_TOKENS: Final = 16
"""Prompt tokens in a decode step while others stream, however slow: fewer are no quicker."""

PREFILL_TILE_TOKENS: Final = 64
"""Tokens that llama.cpp's attention computes together: a step of some tokens more than a
multiple computes as much again for them (132 tokens at a time are read at 0.86 of the speed
of 128)."""

KEPT_TOKENS_MIN: Final = 16
"""Tokens of a sequence that is kept, or found: a system prompt of a line, but not the
three or four with which a template begins (ADR 0040)."""

OUTPUTS_PER_SLOT: Final = 1 + MAX_DRAFT_TOKENS
"""Tokens of one sequence in one batch after which the next may be chosen. llama.cpp
reserves room for that many rows of scores, and ends the process if there are more."""

DRAFT_COST: Final = 0.5
"""Steps of one token that a further token in a batch takes, until it is known: 0.5 on two
quiet cores with small models, 0.8 where others want them, too (ADR 0029)."""

PROBE_STEPS: Final = 16
"""Steps without a guess, where few came true, after which one is made to see if that has
changed: they cost 3 %, and text that repeats itself goes on for longer."""

LOOKUP_TOKENS: Final = 16_384
"""Last tokens of a sequence in which a lookup looks for the like of its end: 30 µs."""

PENALTY_TOKENS: Final = 64
"""Last tokens, of prompt and answer, that count for penalties; llama.cpp's default."""

ENCODE_BATCH_TOKENS: Final = 512
"""Tokens that an encoder packs in one batch where its context is smaller: attention is
computed over the whole batch, so more is not faster."""

ENCODE_BATCH_SEQUENCES: Final = 16
"""Texts that an encoder packs in one batch."""

GRAMMAR_TOTAL_BYTES: Final = 512 * 1024
"""Bytes of what one answer is held to, schemas of all tools together. Compiling takes a
fifth of a second for as many bytes of plain schemas."""

GRAMMAR_COMPILE_S: Final = 1.0
"""Seconds of processor time in which a grammar has to compile. Schemas that people write
take milliseconds; some that are made for it take hours. F-11."""

GRAMMAR_COMPILE_BYTES: Final = 512 * 1024 * 1024
"""Address space that trying it may take, beside the vocabulary's. F-11."""

GRAMMAR_COMPILE_STACK_BYTES: Final = 1024 * 1024
"""Stack on which it is tried: half of what a thread has in any case, so that none which
passed can overflow the worker's. Rules that follow from one another fit to the 300th. F-11."""

GRAMMAR_AHEAD_S: Final = 0.01
"""Seconds of processor time in which one answer's grammar is asked what has to follow. A
step of one byte or more takes some 50 µs, and most keys of JSON ten of them. F-11."""

GRAMMAR_STEP_S: Final = 0.25
"""Seconds of processor time that a grammar may take for one token before its answer is
given up, to find what may follow and to go on: all others wait meanwhile. A token takes under a millisecond as a rule. F-11."""

GRAMMAR_FREE_S: Final = 0.005
"""Seconds of processor time that an answer's grammar may take for a step without sitting out
others: people's take a tenth of that, and a token of a small model twice as long. F-11."""

GRAMMAR_ROW_ITEMS: Final = 2000
"""Ways on that a grammar may have in one place; llguidance's own default, enough for an
object of 500 properties that may all be left out."""

GRAMMAR_STEP_ITEMS: Final = 10_000
"""Such ways followed for one token. At llguidance's own default of 50,000 ambiguous
grammars take a third of a second for a token; with this, a tenth. F-11."""

GRAMMAR_LEXER_STATES: Final = 50_000
"""States in which its patterns can be, as far as an answer has come to them: some 1.5 kB
each, kept as long as the answer is written. F-11."""

GRAMMAR_MAX_RULES: Final = 1000
"""Rules of one GBNF grammar: converting it takes time by the square of them. F-11."""

GRAMMAR_BLAME_PARTS: Final = 1000
"""Parts of a grammar that are compiled alone for that. F-11."""

GRAMMAR_BLAME_S: Final = 0.5
"""Seconds of processor time after which no further part of a grammar is compiled alone, to
tell what is wrong where: that is a courtesy, and people's parts take milliseconds. F-11."""

WRITE_S: Final = 1.0
"""Seconds of processor time in which a prompt is rendered and grammars are translated.
People's requests take milliseconds. F-11."""

WRITE_TOTAL_S: Final = 3.0
"""Seconds of processor time that one request may take with all of its grammars. Its stages
could take 1 s each to write, to try its structure, and to try all of it, and 1.5 s to tell
what is wrong: in all that is to be less than ``WRITING_TIMEOUT_S``. F-11."""

WRITE_S_PER_MIB: Final = 0.2
"""Seconds of processor time more for each MiB of a request: four times what it takes. F-11."""

# --- pictures and sound -----------------------------------------------------
# What clients send is bounded before a library sees it. F-29.

MEDIA_PIXELS: Final = 2**25
"""Pixels of one picture: 33 million, over those of most cameras. It is held three times
while it is made smaller, 300 MB at the most. F-29."""

MEDIA_SIDE_PIXELS: Final = 2**15
"""Pixels of one side of a picture: libmtmd multiplies sides in 32 bits. F-29."""

MEDIA_SIDE_RATIO: Final = 200
"""Times that a picture may be as long as it is broad. Beyond, sides become 0 as libmtmd
makes it smaller, which ends the process. F-29."""

MEDIA_AUDIO_S: Final = 600.0
"""Seconds of one sound. Its spectrum takes 51 kB a second, and all of it some seconds to
be computed; contexts have room for less as a rule. F-29."""

MEDIA_AUDIO_MIN_S: Final = 0.1
"""Seconds of the shortest sound: ten windows of a spectrum. libmtmd ends the process where
there is but one. F-29."""

MEDIA_READ_S: Final = PREPARE_TIMEOUT_S / 4
"""Seconds after which no further medium of a request is read: the worker is not to be
killed for it. A picture of 12 million pixels takes 0.2 s, ten minutes of sound 2 s. F-29."""

MEDIA_WATCHED_NODES: Final = 8
"""Operations of a projector between two looks at whether its picture is still wanted. A
projector has some hundred, of which the longest take seconds; a look takes 2 µs."""

MEDIA_TEST_S: Final = 2.0
"""Seconds of a projector's self-test: what is not computed by then is taken on trust, since
some take a minute for any picture on two cores."""

MEDIA_WAIT_S: Final = 0.05
"""Seconds that the decoding thread waits for a projector while nobody else has anything to
decode: who comes meanwhile waits as long."""

# --- model files ------------------------------------------------------------
# What a GGUF header may promise, before the library sees it. F-26.

GGUF_TENSORS: Final = 100_000
"""Tensors of one file; the largest models in use have some thousands. F-26."""

GGUF_KEYS: Final = 10_000
"""Keys of one header; it has some dozens as a rule. F-26."""

GGUF_NAME_BYTES: Final = 65_535
"""Bytes of a key: the format's own bound. F-26."""

GGUF_TEXT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one text in a header; some have a whole tokeniser as JSON in one. F-26."""

GGUF_ARRAY_TEXTS: Final = 4_000_000
"""Texts in all arrays of a header, which are walked one by one, in 0.2 µs each. The
largest vocabulary in use has 0.8 million, with its merges. F-26."""

GGUF_ARRAY_NUMBERS: Final = 65_536
"""Numbers of an array about the model's layers or pictures; some hundred as a rule. F-26."""

GGUF_CONTEXT_TOKENS: Final = 2**27
"""Tokens that a model may say its context has, or a window of it: thirteen times the largest
in use, 10,485,760. It bounds all whole numbers about a model that have no other. F-26."""

GGUF_CONTEXT_TOKENS_MIN: Final = 8
"""Tokens of the shortest context that a model may say it has, as ``n_ctx`` may say. F-26."""

GGUF_LAYERS: Final = 512
"""Layers of a model, and llama.cpp's own bound, at which it ends the process; the largest
models in use have 130. F-26."""

GGUF_EXPERTS: Final = 1024
"""Experts of a layer, and llama.cpp's own bound. F-26."""

GGUF_WIDTH: Final = 2**18
"""Numbers that stand for a token; 20,000 in the largest models in use. With heads and states
it is multiplied in 32 bits. F-26."""

GGUF_INNER_WIDTH: Final = 2**24
"""Numbers between two layers of a network. F-26."""

GGUF_HEADS: Final = 4096
"""Heads of a layer; 128 in the largest models in use. F-26."""

GGUF_HEAD_WIDTH: Final = 2**14
"""Numbers of a head, as of a state; 576 in the largest models in use. F-26."""

GGUF_ALIGNMENT_BYTES: Final = 65_536
"""Largest alignment of tensors; 32 as a rule. F-26."""

MODEL_PARTS: Final = 256
"""Files that one model may be made of: each is held open. F-26."""

# --- the box ----------------------------------------------------------------

WORKER_OPEN_FILES: Final = 2048
"""Descriptors of a worker: it has a dozen, two for each part of its model, and one for each
medium of a request that the daemon has under way; of these there are 512 at most, and some
of requests that were given up in the middle of a step. F-9, F-30."""

# --- speech -----------------------------------------------------------------

WHISPER_TEXT_BYTES: Final = 1024
"""Bytes of one token in a whisper model's vocabulary; the longest in use has 33. F-26."""

SOUND_WINDOW_S: Final = 600
"""Seconds of sound that whisper.cpp is given at once. With what it makes of them that is up
to three and a half numbers of 4 bytes for each sample, so 140 MB a job; a shorter sound is
heard exactly as by its own command. F-1."""

SOUND_CHUNK_S: Final = 30
"""Seconds that a whisper model hears at once; its own number."""

SOUND_MAX: Final = 32_768.0
"""Largest sample, either way: 1 is as loud as can be, some programs count in whole numbers
of 16 bits, and no sum of such is spoilt. F-29."""

SPEECH_PROMPT_BYTES: Final = 4096
"""Bytes of words that may come up. The model reads 223 tokens of them, of four letters as a
rule; whisper.cpp's tokeniser takes a frame of the stack for each byte. F-23."""

SPEECH_SPINS: Final = 20_000
"""Turns that a thread of whisper.cpp's waits for the others before it sleeps. Beside two busy
processes two threads take 22 s for what takes 1 s alone if there is no bound, and 3 to 5 s
with this one; alone it costs nothing (measured on two cores)."""

SPEECH_STEP_S: Final = 0.5
"""Seconds after which the worker looks for commands while a chunk of sound is heard."""

LIVE_NEW_S: Final = 1.0
"""Seconds of new sound after which it is listened to again: each time costs as much as 30
seconds do, half a second with a small model on two cores."""

LIVE_MARGIN_S: Final = 1.0
"""Seconds before the end of what has come in which words are not settled yet: the last
ones are heard half, and sentences seem to end there."""

LIVE_KEPT_S: Final = 2.0
"""Seconds of half a minute without a word that are heard again: one may begin there."""
