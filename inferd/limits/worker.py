"""Bounds inside workers and preparers: value, unit, reason, and the threat they counter."""

from typing import Final

from inferd.limits.engine import MAX_DRAFT_TOKENS, PREPARE_TIMEOUT_S

# --- prompts ----------------------------------------------------------------

TEMPLATE_MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Bytes by which the worker may grow while it renders a chat template. The largest request
takes 64 MiB a copy, four times that with wide characters. F-18."""

TOKENIZE_AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of a text that is tokenised without checking first whether it may fit: usually less
than 1 s, but 4 s for newlines with SentencePiece, whose time is quadratic in them. F-23."""

TOKENIZE_PART_CHARS: Final = 16 * 1024
"""Characters of a longer text that are tokenised at once to check whether it may fit. F-23."""

TOKENIZE_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the longest text that is tokenised as a whole: a million tokens of prose, in 3 to
8 s. F-23."""

TOKENIZE_S: Final = PREPARE_TIMEOUT_S / 2
"""Seconds after which no further text of a request is tokenised, so that the worker is not
killed for it. 64 MiB of short texts take 7 s on an idle machine. F-23."""

RENDER_CPU_S: Final = 1.0
"""Seconds of processor time for rendering a prompt and translating its grammars. Ordinary
requests take milliseconds. F-11."""

RENDER_TOTAL_CPU_S: Final = 3.0
"""Seconds of processor time for one request with all of its grammars. Its stages could take
1 s each to render it, to compile its structure and to compile all of it, and 1.5 s to find
the error: the total has to stay below ``RENDER_TIMEOUT_S``. F-11."""

RENDER_CPU_S_PER_MIB: Final = 0.2
"""Further seconds of processor time for each MiB of a request: four times what it takes. F-11."""

# --- generation -------------------------------------------------------------

PREFILL_CHUNK_TOKENS: Final = 512
"""Prompt tokens in one decode step while no answer is being generated (llama.cpp's ubatch)."""

PREFILL_ALONE_S: Final = 2.0
"""Seconds that such a step may take: new and cancelled requests wait for its end, and a slow
model reports no progress meanwhile. F-34."""

PREFILL_AIM_S: Final = PREFILL_ALONE_S / 2
"""Seconds that such a step is to take by what was measured: the next may take twice as long on
a machine that others use, too. Smaller steps of whole tiles read as fast. F-34, ADR 0088."""

PREFILL_DOUBLES_TOKENS: Final = 3072
"""Position at which a token takes twice as long as the first, until a batch there is measured:
3,500 for the embedded chat model, more for larger ones, whose attention is a smaller part.
F-34, ADR 0088."""

PREFILL_STALL_S: Final = 0.15
"""Seconds for which one chunk of a prompt may delay running answers."""

PREFILL_CHUNK_MIN_TOKENS: Final = 16
"""Fewest prompt tokens in a decode step beside running answers, however slow the model: fewer
take as long."""

PREFILL_TILE_TOKENS: Final = 64
"""Tokens that llama.cpp's attention computes together: a batch slightly above a multiple costs
a whole tile more (batches of 132 tokens are read at 0.86 of the speed of 128)."""

DRAFT_READ_S: Final = 0.05
"""Seconds for which a chunk of a draft model's prefill may delay running answers, in addition:
it also reads what the main model has in its cache."""

CACHED_PREFIX_TOKENS_MIN: Final = 16
"""Fewest tokens of a prefix that is cached or reused: a one-line system prompt, but not the
three or four tokens with which every template begins (ADR 0040)."""

OUTPUTS_PER_SLOT: Final = 1 + MAX_DRAFT_TOKENS
"""Tokens of one sequence in one batch that have logits. llama.cpp reserves memory for that
many rows, and aborts the process if there are more."""

DRAFT_COST: Final = 0.5
"""Cost of a further token in a batch, in steps of one token, until it is measured: 0.5 on two
idle cores with small models, 0.8 on busy ones (ADR 0029)."""

PROBE_STEPS: Final = 16
"""Steps without drafting, after a low acceptance rate, before one draft checks whether that has
changed: the checks cost 3 %, and repetitive text goes on for longer."""

LOOKUP_TOKENS: Final = 16_384
"""Last tokens of a sequence that prompt lookup searches for a match of its end, in 30 µs."""

PENALTY_TOKENS: Final = 64
"""Last tokens, of prompt and answer, that count for penalties; llama.cpp's default."""

ENCODE_BATCH_TOKENS: Final = 512
"""Tokens that an encoder packs in one batch if its context is smaller: attention is computed
over the whole batch, so more is not faster."""

ENCODE_BATCH_SEQUENCES: Final = 16
"""Texts that an encoder packs in one batch."""

UNSENT_STEPS: Final = 8
"""Decode steps whose results wait to be sent, before decoding waits for the daemon to read. It
reads within a step; the socket alone holds the results of hundreds."""

# --- grammars: measured with llguidance 1.9.1 on two cores; bench.structure prints the figures

FORCED_TOKENS: Final = 64
"""Tokens of one answer that are added to a batch at once where the grammar allows no other:
more would delay other streams as much as a chunk of a prompt does."""

GRAMMAR_TOTAL_BYTES: Final = 512 * 1024
"""Bytes of the whole grammar of one answer, schemas of all tools included. Compiling as many
bytes of plain schemas takes 0.2 s."""

GRAMMAR_COMPILE_S: Final = 1.0
"""Seconds of processor time in which a grammar has to compile. Ordinary schemas take
milliseconds, malicious ones hours. F-11."""

GRAMMAR_COMPILE_BYTES: Final = 512 * 1024 * 1024
"""Address space for compiling a grammar, beside the vocabulary's. F-11."""

GRAMMAR_COMPILE_STACK_BYTES: Final = 1024 * 1024
"""Stack on which a grammar is checked: half of the stack of any thread, so that no grammar
that passed can overflow the worker's. Chains of up to 300 rules fit. F-11."""

GRAMMAR_LOOKAHEAD_S: Final = 0.01
"""Seconds of processor time for asking one answer's grammar which text has to follow. A step of
a byte or more takes some 50 µs, and most keys of JSON ten steps. F-11."""

GRAMMAR_STEP_S: Final = 0.25
"""Seconds of processor time that a grammar may take for one token, to compute the mask and to
advance, before its answer is ended: all other answers wait meanwhile. A token usually takes
under a millisecond. F-11."""

GRAMMAR_UNTHROTTLED_S: Final = 0.005
"""Seconds of processor time that an answer's grammar may take for a step before the answer is
throttled: ordinary grammars take a tenth of that, a token of a small model twice as long.
F-11."""

GRAMMAR_ROW_ITEMS: Final = 2000
"""Earley items in one row of llguidance's parser; its own default, enough for an object of 500
optional properties."""

GRAMMAR_STEP_ITEMS: Final = 10_000
"""Earley items for one token. With llguidance's own default of 50,000 ambiguous grammars take
0.33 s for a token; with this, 0.1 s. F-11."""

GRAMMAR_LEXER_STATES: Final = 50_000
"""Lexer states created while an answer is generated: some 1.5 kB each, kept until its end.
F-11."""

GRAMMAR_MAX_RULES: Final = 1000
"""Rules of one GBNF grammar: converting it takes quadratic time in them. F-11."""

GRAMMAR_ERROR_PARTS: Final = 1000
"""Parts of a grammar that are compiled separately to find the one with an error. F-11."""

GRAMMAR_ERROR_S: Final = 0.5
"""Seconds of processor time after which that search ends: it only improves the error message,
and parts of ordinary grammars take milliseconds. F-11."""

# --- pictures and audio: checked before a library reads them. F-29 ------------

MEDIA_PIXELS: Final = 2**25
"""Pixels of one picture: 33 million, more than most cameras have. It is held three times while
it is scaled down, 300 MB at most. F-29."""

MEDIA_SIDE_PIXELS: Final = 2**15
"""Pixels of one side of a picture: libmtmd multiplies sides in 32 bits. F-29."""

MEDIA_SIDE_RATIO: Final = 200
"""Largest ratio of a picture's sides. Above it a side is rounded to 0 when libmtmd scales the
picture down, which aborts the process. F-29."""

MEDIA_AUDIO_S: Final = 600.0
"""Seconds of one audio file. Its spectrogram takes 51 kB a second and some seconds to compute;
most contexts hold less. F-29."""

MEDIA_AUDIO_MIN_S: Final = 0.1
"""Seconds of the shortest audio file: ten windows of a spectrogram. libmtmd aborts the process
if there is only one. F-29."""

MEDIA_READ_S: Final = PREPARE_TIMEOUT_S / 4
"""Seconds after which no further media file of a request is read, so that the worker is not
killed for it. A picture of 12 million pixels takes 0.2 s, ten minutes of audio 2 s. F-29."""

MEDIA_NODES_PER_CHECK: Final = 8
"""Operations of a projector between two checks whether its result is still wanted. A projector
has some hundred operations, of which the longest take seconds; a check takes 2 µs."""

MEDIA_TEST_S: Final = 2.0
"""Seconds of a projector's self-test; the rest is skipped, since some projectors take a minute
for any picture on two cores."""

MEDIA_WAIT_S: Final = 0.05
"""Seconds that the decoding thread waits for a projector when it has nothing to decode: a new
request waits as long."""

# --- the sandbox ------------------------------------------------------------

WORKER_OPEN_FILES: Final = 2048
"""Descriptors of a worker: it has a dozen, two for each file of its model, and one for each
media file of a request under way; of these there are 512 at most, and some of requests that
were dropped during a step. F-9, F-30."""

MAX_REMOTE_WORKERS: Final = 256
"""Workers with a network at once, of one daemon: one for each remote backend, and another while
one is replaced. Each takes some 10 MB of its own. F-57."""

# --- speech -----------------------------------------------------------------

SOUND_WINDOW_S: Final = 600
"""Seconds of audio that one call of whisper.cpp gets. With its intermediate results that is up
to three and a half numbers of 4 bytes for each sample, 140 MB a job; a shorter recording is
transcribed exactly as by whisper.cpp's own command. F-1."""

SOUND_CHUNK_S: Final = 30
"""Seconds of audio that a whisper model encodes at once; the model's own number."""

SAMPLE_MAX: Final = 32_768.0
"""Largest absolute value of a sample. Full scale is 1, but some programs use 16-bit integers;
sums of such values stay exact enough. F-29."""

SPEECH_PROMPT_BYTES: Final = 4096
"""Bytes of the initial prompt. The model uses 223 tokens of it, of usually four letters;
whisper.cpp's tokeniser takes a stack frame for each byte. F-23."""

SPEECH_SPINS: Final = 20_000
"""Iterations for which a thread of whisper.cpp spins before it sleeps. Beside two busy processes
two threads take 22 s for 1 s of work without a bound, and 3 to 5 s with this one; on an idle
machine it costs nothing (measured on two cores)."""

SPEECH_STEP_S: Final = 0.5
"""Seconds after which the worker reads commands while a chunk of audio is transcribed."""

LIVE_NEW_S: Final = 1.0
"""Seconds of new audio after which a live recording is transcribed again: each time costs as
much as 30 s of audio, half a second with a small model on two cores."""

LIVE_MARGIN_S: Final = 1.0
"""Last seconds of the received audio whose words are not final yet: the last words are
incomplete, and sentences seem to end there."""

LIVE_OVERLAP_S: Final = 2.0
"""Seconds at the end of 30 s without a word that are transcribed again: one may begin there."""
